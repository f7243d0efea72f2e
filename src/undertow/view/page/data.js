// The data, decoded once: positions, uncertainties and weights of N entities at T times in D dimensions.

const T = DATA.times.length, N = DATA.names.length, D = DATA.d;
const NAMES = DATA.names, KIND = Uint8Array.from(DATA.kinds), KIND_NAMES = DATA.kindNames;

const linear = (packed) => Float32Array.from(codes(packed.data, Int16Array), (c) => c * packed.step);
const logarithmic = (packed) =>
  Float32Array.from(codes(packed.data, Uint16Array), (c) => (c ? Math.exp(packed.low + packed.step * (c - 1)) : 0));

const POS = linear(DATA.positions);      // (T, N, D)
const SD = logarithmic(DATA.sd);         // (T, N, D) standard deviations along the axes
const RHO = DATA.correlation ? linear(DATA.correlation) : null; // (T, N) of the two axes shown
const WEIGHT = logarithmic(DATA.weights); // (T, N); 0: not seen at the time
const OFFSET = linear(DATA.offsets); // (T, N); two of different kinds meet exp(o + o − d²) times as often as by chance
const Z_95 = 1.6448536269514722, RADIUS_90 = D === 1 ? Z_95 : 2.145966026289347;

// Where each time stands between 0 and 1: by its number where all times are numbers in order, else evenly.
const TIME_X = (() => {
  const numbers = DATA.times.map((t) => (t.trim() === "" ? NaN : Number(t)));
  const ordered = numbers.every((v, f) => Number.isFinite(v) && (f === 0 || v > numbers[f - 1]));
  const at = T > 1 && ordered ? numbers : numbers.map((_, f) => f);
  const span = at[T - 1] - at[0] || 1;
  return at.map((v) => (v - at[0]) / span);
})();

// With one dimension, time runs from left to right over this width; the map is 1.6 times as wide as high.
const TIME_WIDTH = (() => {
  let low = Infinity, high = -Infinity;
  if (D === 1) for (const v of POS) { if (v < low) low = v; if (v > high) high = v; }
  return D === 1 ? 1.6 * (high - low || 1) : 0;
})();

// Where an entity stands on the map at a time of the data; in one of three layouts.
const PLACE = { x: new Float32Array(T * N), y: new Float32Array(T * N), layout: "distances" };
const mapX = (f, i) => PLACE.x[f * N + i];
const mapY = (f, i) => PLACE.y[f * N + i];

// As the model has it: distances are the model's.
function byDistances(f, i) {
  const at = (f * N + i) * D;
  return D === 1 ? [(TIME_X[f] - 0.5) * TIME_WIDTH, POS[at]] : [POS[at], POS[at + 1]];
}

// The two kinds about one middle and spread alike, by the linear maps of map_geometry.py: products stay the model's.
function byBalance(f, i) {
  const { maps, centres } = DATA.balanced, map = maps[KIND[i]], out = [0, 0];
  for (let k = 0; k < D; k++) {
    const v = POS[(f * N + i) * D + k] - centres[f][KIND[i]][k];
    out[0] += v * map[k][0];
    out[1] += v * map[k][1];
  }
  return out;
}

// The second kind stays at its weighted mean positions; an entity of the first kind is shifted by the mean shift of those
// near it, with the weights of the model: p exp(−d²).
const STILL_MOST = 400; // of the second kind take part in that
function byStillness() {
  const mean = new Float64Array(2 * N), total = new Float64Array(N);
  for (let f = 0; f < T; f++) for (let i = 0; i < N; i++) {
    const w = WEIGHT[f * N + i] + 1e-9, [x, y] = byDistances(f, i);
    mean[2 * i] += w * x; mean[2 * i + 1] += w * y; total[i] += w;
  }
  for (let i = 0; i < N; i++) { mean[2 * i] /= total[i]; mean[2 * i + 1] /= total[i]; }
  const second = [...Array(N).keys()].filter((j) => KIND[j] === 1);
  const held = second.sort((p, q) => total[q] - total[p]).slice(0, STILL_MOST);
  return (f, i) => {
    if (KIND[i] === 1) return [mean[2 * i], mean[2 * i + 1]];
    const [x, y] = byDistances(f, i);
    const logs = held.map((j) => Math.log(WEIGHT[f * N + j] + 1e-9) - squared(f, i, j)), most = Math.max(...logs);
    let sum = 0, dx = 0, dy = 0;
    held.forEach((j, k) => {
      const w = Math.exp(logs[k] - most), [jx, jy] = byDistances(f, j);
      sum += w; dx += w * (mean[2 * j] - jx); dy += w * (mean[2 * j + 1] - jy);
    });
    return sum > 0 ? [x + dx / sum, y + dy / sum] : [x, y];
  };
}

function layOut(layout) {
  const where = layout === "balanced" ? byBalance : layout === "still" ? byStillness() : byDistances;
  for (let f = 0; f < T; f++) for (let i = 0; i < N; i++) [PLACE.x[f * N + i], PLACE.y[f * N + i]] = where(f, i);
  PLACE.layout = layout;
}
layOut("distances");

// Everything at a time between frames, on the straight line from one to the next.
function interpolate(time, out) {
  const f = Math.min(Math.floor(time), T - 1), g = Math.min(f + 1, T - 1), a = time - f, b = 1 - a;
  for (let i = 0; i < N; i++) {
    out.x[i] = b * mapX(f, i) + a * mapX(g, i);
    out.y[i] = b * mapY(f, i) + a * mapY(g, i);
    out.weight[i] = b * WEIGHT[f * N + i] + a * WEIGHT[g * N + i];
  }
}

// Covariance on the map as [xx, xy, yy].
function covariance(f, i) {
  const at = f * N + i;
  if (D === 1) return [0, 0, SD[at] ** 2];
  const sx = SD[D * at], sy = SD[D * at + 1], xy = RHO[at] * sx * sy;
  if (PLACE.layout !== "balanced") return [sx * sx, xy, sy * sy];
  const map = DATA.balanced.maps[KIND[i]], out = [0, 0, 0]; // errors along axes that are not drawn count as independent
  for (let k = 0; k < D; k++) {
    const [a, b] = map[k], v = SD[D * at + k] ** 2;
    out[0] += a * a * v; out[1] += a * b * v; out[2] += b * b * v;
  }
  const [[a, b], [c, d]] = map;
  return [out[0] + 2 * a * c * xy, out[1] + (a * d + b * c) * xy, out[2] + 2 * b * d * xy];
}

// The 90 % ellipse of an entity: half axes and the angle of the first.
function ellipse(time, i) {
  const f = Math.min(Math.floor(time), T - 1), g = Math.min(f + 1, T - 1), a = time - f;
  const p = covariance(f, i), q = covariance(g, i);
  const xx = p[0] + a * (q[0] - p[0]), xy = p[1] + a * (q[1] - p[1]), yy = p[2] + a * (q[2] - p[2]);
  const mean = (xx + yy) / 2, half = Math.hypot((xx - yy) / 2, xy);
  return {
    a: RADIUS_90 * Math.sqrt(Math.max(mean + half, 0)),
    b: RADIUS_90 * Math.sqrt(Math.max(mean - half, 0)),
    angle: 0.5 * Math.atan2(2 * xy, xx - yy),
  };
}

// Squared distance of the means, in all dimensions.
function squared(f, i, j) {
  let sum = 0;
  for (let k = 0, p = (f * N + i) * D, q = (f * N + j) * D; k < D; k++) sum += (POS[p + k] - POS[q + k]) ** 2;
  return sum;
}

// Expected distance of two entities and its 90 % band, their errors taken as independent: the squared distance has mean
// |δ|² + tr S and variance 2 tr S² + 4 δ'Sδ, and so has the gamma distribution whose quantiles (Wilson–Hilferty's)
// are taken. On a line the distance is a folded normal variable, and needs no such help.
function distance(f, i, j) {
  const p = (f * N + i) * D, q = (f * N + j) * D;
  if (D === 1) return folded(Math.abs(POS[p] - POS[q]), Math.hypot(SD[p], SD[q]));
  let mean = 0, variance = 0;
  for (let k = 0; k < D; k++) {
    const delta = (POS[p + k] - POS[q + k]) ** 2, s = SD[p + k] ** 2 + SD[q + k] ** 2;
    mean += delta + s;
    variance += 2 * s * s + 4 * delta * s;
  }
  const crossed = (at) => RHO[at] * SD[D * at] * SD[D * at + 1], xy = crossed(f * N + i) + crossed(f * N + j);
  variance += 4 * xy * xy + 8 * (POS[p] - POS[q]) * (POS[p + 1] - POS[q + 1]) * xy;
  const root = Math.sqrt(mean);
  if (!(variance > 0)) return { mean: root, low: root, high: root };
  const shape = (mean * mean) / variance;
  const quantile = (z) => root * Math.max(1 - 1 / (9 * shape) + z / (3 * Math.sqrt(shape)), 0) ** 1.5;
  return { mean: root * (1 - 1 / (8 * shape) + 1 / (128 * shape * shape)), low: quantile(-Z_95), high: quantile(Z_95) };
}

// The normal distribution function to within 1e-7 (Abramowitz and Stegun 7.1.26).
function normal(z) {
  const t = 1 / (1 + 0.3275911 * (Math.abs(z) / Math.SQRT2));
  const poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = 0.5 * poly * Math.exp((-z * z) / 2);
  return z > 0 ? 1 - tail : tail;
}

// |X| of a normal X with mean m ≥ 0 and standard deviation s.
function folded(m, s) {
  if (!(s > 0)) return { mean: m, low: m, high: m };
  const quantile = (share) => {
    let low = 0, high = m + 8 * s;
    for (let k = 0; k < 60; k++) {
      const r = (low + high) / 2;
      if (normal((r - m) / s) - normal((-r - m) / s) < share) low = r; else high = r;
    }
    return (low + high) / 2;
  };
  const mean = s * Math.sqrt(2 / Math.PI) * Math.exp((-m * m) / (2 * s * s)) + m * (1 - 2 * normal(-m / s));
  return { mean, low: quantile(0.05), high: quantile(0.95) };
}

// How many times as often as by chance two of different kinds meet, which is 1 at the chance distance.
const lift = (f, i, j) => Math.exp(OFFSET[f * N + i] + OFFSET[f * N + j] - squared(f, i, j));
const chance = (f, i, j) => Math.sqrt(Math.max(0, OFFSET[f * N + i] + OFFSET[f * N + j]));

// The chance distance of an entity from those of the other kind, on average over what was counted at the time.
function chanceAround(f, i) {
  let sum = 0, total = 0;
  for (let j = 0; j < N; j++) {
    if (KIND[j] === KIND[i]) continue;
    sum += WEIGHT[f * N + j] * OFFSET[f * N + j];
    total += WEIGHT[f * N + j];
  }
  return Math.sqrt(Math.max(0, OFFSET[f * N + i] + (total > 0 ? sum / total : OFFSET[f * N + i])));
}

// A pair over all times: the model's own numbers where it gave them, in either order.
function pairSeries(i, j) {
  const known = DATA.pairs.find((p) => (p.i === i && p.j === j) || (p.i === j && p.j === i));
  if (known) return { ...known, of: known.j, by: known.i, exact: true };
  const all = DATA.times.map((_, f) => distance(f, i, j));
  return {
    mean: all.map((v) => v.mean), low: all.map((v) => v.low), high: all.map((v) => v.high),
    probability: null, exact: false,
  };
}

// The entities of a kind nearest to one at a time, of those seen then: by the squared distance of the means in all
// dimensions plus the other's own variances, so that uncertain ones come later. DynamicEmbedding.nearest ranks alike.
function nearest(f, i, kind, count) {
  const found = [];
  for (let j = 0; j < N; j++) {
    if (j === i || KIND[j] !== kind || !(WEIGHT[f * N + j] > 0)) continue;
    let near = squared(f, i, j);
    for (let k = 0, p = (f * N + j) * D; k < D; k++) near += SD[p + k] ** 2;
    found.push([near, j]);
  }
  return found.sort((p, q) => p[0] - q[0]).slice(0, count).map(([, j]) => j);
}

// The order in which labels are given at a time: by rank within the kind, so that no kind crowds out the other. The
// mean over all times takes part, so that labels do not flicker as years go by.
const labelOrder = (() => {
  const mean = new Float64Array(N), cache = new Map();
  for (let f = 0; f < T; f++) for (let i = 0; i < N; i++) mean[i] += WEIGHT[f * N + i] / T;
  return (f) => {
    if (cache.has(f)) return cache.get(f);
    const score = Float64Array.from(mean, (m, i) => (WEIGHT[f * N + i] > 0 ? m + WEIGHT[f * N + i] : m * 1e-6));
    const rank = new Float64Array(N);
    KIND_NAMES.forEach((_, kind) => {
      const members = [];
      for (let i = 0; i < N; i++) if (KIND[i] === kind) members.push(i);
      members.sort((p, q) => score[q] - score[p]).forEach((i, r) => {
        rank[i] = r + kind / 10 + (WEIGHT[f * N + i] > 0 ? 0 : N);
      });
    });
    const order = Int32Array.from({ length: N }, (_, i) => i).sort((p, q) => rank[p] - rank[q]);
    cache.set(f, order);
    return order;
  };
})();
