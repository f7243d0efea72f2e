// Neighbors of words: vectors in a byte a number, cosines worked out here. Every word found stays as a card.

const WORDS = DATA.words, N = WORDS.length, CODES = codes(DATA.vectors, Int8Array), D = CODES.length / Math.max(N, 1);
const LENGTH = Float64Array.from(WORDS, (_, i) => {
  let sum = 0;
  for (let k = i * D; k < (i + 1) * D; k++) sum += CODES[k] ** 2;
  return Math.sqrt(sum) || 1;
});
const cards = byId("neighbors"), search = byId("search"), MOST_CARDS = 6;

function cosine(i, j) {
  let sum = 0;
  for (let k = 0; k < D; k++) sum += CODES[i * D + k] * CODES[j * D + k];
  return sum / (LENGTH[i] * LENGTH[j]);
}

// [word, cosine] of the words most like a word, nearest first.
function nearest(i, count = 10) {
  const all = [];
  for (let j = 0; j < N; j++) if (j !== i) all.push([j, cosine(i, j)]);
  return all.sort((p, q) => q[1] - p[1]).slice(0, count);
}

function card(i) {
  const rows = nearest(i).map(([j, c]) => {
    const meter = element("span", { class: "meter", "aria-hidden": "true" });
    meter.style.width = `${Math.max(0, 100 * c)}%`;
    return element("li", {},
      element("button", { type: "button", class: "name plain", dir: "auto", text: WORDS[j], onclick: () => add(j) }),
      meter, element("span", { class: "number", text: c.toFixed(2) }));
  });
  return element("section", { class: "card" },
    element("h3", { dir: "auto", text: WORDS[i] }),
    element("p", { class: "note", text: `${DATA.counts[i].toLocaleString("en")} times in the text` }),
    element("ul", { class: "bars" }, ...rows));
}

// The word asked for last comes first.
function add(i) {
  cards.prepend(card(i));
  while (cards.children.length > MOST_CARDS) cards.lastChild.remove();
  say(`Nearest to ${WORDS[i]}: ${nearest(i, 5).map(([j]) => WORDS[j]).join(", ")}`);
}

const SEARCHED = WORDS.map(plainText), ORDER = WORDS.map((_, i) => i);
combobox(search, byId("found"), {
  find: (text) => matching(text, SEARCHED, ORDER),
  option: (i) => [
    element("span", { class: "name", dir: "auto", text: WORDS[i] }),
    element("span", { class: "small", text: DATA.counts[i].toLocaleString("en") }),
  ],
  accept: add,
  leave: () => search.blur(),
  nothing: "Not among the words of this page",
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  search.focus();
});
for (const i of [...DATA.first].reverse()) cards.prepend(card(i));
window.undertow = Object.freeze({ words: WORDS, nearest, cosine, add });
