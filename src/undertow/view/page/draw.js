// One picture: ellipses, trails, dots, pairs and labels at the present time.

const now = { x: new Float32Array(N), y: new Float32Array(N), weight: new Float32Array(N) };
const TRAIL_FRAMES = 6;        // of all, where the trails of all are drawn
let pictures = 0, lastFrame = null, lastTick = null, colours = null;

const MAX_WEIGHT = KIND_NAMES.map((_, kind) => {
  let most = 0;
  for (let at = 0; at < T * N; at++) if (KIND[at % N] === kind && WEIGHT[at] > most) most = WEIGHT[at];
  return most || 1;
});
const LARGEST = N > 5000 ? 5 : N > 1000 ? 5.5 : N > 300 ? 7 : 9, SMALLEST = N > 5000 ? 1 : 1.6;

// The kind with the most members is drawn first, so that it does not bury the other.
const SIZES = KIND_NAMES.map((_, kind) => KIND.reduce((sum, k) => sum + (k === kind), 0));
const DRAWN = KIND_NAMES.map((_, kind) => kind).sort((p, q) => SIZES[q] - SIZES[p]);

// Area by weight; dots are smaller on a small screen, and grow a little as one comes closer.
const radius = (i) => {
  const room = Math.min(Math.max(Math.min(camera.width, camera.height) / 650, 0.65), 1.1);
  const near = room * Math.min(Math.max((camera.scale / home.scale) ** 0.25, 0.8), 1.8);
  return near * (SMALLEST + (LARGEST - SMALLEST) * Math.sqrt(now.weight[i] / MAX_WEIGHT[KIND[i]]));
};

function readColours() {
  const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
  colours = {
    ink: get("--ink"), paper: get("--paper"), faint: get("--faint"), line: get("--line"), mark: get("--mark"),
    ghost: get("--ghost"), kinds: [get("--kind0"), get("--kind1")],
  };
}

// A frame of the page: time moves on if it plays, then everything is drawn.
function frame(clock) {
  wanted = false;
  const seconds = lastFrame === null ? 0 : Math.min((clock - lastFrame) / 1000, 0.1);
  lastFrame = clock;
  if (state.playing) {
    if (lastTick !== null) setTime(state.time + Math.min((clock - lastTick) / 1000, 0.25) * 1.25 * state.speed);
    lastTick = clock;
    if (state.time >= T - 1) setPlaying(false);
  }
  const flying = fly(clock);
  draw();
  const fading = fadeLabels(seconds);
  if (state.playing || flying || fading) redraw();
  else lastFrame = null;
}

function draw() {
  if (!colours) readColours();
  interpolate(state.time, now);
  ctx.clearRect(0, 0, camera.width, camera.height);
  drawTimeMark();
  const special = new Set(forced().filter(visible)), dim = state.pinned.length > 0;
  drawEllipses(special, dim);
  drawChance();
  const taken = [...overlays, ...drawTrails(special)];
  drawDots(special, dim);
  taken.push(...drawPairs());
  for (const i of special) drawSpecial(i);
  layLabels(now, radius, taken);
  if (state.ellipses === "named" && !dim) drawNamedEllipses(special);
  drawLabels(colours, dim);
  pictures++;
}

// The time in large faint letters behind everything.
function drawTimeMark() {
  const text = shorten(DATA.times[nearestFrame()], 12);
  const size = Math.min(camera.height * 0.24, (camera.width * 0.9) / Math.max(text.length, 4));
  ctx.font = `700 ${size}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.direction = "ltr";
  ctx.fillStyle = colours.ghost;
  ctx.fillText(text, camera.width - 18, camera.height - 18);
  if (D === 1) {
    ctx.strokeStyle = colours.line;
    ctx.lineWidth = 1;
    const x = screenX(now.x[0]);
    ctx.beginPath(); ctx.moveTo(x, 0); ctx.lineTo(x, camera.height); ctx.stroke();
  }
}

function addEllipse(i) {
  const e = ellipse(state.time, i), sx = screenX(now.x[i]), sy = screenY(now.y[i]);
  const a = Math.max(e.a * camera.scale, 0.5), b = Math.max(e.b * camera.scale, D === 1 ? 3 : 0.5);
  if (sx + a < 0 || sx - a > camera.width || sy + a < 0 || sy - a > camera.height) return;
  ctx.moveTo(sx + a * Math.cos(e.angle), sy - a * Math.sin(e.angle));
  ctx.ellipse(sx, sy, a, b, -e.angle, 0, 2 * Math.PI); // the screen's y points down
}

function drawEllipses(special, dim) {
  if (state.ellipses === "off") return;
  KIND_NAMES.forEach((_, kind) => {
    ctx.fillStyle = ctx.strokeStyle = colours.kinds[kind % 2];
    if (state.ellipses === "all") {
      ctx.beginPath();
      for (let i = 0; i < N; i++) if (KIND[i] === kind && visible(i) && !special.has(i)) addEllipse(i);
      ctx.globalAlpha = dim ? 0.15 : 0.3;
      ctx.lineWidth = 0.8;
      ctx.stroke(); // filled, they would run into one another
    }
    for (const i of special) {
      if (KIND[i] !== kind) continue;
      ctx.beginPath();
      addEllipse(i);
      ctx.globalAlpha = 0.16;
      ctx.fill();
      ctx.globalAlpha = 0.8;
      ctx.lineWidth = 1.2;
      ctx.stroke();
    }
  });
  ctx.globalAlpha = 1;
}

// Before anything is pinned: the uncertainty of the weightiest that have a name on the map, behind what is drawn already.
const NAMED_MOST = 7; // of each kind: more would hide the map
function drawNamedEllipses(special) {
  const named = new Set(labels.shown.map(({ i }) => i));
  const order = [...labelOrder(nearestFrame())].filter((i) => named.has(i) && !special.has(i));
  ctx.globalCompositeOperation = "destination-over";
  ctx.lineWidth = 1;
  KIND_NAMES.forEach((_, kind) => {
    ctx.strokeStyle = colours.kinds[kind % 2];
    ctx.beginPath();
    order.filter((i) => KIND[i] === kind).slice(0, NAMED_MOST).forEach(addEllipse);
    ctx.globalAlpha = 0.4;
    ctx.stroke();
  });
  ctx.globalAlpha = 1;
  ctx.globalCompositeOperation = "source-over";
}

// Around the active entity: what is of the other kind and inside meets it more often than by chance, as a rule.
function drawChance() {
  const i = active();
  if (D !== 2 || i < 0 || !visible(i) || state.layout !== "distances") return;
  ctx.strokeStyle = colours.faint;
  ctx.lineWidth = 1;
  ctx.setLineDash([2, 4]);
  ctx.beginPath();
  const f = Math.min(Math.floor(state.time), T - 1), g = Math.min(f + 1, T - 1), part = state.time - f;
  const radius = (1 - part) * chanceAround(f, i) + part * chanceAround(g, i);
  ctx.arc(screenX(now.x[i]), screenY(now.y[i]), radius * camera.scale, 0, 2 * Math.PI);
  ctx.stroke();
  ctx.setLineDash([]);
}

// Seen at a time and at the one after it: the way between them was observed. Else the smoother carried it along.
const seenBetween = (f, i) => WEIGHT[f * N + i] > 0 && WEIGHT[Math.min(f + 1, T - 1) * N + i] > 0;

// Gives the boxes of the times written beside the trails.
function drawTrails(special) {
  if (state.trails === "off") return [];
  const f = Math.floor(state.time);
  ctx.lineCap = "round";
  if (state.trails === "all") {
    for (let age = 0; age < TRAIL_FRAMES && f - age >= 0; age++) {
      ctx.globalAlpha = 0.4 * (1 - age / TRAIL_FRAMES);
      ctx.lineWidth = 1.1;
      const from = f - age;
      KIND_NAMES.forEach((_, kind) => {
        if (!state.kinds[kind]) return;
        ctx.strokeStyle = colours.kinds[kind % 2];
        ctx.beginPath();
        for (let i = 0; i < N; i++) {
          if (KIND[i] !== kind || !seenBetween(from, i)) continue;
          ctx.moveTo(screenX(mapX(from, i)), screenY(mapY(from, i)));
          if (age === 0) ctx.lineTo(screenX(now.x[i]), screenY(now.y[i]));
          else ctx.lineTo(screenX(mapX(from + 1, i)), screenY(mapY(from + 1, i)));
        }
        ctx.stroke();
      });
    }
  }
  const boxes = [];
  for (const i of special) drawTrail(i, f, boxes);
  ctx.globalAlpha = 1;
  return boxes;
}

// The whole way of one entity up to now, with some of the times written beside it.
function drawTrail(i, f, boxes) {
  const colour = colours.kinds[KIND[i] % 2], every = Math.max(1, Math.ceil(T / 8));
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 1.6;
  for (let k = 0; k <= f; k++) {
    const x0 = screenX(mapX(k, i)), y0 = screenY(mapY(k, i)), last = k === f;
    const x1 = screenX(last ? now.x[i] : mapX(k + 1, i)), y1 = screenY(last ? now.y[i] : mapY(k + 1, i));
    const seen = seenBetween(k, i);
    ctx.globalAlpha = (0.25 + (0.6 * (k + 1)) / (f + 1)) * (seen ? 1 : 0.5);
    ctx.setLineDash(seen ? [] : [1.5, 4.5]);
    ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke();
    ctx.setLineDash([]);
    if (!(WEIGHT[k * N + i] > 0)) continue; // no dot where it was not seen
    ctx.beginPath(); ctx.arc(x0, y0, k % every ? 1.4 : 2.4, 0, 2 * Math.PI); ctx.fill();
  }
  if (D === 1 || !state.pinned.includes(i)) return;
  ctx.textAlign = "left";
  ctx.fillStyle = colours.faint;
  ctx.strokeStyle = colours.paper;
  ctx.lineWidth = 2.5;
  ctx.globalAlpha = 0.9;
  let lastX = screenX(now.x[i]), lastY = screenY(now.y[i]);
  for (let k = Math.floor(f / every) * every; k >= 0; k -= every) {
    const x = screenX(mapX(k, i)), y = screenY(mapY(k, i));
    if (Math.hypot(x - lastX, y - lastY) < 34) continue;
    const text = shorten(DATA.times[k], 10);
    const box = { x0: x + 2, x1: x + 6 + (textWidth(text) * 10) / 12, y0: y - 13, y1: y - 2 };
    if (clash(box, boxes)) continue;
    boxes.push(box);
    ctx.font = "10px system-ui, sans-serif"; // measuring may have changed it
    ctx.strokeText(text, x + 4, y - 4);
    ctx.fillText(text, x + 4, y - 4);
    lastX = x;
    lastY = y;
  }
}

// A circle for the first kind, a diamond for the second: kinds differ by more than their colour.
function addDot(i, grow = 0) {
  const sx = screenX(now.x[i]), sy = screenY(now.y[i]), r = radius(i) + grow;
  if (sx < -r || sx > camera.width + r || sy < -r || sy > camera.height + r) return;
  if (KIND[i] % 2 === 0) { ctx.moveTo(sx + r, sy); ctx.arc(sx, sy, r, 0, 2 * Math.PI); return; }
  const q = r * 1.15;
  ctx.moveTo(sx, sy - q);
  ctx.lineTo(sx + q, sy);
  ctx.lineTo(sx, sy + q);
  ctx.lineTo(sx - q, sy);
  ctx.lineTo(sx, sy - q); // closePath takes time that grows with all that was drawn before
}

function drawDots(special, dim) {
  for (const kind of DRAWN.filter((k) => state.kinds[k])) {
    for (const absent of [true, false]) {
      ctx.fillStyle = ctx.strokeStyle = colours.kinds[kind % 2];
      ctx.globalAlpha = (absent ? 0.3 : 0.72) * (dim ? 0.55 : 1);
      ctx.lineWidth = 0.8;
      let pending = 0;
      ctx.beginPath();
      for (let i = 0; i < N; i++) {
        if (KIND[i] !== kind || special.has(i) || now.weight[i] > 0 === absent) continue;
        addDot(i, absent ? 0.6 : 0);
        if (++pending < 250) continue; // many small paths are painted much faster than a large one
        if (absent) ctx.stroke(); else ctx.fill();
        ctx.beginPath();
        pending = 0;
      }
      if (absent) ctx.stroke(); else ctx.fill();
    }
  }
  ctx.globalAlpha = 1;
}

function drawSpecial(i) {
  const seen = now.weight[i] > 0;
  ctx.fillStyle = ctx.strokeStyle = colours.kinds[KIND[i] % 2];
  ctx.beginPath();
  addDot(i, 1.5);
  ctx.globalAlpha = seen ? 1 : 0.5;
  if (seen) ctx.fill();
  ctx.lineWidth = 1.4;
  ctx.strokeStyle = seen ? colours.paper : ctx.fillStyle;
  ctx.stroke();
  ctx.globalAlpha = 1;
  if (i !== state.marked && i !== active()) return;
  ctx.strokeStyle = colours.mark;
  ctx.lineWidth = 2;
  ctx.beginPath();
  ctx.arc(screenX(now.x[i]), screenY(now.y[i]), radius(i) + 6, 0, 2 * Math.PI);
  ctx.stroke();
}

// Lines between pinned pairs with their distance; gives the boxes of the numbers.
function drawPairs() {
  const boxes = [];
  ctx.font = "600 12px system-ui, sans-serif";
  ctx.textAlign = "left";
  for (const { i, j, series } of state.pairs) {
    if (!visible(i) || !visible(j)) continue;
    const x0 = screenX(now.x[i]), y0 = screenY(now.y[i]), x1 = screenX(now.x[j]), y1 = screenY(now.y[j]);
    ctx.strokeStyle = colours.mark;
    ctx.lineWidth = 1.3;
    ctx.setLineDash([5, 4]);
    ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke();
    ctx.setLineDash([]);
    if (Math.hypot(x1 - x0, y1 - y0) < 60) continue;
    const text = number(between(series.mean)), w = ctx.measureText(text).width;
    const x = (x0 + x1) / 2 - w / 2, y = (y0 + y1) / 2 + 4;
    ctx.lineWidth = 4;
    ctx.strokeStyle = colours.paper;
    ctx.strokeText(text, x, y);
    ctx.fillStyle = colours.mark;
    ctx.fillText(text, x, y);
    boxes.push({ x0: x - 3, x1: x + w + 3, y0: y - 11, y1: y + 4 });
  }
  return boxes;
}

// A series at the present time, and a number as people write it.
function between(series) {
  const f = Math.min(Math.floor(state.time), T - 1), g = Math.min(f + 1, T - 1);
  return series[f] + (state.time - f) * (series[g] - series[f]);
}
function number(value) {
  if (value === 0) return "0";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 0.1 ? 2 : value >= 0.001 ? 3 : -1;
  return digits < 0 ? value.toExponential(1) : value.toFixed(digits);
}
