// Two rollouts of one prompt, up to where they first differ: what both said, what each did then, and what credit it got.

const COMMON_SHOWN = 24, STEP_SHOWN = 60; // tokens

async function departure(a, b) {
  const [left, right] = await Promise.all([rolloutOf(a), rolloutOf(b)]);
  let at = 0;
  while (at < left.n && at < right.n && left.ids[at] === right.ids[at]) at++;
  return { left, right, at };
}

// The winner and the loser that say the same for longest: there the contrast is sharpest. Without a contrast, the first two.
async function closestPair(group, run) {
  const known = group.rollouts.map((perRun, i) => ({ i, facts: perRun[run] })).filter(({ facts }) => facts).slice(0, 64);
  let best = null;
  for (const won of known.filter(({ facts }) => facts.side > 0)) for (const lost of known.filter(({ facts }) => facts.side < 0)) {
    if (won.facts.blobs[0] !== lost.facts.blobs[0]) continue;
    const { at } = await departure(won.facts, lost.facts);
    if (!best || at > best.at) best = { at, pair: [won.i, lost.i] };
  }
  return best?.pair ?? [known[0].i, known[1].i];
}

function stepEnd(rollout, at) {
  let end = at;
  while (end < rollout.n && end - at < STEP_SHOWN && rollout.mask[end] === rollout.mask[at] && rollout.turns[end] === rollout.turns[at]) end++;
  return end;
}

const textOf = (rollout, start, end, run) => rollout.texts.slice(start, end).join(index.runs[run].gaps ? " " : "");
const creditOf = (rollout, start, end) => {
  let sum = 0;
  for (let i = start; i < end; i++) if (rollout.mask[i]) sum += rollout.advantages[i];
  return sum;
};

function side(group, i, run, rollout, at) {
  const facts = group.rollouts[i][run];
  const head = [el("h5", {}, `rollout ${i + 1}`), outcome(facts)];
  const node = el("article", { class: "card departure", "data-run": run, "data-rollout": i, "data-aligned": `departure-${i}` }, head);
  node.rollout = rollout;
  if (at >= rollout.n) {
    node.append(el("p", { class: "missing" }, "ends here"));
    return node;
  }
  const end = stepEnd(rollout, at), adaptive = new Set();
  for (let k = 0; k < rollout.n; k++) if (rollout.onsets[k]) adaptive.add(rollout.segments[k]);
  const tokens = [];
  for (let k = at; k < end; k++) tokens.push(tokenNode(rollout, k, adaptive), index.runs[run].gaps ? document.createElement("wbr") : "");
  const box = el("div", { class: index.runs[run].gaps ? "tokens gaps" : "tokens" }, el("div", { class: "said" }, tokens));
  node.repaint = () => paint(box, rollout);
  node.repaint();
  let reply = end;
  while (reply < rollout.n && !rollout.mask[reply]) reply++;
  const row = (name, ...value) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value));
  const sampled = !!rollout.mask[at];
  node.append(box, el("table", {},
    sampled && row("credit of its first token", exact(rollout.advantages[at])),
    sampled && row("of this step", short(creditOf(rollout, at, end))),
    row("of this and all that follows", short(creditOf(rollout, at, rollout.n))),
    sampled && reply > end && row("reply", el("span", { class: "mono" }, visible(textOf(rollout, end, Math.min(reply, end + STEP_SHOWN), run))))),
    placeLink({ group: index.groups.indexOf(group), rollout: i, token: at, run }, {}, "go there"));
  return node;
}

function siblings(group) {
  const run = index.runs.findIndex((_, r) => state.runs[r] && group.rollouts.filter((perRun) => perRun[r]).length > 1);
  if (run < 0) return "";
  const body = el("div", {});
  const pick = (label) => el("select", { "aria-label": label, onchange: () => show() },
    group.rollouts.map((perRun, i) => perRun[run] && el("option", { value: i }, `rollout ${i + 1}: reward ${short(perRun[run].reward)}`)));
  const [first, second] = [pick("One sibling"), pick("The other sibling")];
  const draw = async () => {
    const [i, j] = [Number(first.value), Number(second.value)];
    const [a, b] = [group.rollouts[i][run], group.rollouts[j][run]];
    const { left, right, at } = await departure(a, b);
    const environment = at < left.n && at < right.n && !left.mask[at] && !right.mask[at];
    const longer = at < left.n ? left : right;
    const turn = longer.turns.slice(0, at + 1).reduce((last, t, k) => (longer.mask[k] ? Math.max(last, t) : last), 0);
    const sentence = i === j ? "These are one rollout." : at === left.n && at === right.n ? "Both say the same to the end."
      : at === 0 ? "They differ from the first token on." : `The first ${at > 1 ? `${count(at)} tokens are` : "token is"} the same. They first differ in ${environment ? "the reply to " : ""}turn ${turn}.`;
    body.replaceChildren(el("p", {}, sentence, a.blobs[0] !== b.blobs[0] && " Their prompts or hints differ."),
      at > 0 ? el("p", { class: "common" }, at > COMMON_SHOWN && "… ", visible(textOf(left, Math.max(0, at - COMMON_SHOWN), at, run), true)) : "",
      i === j ? "" : el("div", { class: "departures" }, side(group, i, run, left, at), side(group, j, run, right, at)));
    body.dataset.at = at;
  };
  const show = () => draw().catch(() => body.replaceChildren(el("p", { class: "missing" }, DAMAGED)));
  const fold = el("details", { class: "siblings", id: "siblings" }, el("summary", {}, "compare two siblings where they first differ"),
    el("div", { class: "pick" }, first, " with ", second, severalRuns && el("span", { class: "muted" }, " under ", visible(index.runs[run].name))), body);
  fold.addEventListener("toggle", async () => {
    if (!fold.open || body.childElementCount) return;
    const [i, j] = await closestPair(group, run).catch(() => [0, 1]);
    [first.value, second.value] = [i, j];
    show();
  });
  return fold;
}
