// A search box with a list of matches: type, choose with the arrow keys, Enter or a click accepts.

// The indices that match a text, best first: equal, then those that begin with it, then those with a word that does,
// then those that hold it. `searched` are plain texts; `order` says which of equals comes first.
function matching(text, searched, order, most = 12) {
  const query = plainText(text.trim());
  if (!query) return [];
  const ranked = [[], [], [], []];
  for (const i of order) {
    const at = searched[i].indexOf(query);
    if (at < 0) continue;
    const inside = at > 0 && !/[^\p{L}\p{N}]/u.test(searched[i][at - 1]);
    ranked[searched[i] === query ? 0 : at === 0 ? 1 : inside ? 3 : 2].push(i);
  }
  return ranked.flat().slice(0, most);
}

// `find` gives the matches of a text, `option` the children of a match's line, `accept` takes the match that was
// chosen, `leave` is called by Escape in the empty box.
function combobox(input, list, { find, option, accept, leave, nothing }) {
  let matches = [], chosen = 0;

  function show() {
    list.hidden = !input.value.trim();
    input.setAttribute("aria-expanded", String(!list.hidden));
    const options = matches.map((match, k) => element("li", {
      id: `${list.id}-${k}`, role: "option", "aria-selected": String(k === chosen),
      onmousedown: (event) => { event.preventDefault(); take(k); },
    }, ...option(match)));
    const none = element("li", { class: "faint", role: "option", "aria-disabled": "true", text: nothing });
    list.replaceChildren(...(options.length ? options : [none]));
    if (matches.length) input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
  }
  function close() {
    input.value = "";
    matches = [];
    show();
  }
  function take(k) {
    const match = matches[k];
    if (match === undefined) return;
    close();
    accept(match);
  }

  input.addEventListener("input", () => { matches = find(input.value); chosen = 0; show(); });
  input.addEventListener("blur", () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); });
  input.addEventListener("focus", () => { if (input.value.trim()) show(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); take(chosen); }
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const by = event.key === "ArrowDown" ? 1 : matches.length - 1;
      if (matches.length) chosen = (chosen + by) % matches.length;
      show();
      byId(`${list.id}-${chosen}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (input.value) close(); else leave();
    }
  });
}
