// What was nearest to the active entity over time: a column a time, a row a rank, a ribbon for each name.

const RIBBON = { width: 330, left: 24, right: 222, names: 8, list: 240, line: 15, top: 12, row: 19, depth: 6 };

const ribbonX = (f) => RIBBON.left + (RIBBON.right - RIBBON.left) * (T > 1 ? TIME_X[f] : 0.5);
const ribbonY = (rank) => RIBBON.top + rank * RIBBON.row;

// The kind that was counted together with this one; with a single kind there is no other.
const otherKind = (i) => (KIND_NAMES.length > 1 ? 1 - KIND[i] : KIND[i]);

// The nearest at each time, null where the entity was not seen; and the names that were nearest most often.
function ribbonRanks(i) {
  const columns = DATA.times.map((_, f) => (WEIGHT[f * N + i] > 0 ? nearest(f, i, otherKind(i), RIBBON.depth) : null));
  const score = new Map();
  for (const column of columns) {
    (column || []).forEach((j, rank) => score.set(j, (score.get(j) || 0) + RIBBON.depth - rank));
  }
  const names = [...score.keys()].sort((p, q) => score.get(q) - score.get(p) || p - q).slice(0, RIBBON.names);
  return { columns, names };
}

// Times at which a name has a rank, in runs without a gap.
function runs(columns, j) {
  const found = [];
  let last = null;
  columns.forEach((column, f) => {
    const rank = column ? column.indexOf(j) : -1;
    if (rank < 0) { last = null; return; }
    if (!last) found.push((last = []));
    last.push([f, rank]);
  });
  return found;
}

function ribbon(i, columns, j, k) {
  const colour = `var(--c${k})`, parts = runs(columns, j), open = () => pinPair(i, j);
  const group = svg("g", {
    class: "ribbon", role: "button", tabindex: 0, "aria-label": `Distance of ${NAMES[i]} and ${NAMES[j]} over time`,
  });
  group.append(svg("title", {}, NAMES[j]));
  for (const part of parts) {
    const at = part.map(([f, rank]) => [ribbonX(f), ribbonY(rank)]);
    if (part.length > 1) group.append(svg("path", { d: path(at), stroke: colour }));
    for (const [x, y] of at) group.append(svg("circle", { cx: x, cy: y, r: 4, fill: colour }));
  }
  const y = RIBBON.top + k * RIBBON.line;
  group.append(svg("circle", { cx: RIBBON.list, cy: y, r: 4, fill: colour }));
  group.append(svg("text", { x: RIBBON.list + 8, y: y + 4 }, shorten(NAMES[j], 13)));
  group.addEventListener("click", open);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation(); // a button's own keys: space does not play here
    open();
  });
  return group;
}

// The chart as an SVG element; `element.follow()` moves its cursor to the present time.
function ribbonChart(i) {
  const { columns, names } = ribbonRanks(i), foot = ribbonY(RIBBON.depth - 1) + 12;
  const namesAt = (column) => (column ? column.map((j) => NAMES[j]).join(", ") : "not seen");
  const spoken = columns.map((column, f) => `${DATA.times[f]}: ${namesAt(column)}`).join("; ");
  const chart = svg("svg", {
    viewBox: `0 0 ${RIBBON.width} ${foot + 18}`, role: "group", "aria-label": `Nearest to ${NAMES[i]}. ${spoken}`,
  });
  for (let rank = 0; rank < RIBBON.depth; rank++) {
    chart.append(svg("text", { x: 2, y: ribbonY(rank) + 4 }, `${rank + 1}.`));
  }
  const line = svg("line", { class: "cursor", y1: 2, y2: foot });
  chart.append(line);
  columns.forEach((column, f) => (column || []).forEach((j, rank) => {
    if (names.includes(j)) return;
    const other = svg("circle", { class: "other", cx: ribbonX(f), cy: ribbonY(rank), r: 2.5 });
    other.append(svg("title", {}, NAMES[j]));
    chart.append(other);
  }));
  chart.append(...names.map((j, k) => ribbon(i, columns, j, k)));
  const ends = T > 1 ? [0, T - 1] : [0];
  for (const f of ends) {
    const anchor = f ? "end" : "start";
    chart.append(svg("text", { x: ribbonX(f), y: foot + 14, "text-anchor": anchor }, shorten(DATA.times[f], 12)));
  }
  chart.follow = () => {
    const f = Math.min(Math.floor(state.time), T - 1), g = Math.min(f + 1, T - 1);
    const x = ribbonX(f) + (state.time - f) * (ribbonX(g) - ribbonX(f));
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  };
  chart.follow();
  return chart;
}

let ribbonOf = -1, shownRibbon = null;
function showRibbon() {
  const i = active(), box = byId("ribbon-box");
  box.hidden = i < 0 || T < 2;
  if (box.hidden || i === ribbonOf) return;
  ribbonOf = i;
  shownRibbon = ribbonChart(i);
  byId("ribbon-title").textContent = `Nearest ${KIND_NAMES[otherKind(i)]} of ${shorten(NAMES[i], 30)} over time`;
  byId("ribbon").replaceChildren(shownRibbon);
}
listeners.push((what) => {
  if (what === "pinned" || what === "pairs") showRibbon();
  else if (what === "time" && shownRibbon) shownRibbon.follow();
});
