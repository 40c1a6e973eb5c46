// One rollout: its outcome, its minimap, and its tokens, turn by turn. Filled when it comes into sight.

const TOKENS_AT_FIRST = 4000;
const NEAR = 400; // pixels from sight, in which cards are filled
const SHORT_REPLY = 90; // characters; a tool's reply of this length stays on the line of the turn it answers

function outcome(facts) {
  const success = facts.success === null ? null
    : el("span", { class: facts.success ? "yes" : "no" }, el("span", { "aria-hidden": "true" }, facts.success ? "✓ " : "✗ "), facts.success ? "true success" : facts.side > 0 ? "lucky: no true success" : "no success");
  return el("div", { class: "outcome" }, mark(facts), el("b", {}, `reward ${short(facts.reward)}`),
    facts.advantage !== null && el("span", { title: "the advantage of the whole rollout, before a method spreads it" }, `A ${signed(facts.advantage)}`),
    success, el("span", { class: "muted" }, `${plural(facts.actions, "sampled token")}, ${plural(facts.turns, "turn")}`,
      facts.onsets > 0 && `, ${plural(facts.onsets, "onset")}`));
}

// Unbroken runs of tokens of one turn, or of masked tokens.
function stretches(rollout, end) {
  const found = [];
  for (let i = 0; i < end; i++) {
    const last = found[found.length - 1];
    const turn = rollout.mask[i] ? rollout.turns[i] : 0;
    if (last && last.turn === turn) last.end = i + 1;
    else found.push({ turn, start: i, end: i + 1 });
  }
  return found;
}

function tokenNode(rollout, i, adaptive) {
  const node = el("span", { class: "t", "data-i": i }, shortened(rollout.texts[i]));
  if (!rollout.mask[i]) {
    node.classList.add("masked");
    return node;
  }
  if (adaptive.has(rollout.segments[i])) node.classList.add("adaptive");
  if (i === 0 || !rollout.mask[i - 1] || rollout.segments[i] !== rollout.segments[i - 1]) node.classList.add("first");
  if (rollout.onsets[i]) node.classList.add("onset");
  return node;
}

function fillTokens(box, rollout, gaps, end, measured = []) {
  const adaptive = new Set();
  for (let i = 0; i < rollout.n; i++) if (rollout.onsets[i]) adaptive.add(rollout.segments[i]);
  const rows = [];
  for (const { turn, start, end: stop } of stretches(rollout, end)) {
    const nodes = [];
    for (let i = start; i < stop; i++) {
      nodes.push(tokenNode(rollout, i, adaptive));
      if (gaps) nodes.push(document.createElement("wbr"));
    }
    if (turn) {
      const known = measured.find((one) => one.turn === turn);
      rows.push(el("div", { class: "turn" }, el("span", { class: "turn-number", title: `turn ${turn}` }, String(turn)),
        el("div", { class: "said" }, nodes, known && rollout.turns[stop] !== turn && measuredBadge(known))));
      continue;
    }
    const length = rollout.texts.slice(start, stop).reduce((sum, text) => sum + text.length, 0);
    const lines = rollout.texts.slice(start, stop).some((text) => text.trim().includes("\n"));
    const inline = length <= SHORT_REPLY && !lines && rows.length > 0;
    const reply = el(inline ? "span" : "div", { class: inline ? "tool inline" : "tool", title: "not sampled: the environment's words, or the template's" }, nodes);
    if (inline) rows[rows.length - 1].lastChild.append(reply);
    else rows.push(el("div", { class: "turn" }, el("span", { class: "turn-number muted" }, "tool"), el("div", { class: "said" }, reply)));
  }
  box.replaceChildren(...rows);
  if (end < rollout.n)
    box.append(el("button", { type: "button", class: "quiet", onclick: () => {
      fillTokens(box, rollout, gaps, rollout.n, measured);
      paint(box, rollout);
    } }, `show the other ${plural(rollout.n - end, "token")}`));
}

// Colours the tokens that are there by the chosen channel. Sizes go in as a variable, so the style draws them.
function paint(box, rollout) {
  const channel = channelOf(state.colour);
  const values = channel.values(rollout);
  for (const node of box.querySelectorAll(".t:not(.masked)")) {
    const v = values ? values[node.dataset.i] : NaN;
    const { size, tone } = Number.isNaN(v) ? { size: 0, tone: "none" } : channel.level(v);
    node.classList.remove("plus", "minus", "more", "less");
    node.classList.add(tone);
    node.style.setProperty("--v", size.toFixed(3));
  }
}

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    inSight.unobserve(entry.target);
    entry.target.fill();
  }
}, { rootMargin: `${NEAR}px` });

function card(facts, run, aligned) {
  const box = el("div", { class: index.runs[run].gaps ? "tokens gaps" : "tokens", role: "group",
    "aria-label": `${index.runs[run].name}: tokens of a rollout with reward ${short(facts.reward)}` });
  const map = el("div", { class: "map" });
  const missing = el("p", { class: "missing" });
  const node = el("article", { class: "card", "data-run": run, "data-aligned": aligned }, outcome(facts), map, missing, box);
  node.measured = facts.measured ?? [];
  // As tall as it will be, roughly: or every card of a long group would be in sight at once.
  box.style.minHeight = `${Math.min(2000, 40 + facts.actions * 1.2)}px`;
  node.repaint = () => {
    const rollout = node.rollout;
    if (!rollout) return;
    const channel = channelOf(state.colour);
    map.replaceChildren(minimap(rollout, channel));
    markNotes(node);
    missing.textContent = channel.values(rollout) ? "" : `no ${channel.name.toLowerCase()} here: ${whyMissing(channel) || "this rollout has none"}`;
    paint(box, rollout);
  };
  let filling = null;
  node.fill = () => (filling ??= fill());
  const fill = async () => {
    try {
      node.rollout = await rolloutOf(facts);
    } catch {
      missing.textContent = DAMAGED;
      node.dataset.filled = "true";
      return;
    }
    box.style.minHeight = "";
    fillTokens(box, node.rollout, index.runs[run].gaps, Math.min(node.rollout.n, TOKENS_AT_FIRST), facts.measured);
    if (!node.rollout.n) box.append(el("p", { class: "missing" }, "an empty completion"));
    box.querySelector(".t")?.setAttribute("tabindex", "0");
    node.repaint();
    node.dataset.filled = "true";
  };
  map.addEventListener("click", (event) => {
    if (!node.rollout) return;
    const { left, width } = map.getBoundingClientRect();
    const i = Math.min(node.rollout.n - 1, Math.floor(((event.clientX - left) / width) * node.rollout.n));
    node.showToken(i, { block: "nearest", behavior: "smooth" });
  });
  node.showToken = (i, how = { block: "center", behavior: "instant" }) => {
    if (i < node.rollout.n && !box.querySelector(`.t[data-i="${i}"]`)) {
      fillTokens(box, node.rollout, index.runs[run].gaps, node.rollout.n);
      node.repaint();
    }
    const token = box.querySelector(`.t[data-i="${i}"]`);
    token?.scrollIntoView(how);
    if (token) inspector.show(token, { pin: true });
  };
  inSight.observe(node);
  return node;
}
