// The search box of the map: Enter centres and pins.

const SEARCHED = NAMES.map(plainText);
const search = byId("search");

combobox(search, byId("found"), {
  find: (text) => matching(text, SEARCHED, labelOrder(nearestFrame())),
  option: (i) => [
    dot(i), element("span", { class: "name", dir: "auto", text: NAMES[i] }),
    element("span", { class: "small", text: KIND_NAMES[KIND[i]] }),
  ],
  accept: (i) => {
    state.kinds[KIND[i]] = true; // what was asked for must be seen
    state.marked = i;
    if (state.pairing && active() !== i) pinPair(active(), i);
    else pin(i);
    changed("kinds");
    centre(i);
  },
  leave: () => canvas.focus(),
  nothing: "No such name",
});
