// Mouse, pen and fingers on the map.

const pointers = new Map();
let pressed = null, pinch = null;

const at = (event) => {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
};

// The entity drawn nearest to a place, if any is near enough.
function under({ x, y }, reach) {
  let best = -1, least = reach;
  for (let i = 0; i < N; i++) {
    if (!visible(i)) continue;
    const away = Math.hypot(screenX(now.x[i]) - x, screenY(now.y[i]) - y) - radius(i);
    if (away < least || (away === least && now.weight[i] > now.weight[best])) { least = away; best = i; }
  }
  if (best >= 0 && least <= 2) return best;
  // a name can be clicked like its dot
  for (const box of labels.shown) if (x > box.x0 && x < box.x1 && y > box.y0 && y < box.y1) return box.i;
  return best;
}

function setHover(i) {
  if (i === state.hover) return;
  state.hover = i;
  canvas.classList.toggle("over", i >= 0);
  redraw();
}

canvas.addEventListener("pointerdown", (event) => {
  if (event.button > 0) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at(event));
  if (pointers.size === 1) pressed = { ...at(event), moved: false };
  else { pressed = null; pinch = spread(); }
});

canvas.addEventListener("pointermove", (event) => {
  const place = at(event), before = pointers.get(event.pointerId);
  if (!before) { if (event.pointerType !== "touch") setHover(under(place, 10)); return; }
  pointers.set(event.pointerId, place);
  if (pointers.size >= 2 && pinch) {
    const next = spread();
    pan(next.x - pinch.x, next.y - pinch.y);
    if (pinch.size > 0 && next.size > 0) zoomAt(next.size / pinch.size, next.x, next.y);
    pinch = next;
    redraw();
  } else if (pressed) {
    if (Math.hypot(place.x - pressed.x, place.y - pressed.y) > 5) pressed.moved = true;
    if (pressed.moved) { canvas.classList.add("moving"); pan(place.x - before.x, place.y - before.y); redraw(); }
  }
});

// Middle of the first two fingers, and how far they are apart.
function spread() {
  const [a, b] = [...pointers.values()];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, size: Math.hypot(a.x - b.x, a.y - b.y) };
}

function release(event) {
  if (!pointers.delete(event.pointerId)) return;
  canvas.classList.remove("moving");
  if (pressed && !pressed.moved && event.type === "pointerup") {
    const i = under(pressed, event.pointerType === "touch" ? 18 : 10);
    if (i >= 0) choose(i, event.shiftKey);
  }
  pressed = null;
  pinch = pointers.size >= 2 ? spread() : null;
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => setHover(-1));

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const { x, y } = at(event), lines = event.deltaMode === 1 ? 18 : 1;
  zoomAt(Math.exp(-Math.min(Math.max(event.deltaY * lines, -240), 240) * 0.0022), x, y);
  redraw();
}, { passive: false });
