// A text, each token colored by its surprise or its state; the chosen token's numbers stand in the panel.

const { strings: STRINGS, states: STATES, posterior: POSTERIOR, shades: SHADES } = DATA;
// Bits of surprise given the tokens before, and given all other tokens of the sentence; a model may lack them.
const BITS = { surprise: DATA.surprise, both: DATA.both };
const has = (name) => BITS[name].length > 0;
const tokens = [], unknown = new Set(DATA.unknown); // spans of the tokens in the order of the text
const panel = byId("panel"), text = byId("text");
let mode = has("surprise") ? "surprise" : "0", current = -1;

const shade = (bits) => (bits === null ? SHADES.length : SHADES.filter((step) => bits >= step).length);
const best = (layer, i) => POSTERIOR[layer][i][0][0];
const stateWords = (s) => STATES[s].words[0].slice(0, 4).map((w) => STRINGS[w]).join(" ");

// No space before marks that close and after those that open, as text is printed.
const closes = /^([.,;:!?%)\]}”’]|'s|n't|'|’s|\.\.\.)$/u, opens = /^[([{“‘$]$/u;

function write() {
  let i = 0;
  DATA.sentences.forEach((sentence, n) => {
    const line = element("span");
    sentence.forEach((w, k) => {
      const word = STRINGS[w], glued = k === 0 || closes.test(word) || opens.test(STRINGS[sentence[k - 1]]);
      if (!glued) line.append(" ");
      const at = i, span = element("span", { class: "token", tabindex: "-1", dir: "auto", text: word });
      span.dataset.i = String(at);
      tokens.push(span);
      line.append(span);
      i += 1;
    });
    text.append(element("p", {}, element("span", { class: "where", "aria-hidden": "true", text: String(n + 1) }), line));
  });
}

function paint() {
  tokens.forEach((span, i) => {
    const kinds = ["token"];
    if (unknown.has(i)) kinds.push("unknown");
    if (mode in BITS) kinds.push(`shade${shade(BITS[mode][i])}`);
    else {
      const s = best(Number(mode), i);
      if (STATES[s].color >= 0) kinds.push(`color${STATES[s].color}`);
      if (current >= 0 && s === best(Number(mode), current)) kinds.push("same");
    }
    span.className = kinds.join(" ");
  });
}

// The words of the text that a color stands for, most frequent first.
function wordsOf(color, layer) {
  const count = new Map();
  tokens.forEach((span, i) => {
    if (STATES[best(layer, i)].color === color) count.set(span.textContent, (count.get(span.textContent) ?? 0) + 1);
  });
  return [...count].sort((p, q) => q[1] - p[1]).slice(0, 5).map(([word]) => word);
}

function explain() {
  const items = [];
  if (mode in BITS) {
    const names = SHADES.map((step, k) => (k ? `${SHADES[k - 1]}–${step}` : `under ${step}`));
    [...names, `${SHADES[SHADES.length - 1]} bits or more`].forEach((name, k) =>
      items.push(element("li", {}, element("span", { class: `swatch shade${k}`, text: name }))));
  } else {
    const what = DATA.grouped ? "States that are followed by similar ones share a color:" : "The most frequent states:";
    items.push(element("li", { class: "faint", text: what }));
    for (let color = 0; color < 8; color++) {
      const words = wordsOf(color, Number(mode));
      if (!words.length) continue;
      items.push(element("li", {}, element("span", {
        class: `swatch color${color}`, dir: "auto", text: shorten(words.join(" "), 44),
      })));
    }
  }
  byId("legend").replaceChildren(...items);
}

function rows(labels, numbers, show) {
  const most = Math.max(...numbers, 1e-12);
  return element("ul", {}, ...labels.map((label, k) => {
    const meter = element("span", { class: "meter", "aria-hidden": "true" });
    meter.style.width = `${Math.max(0, (100 * numbers[k]) / most)}%`;
    return element("li", { class: "row" }, element("span", { dir: "auto", text: label }), meter,
      element("span", { class: "number", text: show(numbers[k]) }));
  }));
}
const words = ([list, numbers], show = percent) => rows(list.map((w) => STRINGS[w]), numbers, show);

function surprising(bits, given) {
  if (bits === null) return [element("p", { class: "big", text: "impossible under the model" })];
  const odds = 2 ** bits;
  const chance = odds < 10 ? `probability ${percent(1 / odds)}` : `1 in ${Math.round(odds).toLocaleString("en")}`;
  return [element("p", { class: "big", text: `${bits.toFixed(1)} bits` }),
    element("p", { class: "faint", text: `of surprise ${given}: ${chance}` })];
}

function describe(i) {
  const parts = [element("h2", { dir: "auto", text: tokens[i].textContent })];
  if (unknown.has(i)) parts.push(element("p", { class: "faint", text: "Not among the words of the model." }));
  if (has("surprise")) parts.push(...surprising(BITS.surprise[i], "given the tokens before"));
  if (has("both")) parts.push(...surprising(BITS.both[i], "given both sides"));
  POSTERIOR.forEach((layer, m) => {
    const [states, probabilities] = layer[i];
    parts.push(element("h3", { text: POSTERIOR.length > 1 ? `States of layer ${m + 1}` : "Its states, and their words" }),
      rows(states.map((s) => `${STATES[s].name}: ${stateWords(s)}`), probabilities, percent));
  });
  if (DATA.near.length) parts.push(element("h3", { text: "Nearest words, here in context" }),
    words(DATA.near[i], (c) => c.toFixed(2)));
  for (const [list, given] of [[DATA.expected, "given the tokens before"], [DATA.between, "given both sides"]])
    if (list[i]?.[0].length) parts.push(element("h3", { text: `Expected here, ${given}` }), words(list[i]));
  return parts;
}

function choose(i, focus) {
  if (i < 0 || i >= tokens.length) return;
  if (current >= 0) { tokens[current].tabIndex = -1; tokens[current].removeAttribute("aria-current"); }
  current = i;
  tokens[i].tabIndex = 0; // one stop of the tab key; the arrow keys do the rest
  tokens[i].setAttribute("aria-current", "true");
  if (focus) tokens[i].focus();
  panel.replaceChildren(...describe(i));
  if (!(mode in BITS)) paint();
}

function setMode(name) {
  mode = name;
  paint();
  explain();
}

function fillModes() {
  const layers = POSTERIOR.map((_, m) => [String(m), POSTERIOR.length > 1 ? `States of layer ${m + 1}` : "States"]);
  const bits = [["surprise", "Surprise, left to right"], ["both", "Surprise, given both sides"]].filter(([m]) => has(m));
  const modes = [...bits, ...layers];
  byId("modes").append(element("span", { class: "faint", text: "Color by" }), ...modes.map(([value, name]) => {
    const input = element("input", { type: "radio", name: "mode", value, onchange: () => setMode(value) });
    input.checked = value === mode;
    return element("label", {}, input, ` ${name}`);
  }));
}

text.addEventListener("click", (event) => {
  const span = event.target.closest(".token");
  if (span) choose(Number(span.dataset.i), true);
});
text.addEventListener("focusin", (event) => {
  const i = Number(event.target.dataset.i);
  if (i !== current) choose(i, false);
});
const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
text.addEventListener("keydown", (event) => {
  const to = { Home: 0, End: tokens.length - 1 }[event.key] ?? current + STEPS[event.key];
  if (Number.isNaN(to)) return;
  event.preventDefault();
  choose(Math.min(Math.max(to, 0), tokens.length - 1), true);
});

write();
fillModes();
setMode(mode);
// begin with the most surprising of the first tokens
const first = BITS.surprise.slice(0, 60), start = first.indexOf(Math.max(...first.map((s) => s ?? 0)));
choose(Math.max(start, 0), false);
window.undertow = Object.freeze({ data: DATA, choose, setMode, get current() { return current; } });
