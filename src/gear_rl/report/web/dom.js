// Building the page, and writing numbers. Nothing here or elsewhere makes markup from a string: what a model wrote
// reaches the page as text nodes only.

const build = (namespace) => (tag, props = {}, ...children) => {
  const node = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};
const el = build(null);
const svg = build("http://www.w3.org/2000/svg");

const byId = (id) => document.getElementById(id);

// The record keeps six digits; float32 holds them, and this gives back exactly those.
const exact = (x) => {
  const digits = Number(x.toPrecision(6));
  return minus(digits !== 0 && Math.abs(digits) < 1e-4 ? digits.toExponential() : String(digits));
};
const minus = (text) => text.replace(/-/g, "−");
const short = (x) => {
  if (x === null) return "–"; // a reward that could not be scored
  const size = Math.abs(x);
  if (size !== 0 && (size < 0.001 || size >= 100000)) return minus(x.toExponential(1));
  return minus(String(Number(x.toPrecision(3))));
};
const signed = (x) => (x > 0 ? "+" : "") + short(x);
const percent = (share) => {
  const p = 100 * share;
  return `${p === 0 ? 0 : p < 0.1 ? "<0.1" : p < 9.95 ? p.toFixed(1) : p.toFixed(0)} %`;
};
const count = (n) => n.toLocaleString("en").replace(/,/g, " ");
const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// A control that is one of several: buttons in a row, the chosen one pressed.
function choice(label, options, chosen, pick) {
  const buttons = options.map(({ key, name, off, title }) =>
    el("button", { type: "button", "data-key": key, "aria-pressed": String(key === chosen), disabled: !!off, title,
      onclick: () => pick(key) }, name));
  const node = el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
  node.choose = (key) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.key === key)));
  return node;
}

// Goes to a part of the page. Cards fill when they come near, and those above push it away: so again, until it stays or the
// reader scrolls.
async function goTo(node, go = () => node.scrollIntoView({ behavior: "instant" })) {
  const near = (card) => card.fill && card.getBoundingClientRect().top < innerHeight + NEAR && card.getBoundingClientRect().bottom > -NEAR;
  let left = false;
  for (const kind of ["wheel", "pointerdown", "keydown"]) addEventListener(kind, () => { left = true; }, { once: true, passive: true });
  go();
  for (let frames = 0, calm = 0, at = null; frames < 240 && calm < 5 && !left && node.isConnected; frames++) {
    await new Promise(requestAnimationFrame);
    const { top } = node.getBoundingClientRect(), filling = [...document.querySelectorAll(".card:not([data-filled])")].some(near);
    if (at !== null && Math.abs(top - at) > 1) go();
    calm = top === at && !filling ? calm + 1 : 0;
    at = node.getBoundingClientRect().top;
  }
}
