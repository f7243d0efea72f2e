// The chart of a pair: distance with its band, and below it what was counted, over the same times.

const CHART = { width: 330, left: 34, right: 326, top: 8, bottom: 104, low: 128, end: 168 };

const chartX = (f) => CHART.left + (CHART.right - CHART.left) * (T > 1 ? TIME_X[f] : 0.5);

// A round number at or above a value: 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((m) => m * power >= value * 0.9999);
}

// Round limits of the chart; from 0 unless all values are far from it.
function bounds(lows, highs) {
  const low = Math.min(...lows), high = Math.max(...highs);
  if (!(low > 0.4 * high)) return [0, roundUp(high)];
  const step = roundUp((high - low) / 4 || high / 10);
  return [Math.floor(low / step) * step, Math.ceil(high / step) * step];
}

const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

// Points of a series; a single time becomes a level line.
const points = (values, y) => (T > 1 ? values : [values[0], values[0]]).map((v, f) => [
  T > 1 ? chartX(f) : f ? CHART.right : CHART.left, y(v),
]);

// Where one of the two was not seen: a grey ground from half way before to half way after.
function unseen(pair, top, bottom) {
  const nodes = [];
  for (let f = 0; f < T; f++) {
    if (WEIGHT[f * N + pair.i] > 0 && WEIGHT[f * N + pair.j] > 0) continue;
    const x0 = f ? (chartX(f - 1) + chartX(f)) / 2 : CHART.left;
    const x1 = f < T - 1 ? (chartX(f) + chartX(f + 1)) / 2 : CHART.right;
    nodes.push(svg("rect", { class: "unseen", x: x0, y: top, width: x1 - x0, height: bottom - top }));
  }
  return nodes;
}

function axis(y, label) {
  return [
    svg("line", { class: "axis", x1: CHART.left, x2: CHART.right, y1: y, y2: y }),
    svg("text", { x: CHART.left - 5, y: y + 3.5, "text-anchor": "end" }, label),
  ];
}

function timeLabels(y) {
  const longest = Math.max(1, ...DATA.times.map((t) => Math.min(t.length, 12)));
  const most = T > 1 ? Math.min(Math.max(Math.floor(50 / longest), 2), 6) : 1;
  const few = Math.min(most, T), nodes = [];
  for (let k = 0; k < few; k++) {
    const f = few > 1 ? Math.round((k * (T - 1)) / (few - 1)) : 0;
    const anchor = f === 0 && T > 1 ? "start" : chartX(f) > CHART.right - 16 ? "end" : "middle";
    nodes.push(svg("text", { x: chartX(f), y, "text-anchor": anchor }, shorten(DATA.times[f], 12)));
  }
  return nodes;
}

// What was counted, as bars below the distance.
function shares({ probability, of, by }) {
  const most = roundUp(Math.max(...probability)), high = CHART.end - CHART.low;
  const wide = T > 1 ? Math.min(10, ((CHART.right - CHART.left) / (T - 1)) * 0.7) : 10;
  const title = `share of ${shorten(NAMES[of], 20)} counted with ${shorten(NAMES[by], 20)}`;
  const nodes = [
    svg("text", { x: CHART.left, y: CHART.low - 8 }, title), ...axis(CHART.end, "0"), ...axis(CHART.low, percent(most)),
  ];
  probability.forEach((v, f) => {
    const height = (high * v) / most, x = chartX(f) - wide / 2, y = CHART.end - height;
    if (v > 0) nodes.push(svg("rect", { class: "bar", x, y, width: wide, height }));
  });
  return nodes;
}

// The chart as an SVG element; `element.follow()` moves its cursor to the present time.
function pairChart(pair) {
  const { series } = pair, counted = series.probability !== null;
  const foot = counted ? CHART.end : CHART.bottom;
  const met = KIND[pair.i] !== KIND[pair.j]; // two of a kind are not counted together
  const shown = met ? DATA.times.map((_, f) => chance(f, pair.i, pair.j)) : [];
  const [base, top] = bounds([...series.low, ...shown], [...series.high, ...shown]);
  const y = (v) => CHART.bottom - ((CHART.bottom - CHART.top) * (v - base)) / (top - base);
  const chart = svg("svg", { viewBox: `0 0 ${CHART.width} ${foot + 18}`, role: "img", "aria-label": describe(pair) });
  chart.append(...unseen(pair, CHART.top, CHART.bottom));
  for (const v of [base, top]) chart.append(...axis(y(v), String(Number(v.toPrecision(3)))));
  chart.append(
    svg("path", { class: "band", d: path([...points(series.high, y), ...points(series.low, y).reverse()]) + "Z" }),
    ...(met ? [svg("path", { class: "chance", d: path(points(shown, y)) })] : []),
    svg("path", { class: "curve", d: path(points(series.mean, y)) }),
  );
  if (counted) chart.append(...unseen(pair, CHART.low, CHART.end), ...shares(series));
  chart.append(...timeLabels(foot + 14));
  const line = svg("line", { class: "cursor", y1: CHART.top, y2: foot });
  const dot = svg("circle", { class: "cursor-dot", r: 3.5 });
  chart.append(line, dot);
  chart.follow = () => {
    const f = Math.min(Math.floor(state.time), T - 1), g = Math.min(f + 1, T - 1);
    const at = chartX(f) + (state.time - f) * (chartX(g) - chartX(f));
    line.setAttribute("x1", at); line.setAttribute("x2", at);
    dot.setAttribute("cx", at); dot.setAttribute("cy", y(between(series.mean)));
  };
  chart.addEventListener("click", (event) => {
    const box = chart.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * CHART.width;
    let best = 0;
    for (let f = 1; f < T; f++) if (Math.abs(chartX(f) - at) < Math.abs(chartX(best) - at)) best = f;
    setPlaying(false);
    setTime(best);
  });
  chart.follow();
  return chart;
}

function describe(pair) {
  const { mean, low, high } = pair.series, least = mean.indexOf(Math.min(...mean));
  const at = (f) => `${number(mean[f])} (${number(low[f])} to ${number(high[f])}) at ${DATA.times[f]}`;
  return `Distance of ${NAMES[pair.i]} and ${NAMES[pair.j]} with 90 % band: ` +
    `${at(0)}, ${at(T - 1)}, smallest ${at(least)}.`;
}

// The numbers of a pair at the present time, in words.
function pairNumbers({ i, j, series }) {
  const f = nearestFrame(), band = `${number(series.low[f])}–${number(series.high[f])}`;
  const parts = [`${DATA.times[f]}: distance ${number(series.mean[f])} (${band})`];
  if (KIND[i] !== KIND[j]) parts.push(`${number(lift(f, i, j))}× chance`);
  if (series.probability) parts.push(`share ${percent(series.probability[f])}`);
  return parts.join(" · ");
}
