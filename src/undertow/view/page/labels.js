// Names beside dots, none upon another: greedy, the weightiest first, those that must be seen before all others.

const labels = { alpha: new Float32Array(N), shown: [], width: new Map() };
const LABEL_TRIES = 1500, LABEL_MS = 6; // the time counts while the picture moves

function textWidth(text) { // at 12 pixels; widths grow with the size
  let width = labels.width.get(text);
  if (width === undefined) {
    ctx.font = "12px system-ui, sans-serif";
    width = ctx.measureText(text).width;
    labels.width.set(text, width);
  }
  return width;
}

function clash(box, boxes) {
  for (const other of boxes) {
    if (box.x0 < other.x1 && other.x0 < box.x1 && box.y0 < other.y1 && other.y0 < box.y1) return true;
  }
  return false;
}

// The best free place beside a dot of radius r, the one used last first.
function place(i, text, size, sx, sy, r, boxes, before, insist) {
  const w = (textWidth(text) * size) / 12, gap = r + 4;
  const places = [[sx + gap, sy + size * 0.36], [sx - gap - w, sy + size * 0.36]];
  // on a line other dots are above and below
  if (D > 1) places.push([sx - w / 2, sy - gap - 1], [sx - w / 2, sy + gap + size * 0.8]);
  const first = before ? before.side : 0;
  for (let k = 0; k < places.length; k++) {
    const side = (first + k) % places.length, [x, y] = places[side];
    const box = { x0: x - 3, x1: x + w + 3, y0: y - size * 0.85, y1: y + size * 0.3, i, side, x, y, text, size };
    const off = box.x0 < 0 || box.x1 > camera.width || box.y0 < 0 || box.y1 > camera.height;
    if (!off && !clash(box, boxes)) return box;
  }
  if (!insist) return null;
  // what must be named is named: farther off, or at last upon something
  if (insist < 3) return place(i, text, size, sx, sy, r + 14, boxes, before, insist + 1);
  const x = Math.min(Math.max(places[first][0], 3), Math.max(camera.width - w - 3, 3)), y = places[first][1];
  return { x0: x - 3, x1: x + w + 3, y0: y - size * 0.85, y1: y + size * 0.3, i, side: first, x, y, text, size };
}

// Boxes of the labels to show now. `radius(i)` is the dot's; `taken` are boxes already in use.
function layLabels(now, radius, taken) {
  const boxes = [...taken], chosen = new Map();
  const before = new Map(labels.shown.map((box) => [box.i, box]));
  const put = (i, size, most, insist) => {
    if (chosen.has(i)) return;
    const sx = screenX(now.x[i]), sy = screenY(now.y[i]);
    if (!(sx > -20 && sx < camera.width + 20 && sy > -20 && sy < camera.height + 20)) return;
    const box = place(i, shorten(NAMES[i], most), size, sx, sy, radius(i), boxes, before.get(i), insist);
    if (!box) return;
    const r = radius(i);
    boxes.push(box, { x0: sx - r, x1: sx + r, y0: sy - r, y1: sy + r }); // nor upon the dot of another name
    chosen.set(i, box);
  };
  for (const i of forced()) if (visible(i)) put(i, 14, i === state.hover ? 90 : 40, 1);
  const order = labelOrder(nearestFrame()), begun = performance.now();
  const allowed = state.playing || flight || pointers.size ? LABEL_MS : Infinity;
  const most = Math.min(Math.round((camera.width * camera.height) / 7000), 200) + chosen.size;
  // first those that are there already: a label that jumps in and out is worse than one that is missing
  const rank = new Map();
  for (let r = 0, tries = 0; r < order.length && tries < LABEL_TRIES; r++) {
    if (visible(order[r])) rank.set(order[r], tries++);
  }
  const staying = labels.shown.map((box) => box.i).filter((i) => rank.get(i) < 3 * most);
  staying.sort((p, q) => rank.get(p) - rank.get(q));
  for (const list of [staying, rank.keys()]) {
    for (const i of list) {
      if (chosen.size >= most || performance.now() - begun > allowed) break;
      if (now.weight[i] > 0) put(i, radius(i) > 5.5 ? 13 : 12, 28, 0);
    }
  }
  labels.shown = [...chosen.values()];
  return labels.shown;
}

// What is always named: the dot under the pointer, what is pinned, what was searched for.
function forced() {
  return [...new Set([state.hover, state.marked, ...[...state.pinned].reverse()].filter((i) => i >= 0))];
}

// Labels come and go softly; true while some are on their way.
function fadeLabels(seconds) {
  const step = calm.matches ? 1 : seconds / 0.16, there = new Set(labels.shown.map((box) => box.i));
  let moving = false;
  for (let i = 0; i < N; i++) {
    if (!there.has(i)) labels.alpha[i] = 0;
    else if (labels.alpha[i] < 1) {
      labels.alpha[i] = Math.min(1, labels.alpha[i] + step);
      moving = true; // also at the end: what is drawn now still has the paler one
    }
  }
  return moving;
}

function drawLabels(colours, dim) {
  const must = new Set(forced());
  ctx.lineJoin = "round";
  ctx.textAlign = "left";
  ctx.direction = "ltr";
  for (const pass of [false, true]) {
    for (const box of labels.shown) {
      if (must.has(box.i) !== pass) continue;
      ctx.globalAlpha = pass ? 1 : labels.alpha[box.i] * (dim ? 0.72 : 1);
      ctx.font = `${pass ? "600 " : ""}${box.size}px system-ui, sans-serif`;
      ctx.lineWidth = pass ? 4 : 3;
      ctx.strokeStyle = colours.paper;
      ctx.strokeText(box.text, box.x, box.y);
      ctx.fillStyle = pass ? colours.ink : colours.kinds[KIND[box.i] % 2];
      ctx.fillText(box.text, box.x, box.y);
    }
  }
  ctx.globalAlpha = 1;
}
