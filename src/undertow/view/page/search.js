// The search box: type, choose with the arrow keys, Enter centres and pins.

const plainText = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const SEARCHED = NAMES.map(plainText);
const search = byId("search"), found = byId("found");
let matches = [], chosenMatch = 0;

// Names that begin with the text, then those with a word that does, then those that hold it; frequent ones first.
function lookFor(text) {
  const query = plainText(text.trim());
  if (!query) return [];
  const order = labelOrder(nearestFrame()), ranked = [[], [], []];
  for (const i of order) {
    const at = SEARCHED[i].indexOf(query);
    if (at < 0) continue;
    ranked[at === 0 ? 0 : /[^\p{L}\p{N}]/u.test(SEARCHED[i][at - 1]) ? 1 : 2].push(i);
  }
  const exact = ranked[0].filter((i) => SEARCHED[i] === query);
  return [...exact, ...ranked[0].filter((i) => SEARCHED[i] !== query), ...ranked[1], ...ranked[2]].slice(0, 12);
}

function showFound() {
  found.hidden = !search.value.trim();
  search.setAttribute("aria-expanded", String(!found.hidden));
  const options = matches.map((i, k) => element("li", {
    id: `found-${k}`, role: "option", "aria-selected": String(k === chosenMatch),
    onmousedown: (event) => { event.preventDefault(); accept(k); },
  }, dot(i), element("span", { class: "name", dir: "auto", text: NAMES[i] }),
  element("span", { class: "small", text: KIND_NAMES[KIND[i]] })));
  const nothing = element("li", { class: "faint", role: "option", "aria-disabled": "true", text: "No such name" });
  found.replaceChildren(...(options.length ? options : [nothing]));
  if (matches.length) search.setAttribute("aria-activedescendant", `found-${chosenMatch}`);
  else search.removeAttribute("aria-activedescendant");
}

function accept(k) {
  const i = matches[k];
  if (i === undefined) return;
  closeSearch();
  state.kinds[KIND[i]] = true; // what was asked for must be seen
  state.marked = i;
  if (state.pairing && active() !== i) pinPair(active(), i);
  else pin(i);
  changed("kinds");
  centre(i);
}

function closeSearch() {
  search.value = "";
  matches = [];
  showFound();
}

search.addEventListener("input", () => { matches = lookFor(search.value); chosenMatch = 0; showFound(); });
search.addEventListener("blur", () => { found.hidden = true; search.setAttribute("aria-expanded", "false"); });
search.addEventListener("focus", () => { if (search.value.trim()) showFound(); });
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); accept(chosenMatch); }
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const by = event.key === "ArrowDown" ? 1 : matches.length - 1;
    if (matches.length) chosenMatch = (chosenMatch + by) % matches.length;
    showFound();
    byId(`found-${chosenMatch}`)?.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Escape") {
    event.preventDefault();
    if (search.value) closeSearch(); else canvas.focus();
  }
});
