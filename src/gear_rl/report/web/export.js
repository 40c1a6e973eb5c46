// What leaves the page as a file: a rollout as Markdown, a view as SVG or PNG. The SVG is drawn from where the browser has put
// things, so there is one layout and not two; text stays text.

function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Model output in a fence that it cannot close.
function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}text\n${text.replace(/\n+$/, "")}\n${fence}\n`;
}

const TOP_TOKENS = 10;
async function asMarkdown(group, i, run) {
  const facts = group.rollouts[i][run], rollout = await rolloutOf(facts);
  const [prompt, hinted] = await promptsOf(facts);
  const inline = (text) => JSON.stringify(text.slice(0, LONG_TOKEN)).replace(/[\\`*_{}[\]()<>#+.!|&~-]/g, "\\$&");
  const lines = [`# Step ${group.step}, group ${group.group}, rollout ${i + 1}\n`,
    `${inline(index.runs[run].name)} on ${inline(index.runs[run].task)}. Reward ${short(facts.reward)}` +
    `${facts.advantage === null ? "" : `, advantage ${signed(facts.advantage)}`}` +
    `${facts.success === null ? "" : facts.success ? ", true success" : ", no true success"}.\n`,
    "## Prompt\n", fenced(prompt), ...(hinted === null ? [] : ["## What the teacher saw\n", fenced(hinted)])];
  for (const { turn, start, end } of stretches(rollout, rollout.n))
    lines.push(turn ? `## Turn ${turn} (credit ${signed(creditOf(rollout, start, end))})\n` : "### Reply (not sampled)\n", fenced(textOf(rollout, start, end, run)));
  const strongest = [...rollout.advantages.keys()].filter((k) => rollout.mask[k])
    .sort((a, b) => Math.abs(rollout.advantages[b]) - Math.abs(rollout.advantages[a]) || a - b).slice(0, TOP_TOKENS);
  lines.push("## Strongest credit\n", "| token | turn | text | advantage | weight |\n|---|---|---|---|---|\n" +
    strongest.map((k) => `| ${k} | ${rollout.turns[k]} | ${inline(rollout.texts[k])} | ${exact(rollout.advantages[k])} | ${exact(rollout.weights[k])} |\n`).join(""));
  return lines.join("\n");
}

// ------------------------------------------------------------------------------------------------ pictures
const canvas = document.createElement("canvas").getContext("2d");
const opaque = (colour) => colour && colour !== "transparent" && !/^rgba\(.*, 0\)$/.test(colour);

function asSvg(root) {
  const frame = root.getBoundingClientRect(), paper = getComputedStyle(document.body).backgroundColor;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const pad = 16, width = Math.ceil(frame.width + 2 * pad), height = Math.ceil(frame.height + 2 * pad);
  const hatch = (tone) => svg("pattern", { id: `hatch-${tone}`, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 4, height: 4, fill: ink(tone), "fill-opacity": 0.22 }), svg("rect", { width: 2, height: 4, fill: ink(tone) }));
  const out = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    svg("defs", {}, hatch("--minus"), hatch("--soft")), svg("rect", { width, height, fill: paper }));
  const at = (rect) => ({ x: rect.left - frame.left + pad, y: rect.top - frame.top + pad });
  const box = (x, y, w, h, fill, more = {}) => w > 0 && h > 0 && out.append(svg("rect", { x: x.toFixed(2), y: y.toFixed(2), width: w.toFixed(2), height: h.toFixed(2), fill, ...more }));

  const token = (node) => {
    if (node.classList.contains("masked")) return;
    const tones = { plus: "--plus", minus: "--minus", more: "--more", less: "--soft" };
    const tone = Object.keys(tones).find((name) => node.classList.contains(name));
    const v = Number(node.style.getPropertyValue("--v")) || 0, adaptive = node.classList.contains("adaptive");
    const inset = node.classList.contains("first") ? 3 : 0;
    for (const [k, rect] of [...node.getClientRects()].entries()) {
      const { x, y } = at(rect), thick = adaptive ? 2 : 1;
      if (tone && v > 0) {
        box(x, y, rect.width, rect.height - 15, ink(tones[tone]), { "fill-opacity": (0.26 * v).toFixed(3) });
        const fill = tone === "minus" || tone === "less" ? `url(#hatch-${tones[tone]})` : ink(tones[tone]);
        box(x, y + rect.height - 4 - 10 * v, rect.width, 10 * v, fill);
      }
      if (!node.closest(".ramp")) box(x + inset, y + rect.height - thick, rect.width - inset, thick, ink(adaptive ? "--ink" : "--hair"));
      if (node.classList.contains("onset") && k === 0) {
        box(x, y - 3, 2, rect.height + 3, ink("--ink"));
        out.append(svg("path", { d: `M${x} ${y - 3}l8 3.5l-8 3.5z`, fill: ink("--ink") }));
      }
    }
  };

  const lines = (node) => { // a text node, cut where the browser broke it
    const range = document.createRange(), found = [];
    range.selectNodeContents(node);
    if (range.getClientRects().length <= 1) return [[node.data, range.getBoundingClientRect()]];
    for (let k = 0; k < node.data.length; k++) {
      range.setStart(node, k);
      range.setEnd(node, k + 1);
      const rect = range.getBoundingClientRect(), last = found[found.length - 1];
      if (!rect.width) continue;
      if (last && Math.abs(last[1].top - rect.top) < 2) {
        last[0] += node.data[k];
        const left = Math.min(last[1].left, rect.left), right = Math.max(last[1].left + last[1].width, rect.right); // either way round
        last[1] = { left, top: last[1].top, width: right - left, height: rect.height };
      } else found.push([node.data[k], rect]);
    }
    return found;
  };
  const words = (node) => {
    const style = getComputedStyle(node.parentElement);
    canvas.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const ascent = canvas.measureText("x").fontBoundingBoxAscent, descent = canvas.measureText("x").fontBoundingBoxDescent;
    for (const [text, rect] of lines(node)) {
      if (!text.trim() || !rect.width) continue;
      const { x, y } = at(rect), shown = text.replace(/\s/g, " ");
      out.append(svg("text", { x: x.toFixed(2), y: (y + (rect.height - ascent - descent) / 2 + ascent).toFixed(2), fill: style.color, "font-family": style.fontFamily,
        "font-size": style.fontSize, "font-weight": style.fontWeight, "font-style": style.fontStyle, textLength: rect.width.toFixed(2), lengthAdjust: "spacingAndGlyphs", "xml:space": "preserve" }, shown));
    }
  };
  const picture = (node) => {
    const copy = node.cloneNode(true), rect = node.getBoundingClientRect(), { x, y } = at(rect);
    [...node.querySelectorAll("*")].forEach((part, k) => {
      const style = getComputedStyle(part), twin = copy.querySelectorAll("*")[k];
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "vector-effect"]) twin.setAttribute(name, style.getPropertyValue(name));
    });
    for (const [name, value] of Object.entries({ x, y, width: rect.width, height: rect.height })) copy.setAttribute(name, value.toFixed(2));
    out.append(copy);
  };
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return words(node);
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches(".card-foot, button, details")) return;
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return;
    if (node.localName === "svg") return picture(node);
    if (node.matches(".t")) token(node);
    else for (const rect of node.getClientRects()) {
      const { x, y } = at(rect), bottom = parseFloat(style.borderBottomWidth);
      if (opaque(style.backgroundColor)) box(x, y, rect.width, rect.height, style.backgroundColor, { rx: parseFloat(style.borderRadius) || 0 });
      if (bottom && opaque(style.borderBottomColor)) box(x, y + rect.height - bottom, rect.width, bottom, style.borderBottomColor);
    }
    node.childNodes.forEach(walk);
  };
  walk(root);
  return new XMLSerializer().serializeToString(out);
}

// The open group as `gear report --format png` would show it, whatever the window's size.
async function groupPicture(group) {
  const main = still(group);
  main.classList.add("offstage");
  document.body.append(main);
  try {
    await Promise.all([...main.querySelectorAll(".card")].map((c) => c.fill?.()));
    return asSvg(main);
  } finally {
    main.remove();
  }
}

function savePng(name, text) {
  const picture = new Image();
  picture.onload = () => {
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [2 * picture.width, 2 * picture.height];
    sheet.getContext("2d").drawImage(picture, 0, 0, sheet.width, sheet.height);
    sheet.toBlob((blob) => download(name, "image/png", blob), "image/png");
  };
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
