// Slider, buttons, keys and the theme.

const slider = byId("slider"), play = byId("play"), help = byId("help");
slider.max = String(T - 1);
slider.disabled = play.disabled = T < 2;

slider.addEventListener("input", () => { setPlaying(false); setTime(Number(slider.value)); });
slider.addEventListener("change", () => setTime(nearestFrame())); // let go: rest on a time of the data
play.addEventListener("click", () => setPlaying(!state.playing));
byId("speed").addEventListener("change", (event) => setOption("speed", Number(event.target.value)));
for (const name of ["ellipses", "trails", "layout"]) {
  byId(name).addEventListener("change", (event) => setOption(name, event.target.value));
}
byId("zoom-in").addEventListener("click", () => zoomBy(1.5));
byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
byId("zoom-fit").addEventListener("click", showAll);
byId("clear").addEventListener("click", () => { clearAll(); search.focus(); });
byId("help-open").addEventListener("click", () => help.showModal());
byId("help-close").addEventListener("click", () => help.close());
help.addEventListener("click", (event) => { if (event.target === help) help.close(); }); // beside it
byId("theme").addEventListener("click", () => setTheme(!isDark()));

function zoomBy(factor) {
  const { x, y, scale } = goal();
  flyTo(x, y, scale * factor);
  redraw();
}
function showAll() { flyTo(home.x, home.y, home.scale); redraw(); }
function cycle(name) {
  const values = [...byId(name).options].map((option) => option.value);
  setOption(name, values[(values.indexOf(state[name]) + 1) % values.length]);
}

// Layouts that this map has: a line has one, and "balanced" needs two kinds that both spread.
if (!DATA.balanced) byId("layout").querySelector("[value=balanced]").remove();
byId("layout").querySelector("[value=still]").textContent = `${shorten(KIND_NAMES[KIND_NAMES.length - 1], 12)} still`;
if (D === 1 || KIND_NAMES.length < 2) byId("layout").parentElement.hidden = true;
const LAYOUT_NOTES = {
  distances: "",
  balanced: `Read directions: ${KIND_NAMES[0]} and ${KIND_NAMES[1]} on the same side of the center occur together more ` +
    "often than others; what is in the center goes with all alike. Distances have no meaning here.",
  still: `Here ${KIND_NAMES[1]} stay at their mean positions, and ${KIND_NAMES[0]} are shifted with those around them: ` +
    "distances are approximate.",
};
function letGo() {
  if (state.pairing) setPairing(false);
  else if (state.playing) setPlaying(false);
  else if (state.pinned.length || state.pairs.length || state.marked >= 0) clearAll();
}

const KEYS = {
  " ": () => setPlaying(!state.playing),
  ArrowLeft: () => step(-1), ArrowRight: () => step(1),
  Home: () => { setPlaying(false); setTime(0); }, End: () => { setPlaying(false); setTime(T - 1); },
  "+": () => zoomBy(1.3), "=": () => zoomBy(1.3), "-": () => zoomBy(1 / 1.3), "−": () => zoomBy(1 / 1.3), 0: showAll,
  "/": () => search.focus(), "?": () => help.showModal(), Escape: letGo,
  e: () => cycle("ellipses"), t: () => cycle("trails"),
  l: () => { if (!byId("layout").parentElement.hidden) cycle("layout"); }, d: () => setTheme(!isDark()),
};
const SHIFTED = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const on = event.target, tag = on.tagName;
  if (tag === "SELECT" || (tag === "INPUT" && on !== slider)) return;
  if (tag === "BUTTON" && (event.key === " " || event.key === "Enter")) return; // the button's own key
  if (event.shiftKey && SHIFTED[event.key]) { pan(...SHIFTED[event.key]); redraw(); }
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
});

const legend = byId("legend");
KIND_NAMES.forEach((name, kind) => {
  const sign = svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }), colour = `var(--kind${kind % 2})`;
  if (kind % 2) sign.append(svg("path", { d: "M6 0L12 6L6 12L0 6Z", fill: colour }));
  else sign.append(svg("circle", { cx: 6, cy: 6, r: 5, fill: colour }));
  legend.append(element("button", {
    type: "button", "aria-pressed": "true", title: "Show or hide this kind", onclick: () => toggleKind(kind),
  }, sign, element("span", { class: "name", dir: "auto", text: name })));
});

listeners.push((what) => {
  if (what === "time") {
    const label = DATA.times[nearestFrame()];
    slider.value = String(state.time);
    slider.setAttribute("aria-valuetext", label);
    byId("now").textContent = label;
    canvas.setAttribute("aria-label", `The map at ${label}`);
  } else if (what === "playing") {
    play.textContent = state.playing ? "❚❚" : "▶";
    play.setAttribute("aria-label", state.playing ? "Pause" : "Play");
  } else if (what === "kinds") {
    [...legend.children].forEach((child, kind) => child.setAttribute("aria-pressed", String(state.kinds[kind])));
  } else if (what === "ellipses" || what === "trails") byId(what).value = state[what];
  else if (what === "layout") {
    byId("layout").value = state.layout;
    byId("layout-note").textContent = LAYOUT_NOTES[state.layout];
    byId("layout-note").hidden = !LAYOUT_NOTES[state.layout];
    layOut(state.layout);
    extent = measureExtent();
    fitHome();
    flyTo(home.x, home.y, home.scale);
  } else if (what === "theme") {
    colours = null;
    byId("theme").textContent = isDark() ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(isDark()));
  }
});

// The theme follows the system until the reader chooses.
const system = matchMedia("(prefers-color-scheme: dark)");
let themeChosen = false;
byId("theme").addEventListener("click", () => { themeChosen = true; });
system.addEventListener("change", () => { if (!themeChosen) setTheme(system.matches); });
