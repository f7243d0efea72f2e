// The states of a model: a list, the words of the one chosen, what comes before and after it, and a search by word.

const { strings: STRINGS, states: STATES, lookup: LOOKUP, groups: GROUPS, what: WHAT } = DATA;
const detail = byId("detail"), list = byId("states"), search = byId("search");
const ALMOST_ALL = 0.7; // a state with one word of this share is told by what follows it

// A state in a few words: its own, and for a state of one word also those of the states that follow.
function few(i, n) {
  const { words: [words, probabilities], after: [next] } = STATES[i];
  const own = words.slice(0, n).map((w) => STRINGS[w]).join(" ");
  if (!(probabilities[0] > ALMOST_ALL) || !next.length) return own;
  const following = [...new Set(next.map((j) => STATES[j].words[0][0]))].filter((w) => w !== undefined);
  return `${STRINGS[words[0]]} → ${following.slice(0, n - 1).map((w) => STRINGS[w]).join(" ")}`;
}
const nameOf = (i) => `${WHAT.charAt(0).toUpperCase()}${WHAT.slice(1)} ${STATES[i].name}`;
let chosen = -1;

const listed = new Map(); // state -> its button in the list

function fillList() {
  let group = -1;
  for (let i = 0; i < DATA.listed; i++) {
    if (GROUPS.length && DATA.group[i] !== group) {
      group = DATA.group[i];
      list.append(element("li", {}, element("h3", { text: GROUPS[group] })));
    }
    const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => choose(i) },
      element("span", { class: "share", text: percent(STATES[i].share) }),
      element("span", { class: "name", dir: "auto", text: few(i, 8) || nameOf(i) }));
    listed.set(i, button);
    list.append(element("li", {}, button));
  }
}

// Words or states with bars in proportion to their probabilities.
function bars(rows) {
  const most = Math.max(...rows.map((row) => row.p), 1e-12);
  return element("ul", { class: "bars" }, ...rows.map(({ label, p, act }) => {
    const meter = element("span", { class: "meter", "aria-hidden": "true" });
    meter.style.width = `${(100 * p) / most}%`;
    const word = act ? element("button", { type: "button", class: "name plain", dir: "auto", text: label, onclick: act })
      : element("span", { class: "word", dir: "auto", text: label });
    return element("li", {}, word, meter, element("span", { class: "number", text: percent(p) }));
  }));
}

function side([states, probabilities]) {
  return element("ol", { class: "side" }, ...states.map((i, k) => element("li", {},
    element("button", { type: "button", title: `${nameOf(i)}: ${few(i, 10)}`, onclick: () => choose(i) },
      element("span", { class: "two-lines", dir: "auto", text: few(i, 4) }),
      element("span", { class: "number", text: percent(probabilities[k]) })))));
}

// Curves from the rows of one side to the middle; as wide as the step is probable.
function curves([states, probabilities], toTheRight) {
  const n = Math.max(states.length, 1), drawing = svg("svg", {
    viewBox: `0 0 100 ${100 * n}`, preserveAspectRatio: "none", "aria-hidden": "true",
  });
  states.forEach((_, k) => {
    const y = 100 * k + 50, middle = 50 * n, [from, to] = toTheRight ? [middle, y] : [y, middle];
    const width = Math.max(1, 14 * Math.sqrt(probabilities[k]));
    drawing.append(svg("path", { d: `M0 ${from}C50 ${from} 50 ${to} 100 ${to}`, "stroke-width": width.toFixed(1) }));
  });
  return drawing;
}

function flow(i) {
  const { before, after } = STATES[i];
  if (!before[0].length && !after[0].length) return [];
  return [
    element("h4", { text: "What comes before and after" }),
    element("div", { class: "flow" }, side(before), curves(before, false),
      element("div", { class: "middle", dir: "auto", text: few(i, 4) }), curves(after, true), side(after)),
  ];
}

function stateParts(i) {
  const { words: [words, probabilities], share } = STATES[i];
  const group = GROUPS.length ? `${GROUPS[DATA.group[i]]}. ` : "";
  return [
    element("h3", { text: nameOf(i) }),
    element("p", { class: "note", text: `${group}${percent(share)} of all tokens. Its most typical words, with their ` +
      `share of its tokens:` }),
    bars(words.map((w, k) => ({ label: STRINGS[w], p: probabilities[k] }))),
    ...flow(i),
  ];
}

// Scrolls the list, and not the page.
function keepInView(button) {
  if (!button) return;
  const at = button.getBoundingClientRect(), box = list.getBoundingClientRect();
  if (at.top < box.top) list.scrollTop -= box.top - at.top;
  else if (at.bottom > box.bottom) list.scrollTop += at.bottom - box.bottom;
}

function choose(i, before = []) {
  listed.get(chosen)?.setAttribute("aria-pressed", "false");
  chosen = i;
  listed.get(i)?.setAttribute("aria-pressed", "true");
  keepInView(listed.get(i));
  detail.replaceChildren(...before, ...stateParts(i));
}

function chooseWord(k) {
  const [w, states, probabilities] = LOOKUP[k];
  if (!states.length) return;
  choose(states[0], [
    element("h3", {}, `The ${WHAT}s of “`, element("bdi", { text: STRINGS[w] }), "”"),
    element("p", { class: "note", text: `How probable each ${WHAT} is given the word alone, without its context.` }),
    bars(states.map((i, n) => ({ label: `${STATES[i].name}: ${few(i, 4)}`, p: probabilities[n], act: () => choose(i) }))),
    element("hr"),
  ]);
  say(`${STRINGS[w]}: ${states.length} ${WHAT}s`);
}

function fillSteps() {
  byId("steps")?.append(...DATA.steps.map(([p, i, j]) => {
    const end = (s) => element("button", {
      type: "button", dir: "auto", text: few(s, 4), title: `${nameOf(s)}: ${few(s, 10)}`,
      onclick: () => { choose(s); detail.scrollIntoView({ block: "nearest" }); },
    });
    return element("li", {}, element("span", { class: "share", text: percent(p) }), end(i),
      element("span", { class: "arrow", "aria-label": "to", role: "img", text: "→" }), end(j));
  }));
}

fillList();
fillSteps();
const SEARCHED = LOOKUP.map(([w]) => plainText(STRINGS[w])), ORDER = LOOKUP.map((_, k) => k);
combobox(search, byId("found"), {
  find: (text) => matching(text, SEARCHED, ORDER),
  option: (k) => [
    element("span", { class: "name", dir: "auto", text: STRINGS[LOOKUP[k][0]] }),
    element("span", { class: "small name", dir: "auto", text: LOOKUP[k][1].length ? few(LOOKUP[k][1][0], 4) : "" }),
  ],
  accept: chooseWord,
  leave: () => list.querySelector("button")?.focus(),
  nothing: "Not among the words of this page",
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  search.focus();
});
// the arrow keys walk through the list
list.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const buttons = [...list.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
  buttons[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
});
// begin with a state of several words, which shows most
if (STATES.length) choose(Math.max(STATES.findIndex(({ words: [, p] }) => p.length > 5 && p[0] < 0.3), 0));
window.undertow = Object.freeze({ data: DATA, get chosen() { return chosen; }, choose, chooseWord });
