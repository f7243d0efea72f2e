// The column beside the map: what is pinned, what is near it, and the charts of pairs.

const dot = (i) => element("span", { class: `dot kind${KIND[i] % 2}`, "aria-hidden": "true" });
const button = (text, label, act, kind = "plain") =>
  element("button", { type: "button", class: kind, "aria-label": label, text, onclick: act });
const chip = (text, title, act) =>
  element("li", {}, element("button", { type: "button", dir: "auto", text, title, onclick: act }));

function centre(i) {
  interpolate(state.time, now);
  flyTo(now.x[i], now.y[i], Math.max(camera.scale, home.scale * 1.8));
  redraw();
}

function showPinned() {
  const box = byId("pinned-box"), had = document.activeElement && box.contains(document.activeElement);
  box.hidden = !state.pinned.length;
  byId("pinned").replaceChildren(...[...state.pinned].reverse().map(pinnedRow));
  if (had) (byId("pinned").querySelector("button") || byId("search")).focus(); // the button pressed is gone
  const hint = byId("hint");
  if (state.pairing) hint.textContent = "Now click the other dot, choose a name below, or search for it (Esc leaves).";
  else if (state.pinned.length) hint.textContent = "";
  else {
    hint.textContent = "Click a dot, or search for a name, to pin it: its trail, its uncertainty and its nearest " +
      "neighbors appear.";
  }
  hint.hidden = hint.textContent === "";
}

function pinnedRow(i) {
  const row = element("li", {}, dot(i), element("button", {
    type: "button", class: "name", dir: "auto", title: NAMES[i], text: NAMES[i], onclick: () => centre(i),
  }));
  if (i === active()) {
    const text = state.pairing ? "choose the other…" : "distance to…";
    row.append(button(text, `Distance of ${NAMES[i]} to another`, () => setPairing(!state.pairing)));
  }
  row.append(button("✕", `Let ${NAMES[i]} go`, () => unpin(i)));
  return row;
}

function showNear() {
  const i = active(), f = nearestFrame();
  byId("near-box").hidden = i < 0;
  if (i < 0) return;
  byId("near-title").textContent = `Nearest to ${shorten(NAMES[i], 40)} in ${DATA.times[f]}`;
  // the other kind first: it is the one that was counted together with this
  const kinds = KIND_NAMES.map((_, kind) => kind).sort((p, q) => (p === KIND[i]) - (q === KIND[i]));
  byId("near").replaceChildren(...kinds.flatMap((kind) => {
    const found = nearest(f, i, kind, 7);
    if (!found.length) return [];
    const chips = found.map((j) =>
      chip(NAMES[j], `Distance of ${NAMES[i]} and ${NAMES[j]} over time`, () => pinPair(i, j)));
    return [element("h3", { text: KIND_NAMES[kind] }), element("ul", { class: "chips" }, ...chips)];
  }));
}

const charts = new Map(); // pair -> {card, chart, numbers}
function showPairs() {
  byId("pairs-box").hidden = !state.pairs.length;
  for (const pair of charts.keys()) if (!state.pairs.includes(pair)) charts.delete(pair);
  byId("pairs").replaceChildren(...state.pairs.map((pair) => {
    if (!charts.has(pair)) charts.set(pair, pairCard(pair));
    return charts.get(pair).card;
  }));
}

function pairCard(pair) {
  const chart = pairChart(pair), numbers = element("p", { text: pairNumbers(pair) });
  const name = (i) => element("span", { class: "name", dir: "auto", title: NAMES[i], text: NAMES[i] });
  const away = button("✕", `Let the pair ${NAMES[pair.i]} and ${NAMES[pair.j]} go`, () => dropPair(pair));
  const card = element("article", { class: "card" },
    element("h3", {}, name(pair.i), " – ", name(pair.j), away), numbers, chart);
  if (!pair.series.exact) {
    card.append(element("p", { text: "Approximate band (see Help); the counts of this pair are not in this file." }));
  }
  return { card, chart, numbers };
}

function showSuggested() {
  byId("suggested-box").hidden = !DATA.pairs.length;
  byId("suggested").replaceChildren(...DATA.pairs.map(({ i, j }) =>
    chip(`${shorten(NAMES[i], 40)} – ${shorten(NAMES[j], 40)}`, `${NAMES[i]} – ${NAMES[j]}`, () => pinPair(i, j))));
}

let nearFrame = -1;
listeners.push((what) => {
  if (what === "pinned" || what === "pairs" || what === "pairing") {
    showPinned();
    showNear();
    showPairs();
    canvas.classList.toggle("pairing", state.pairing);
    if (what === "pairs" && state.pairs.length) say(describe(state.pairs[0]));
    else if (what === "pinned" && active() >= 0) say(`${NAMES[active()]} is pinned.`);
  } else if (what === "time") {
    for (const { chart } of charts.values()) chart.follow();
    if (nearestFrame() === nearFrame) return;
    nearFrame = nearestFrame();
    charts.forEach(({ numbers }, pair) => { numbers.textContent = pairNumbers(pair); });
    showNear();
  }
});
