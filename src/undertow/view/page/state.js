// What the reader has chosen. Every change goes through these functions, which ask for a new picture.

const state = {
  time: 0,            // frames, fractions between them
  playing: false,
  speed: 1,
  hover: -1,
  marked: -1,         // found by the search last
  pinned: [],         // entities, the last one is the active one
  pairs: [],          // {i, j, series}
  pairing: false,     // the next entity chosen makes a pair with the active one
  kinds: KIND_NAMES.map(() => true),
  ellipses: "named",
  trails: "pinned",
  layout: "distances",
};
const listeners = [];
let wanted = false;

const nearestFrame = () => Math.min(Math.max(Math.round(state.time), 0), T - 1);
const active = () => (state.pinned.length ? state.pinned[state.pinned.length - 1] : -1);
const visible = (i) => state.kinds[KIND[i]];

function redraw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(frame);
}
function changed(what) {
  for (const listener of listeners) listener(what);
  redraw();
}

function setTime(time) {
  const clamped = Math.min(Math.max(time, 0), T - 1);
  if (clamped === state.time) return;
  state.time = clamped;
  changed("time");
}
function setPlaying(on) {
  if (on && T < 2) return;
  if (on && state.time >= T - 1) setTime(0);
  state.playing = on;
  lastTick = null;
  changed("playing");
}
function step(by) {
  setPlaying(false);
  setTime((by > 0 ? Math.floor(state.time) : Math.ceil(state.time)) + by);
}

function pin(i) {
  state.pinned = [...state.pinned.filter((k) => k !== i), i];
  changed("pinned");
}
function unpin(i) {
  state.pinned = state.pinned.filter((k) => k !== i);
  if (state.marked === i) state.marked = -1;
  if (!state.pinned.length) state.pairing = false;
  changed("pinned");
}
function pinPair(i, j) {
  if (i === j || i < 0 || j < 0) return;
  state.pairs = state.pairs.filter((p) => !(p.i === i && p.j === j) && !(p.i === j && p.j === i));
  state.pairs.unshift({ i, j, series: pairSeries(i, j) });
  state.pairing = false;
  state.pinned = [...new Set([...state.pinned.filter((k) => k !== i), j, i])];
  changed("pairs");
}
function dropPair(pair) {
  state.pairs = state.pairs.filter((p) => p !== pair);
  changed("pairs");
}
function clearAll() {
  Object.assign(state, { pinned: [], pairs: [], pairing: false, marked: -1 });
  changed("pairs");
}

// A dot was clicked, or chosen from a list.
function choose(i, withShift) {
  if ((state.pairing || withShift) && active() >= 0 && active() !== i) pinPair(active(), i);
  else if (state.pinned.includes(i)) unpin(i);
  else pin(i);
}

function setPairing(on) { state.pairing = on && active() >= 0; changed("pairing"); }
function toggleKind(kind) { state.kinds[kind] = !state.kinds[kind]; state.hover = -1; changed("kinds"); }
function setOption(name, value) { state[name] = value; changed(name); }

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  changed("theme");
}
const isDark = () => document.documentElement.dataset.theme === "dark";
