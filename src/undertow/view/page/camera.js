// From the map to the screen and back: pixels a unit, and the place in the middle.

const canvas = document.getElementById("map"), ctx = canvas.getContext("2d");
const camera = { scale: 1, x: 0, y: 0, width: 1, height: 1 };
const home = { scale: 1, x: 0, y: 0 };
let flight = null; // where the camera is on its way to
let overlays = []; // boxes of the buttons upon the map

const screenX = (x) => camera.width / 2 + (x - camera.x) * camera.scale;
const screenY = (y) => camera.height / 2 - (y - camera.y) * camera.scale;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// The box that holds nearly all places at which anything was seen: a few far outliers must not shrink the rest.
function measureExtent() {
  const xs = [], ys = [], step = Math.max(1, Math.floor((T * N) / 200000));
  for (let at = 0; at < T * N; at += step) {
    const f = Math.floor(at / N), i = at % N;
    if (WEIGHT[at] > 0) { xs.push(mapX(f, i)); ys.push(mapY(f, i)); }
  }
  if (!xs.length) for (let i = 0; i < N; i++) { xs.push(mapX(0, i)); ys.push(mapY(0, i)); }
  const range = (values, share) => {
    const sorted = Float64Array.from(values).sort(), last = sorted.length - 1;
    return [sorted[Math.floor(share * last)], sorted[Math.ceil((1 - share) * last)]];
  };
  return { x: range(xs, D === 1 ? 0 : 0.004), y: range(ys, 0.004) };
}
let extent = measureExtent();

function fitHome() {
  const [x0, x1] = extent.x, [y0, y1] = extent.y;
  const spread = Math.max(x1 - x0, y1 - y0) || 1;
  const wide = Math.max(x1 - x0, spread * 0.02), high = Math.max(y1 - y0, spread * 0.02);
  home.scale = Math.min((camera.width - 110) / wide, (camera.height - 90) / high);
  if (!(home.scale > 0)) home.scale = Math.max(camera.width, 50) / spread / 2;
  home.x = (x0 + x1) / 2;
  home.y = (y0 + y1) / 2;
}

// Follow the size of the box and of the screen's pixels; the same place stays in the middle, at the same zoom.
// True if anything had to change.
function resize() {
  const box = canvas.parentElement.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const zoom = camera.scale / home.scale, fresh = camera.width <= 1;
  const pixels = [Math.round(Math.max(box.width, 2) * ratio), Math.round(Math.max(box.height, 2) * ratio)];
  if (!fresh && canvas.width === pixels[0] && canvas.height === pixels[1]) return false;
  camera.width = Math.max(box.width, 2);
  camera.height = Math.max(box.height, 2);
  [canvas.width, canvas.height] = pixels;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  overlays = [...canvas.parentElement.querySelectorAll("#legend, .zoom")].map((node) => {
    const over = node.getBoundingClientRect();
    return { x0: over.left - box.left, x1: over.right - box.left, y0: over.top - box.top, y1: over.bottom - box.top };
  });
  fitHome();
  if (fresh) Object.assign(camera, home);
  else camera.scale = home.scale * zoom;
  return true;
}

const clampScale = (scale) => Math.min(Math.max(scale, home.scale * 0.2), home.scale * 400);

const goal = () => (flight ? flight.to : camera); // where the camera is, or will be

// Zoom so that the place under (px, py) stays there.
function zoomAt(factor, px = camera.width / 2, py = camera.height / 2) {
  flight = null;
  const scale = clampScale(camera.scale * factor);
  camera.x += (px - camera.width / 2) * (1 / camera.scale - 1 / scale);
  camera.y -= (py - camera.height / 2) * (1 / camera.scale - 1 / scale);
  camera.scale = scale;
}

function pan(dx, dy) {
  flight = null;
  camera.x -= dx / camera.scale;
  camera.y += dy / camera.scale;
}

function flyTo(x, y, scale) {
  const to = { x, y, scale: clampScale(scale) };
  if (calm.matches) { Object.assign(camera, to); flight = null; return; }
  flight = { from: { x: camera.x, y: camera.y, scale: camera.scale }, to, begun: performance.now() };
}

// One step of a flight; true while it goes on.
function fly(now) {
  if (!flight) return false;
  const u = Math.min(Math.max((now - flight.begun) / 400, 0), 1), e = u * u * (3 - 2 * u), { from, to } = flight;
  camera.scale = from.scale * (to.scale / from.scale) ** e;
  camera.x = from.x + (to.x - from.x) * e;
  camera.y = from.y + (to.y - from.y) * e;
  if (u === 1) flight = null;
  return flight !== null;
}
