// Small tools of every page: find, make and describe elements, and read packed numbers.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

const say = (text) => { byId("live").textContent = text; };
const percent = (v) => (v > 0 && v < 1e-4 ? "< 0.01%" : `${Number((100 * v).toPrecision(2))}%`);

// Names are text that may hold anything: shortened by whole characters for the eye, whole where there is room.
const shorten = (text, most) => {
  if (text.length <= most) return text;
  const characters = Array.from(text);
  return characters.length <= most ? text : characters.slice(0, most - 1).join("") + "…";
};

// Without accents and in lower case, for searching.
const plainText = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

// Numbers packed as base64 by document.py.
function codes(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let b = 0; b < raw.length; b++) bytes[b] = raw.charCodeAt(b);
  return new Type(bytes.buffer);
}
