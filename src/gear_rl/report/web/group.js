// The open group: the prompt, what the teacher saw, and its rollouts. One run: winners beside losers. Several runs: a row
// per rollout and a column per run, the same tokens in the same places.

function heading(group) {
  return el("h3", { id: "group-title" }, `Step ${group.step}, group ${group.group}`,
    group.alarm && el("span", { class: "alarm" }, " ▲ a guard raised an alarm at this step"));
}

function figureButtons(group) {
  const name = `step-${group.step}-group-${group.group}`;
  const button = (kind, act) => el("button", { type: "button", class: "quiet", "data-save": kind, onclick: async () => act(await groupPicture(group)) }, kind.toUpperCase());
  return el("p", { class: "actions save-figure" }, "save the figure: ",
    button("svg", (text) => download(`${name}.svg`, "image/svg+xml", text)), button("png", (text) => savePng(`${name}.png`, text)));
}

async function promptBlock(group) {
  // Rollouts of a group may have prompts of their own (transcripts do), and runs may have shown their teachers different
  // hints (wrong_hint does): each different one is shown once, with its rollouts and its runs.
  const read = new Map();
  const [prompts, seen] = [new Map(), new Map()];
  const add = (map, text, entry) => map.set(text, (map.get(text) ?? new Set()).add(entry));
  for (const [i, perRun] of group.rollouts.entries()) for (const [r, facts] of perRun.entries()) {
    if (!facts) continue;
    if (!read.has(facts.blobs[0])) read.set(facts.blobs[0], promptsOf(facts));
    const [prompt, hinted] = await read.get(facts.blobs[0]);
    add(prompts, prompt, i + 1);
    if (hinted !== null) add(seen, JSON.stringify([prompt, hinted]), r);
  }
  const block = el("div", { class: "prompts" }, [...prompts].map(([prompt, numbers]) => el("section", {},
    el("h4", {}, prompts.size > 1 ? `Prompt of ${numbers.size > 1 ? "rollouts" : "rollout"} ${[...numbers].join(", ")}` : "Prompt"),
    passage((text) => visible(text, true), prompt))));
  const hintsOf = new Map([...prompts.keys()].map((prompt) => [prompt, [...seen.keys()].filter((key) => JSON.parse(key)[0] === prompt).length]));
  for (const [key, runs] of seen) {
    const [prompt, hinted] = JSON.parse(key);
    const names = [...runs].map((r) => index.runs[r].name);
    const whose = severalRuns && (hintsOf.get(prompt) > 1 || names.length < index.runs.length) ? ` (${names.join(", ")})` : "";
    block.append(el("section", { class: "teacher" }, el("h4", {}, `What the teacher saw${whose}`),
      passage(markedInsertion(prompt, hinted), hinted)));
  }
  if (!seen.size) block.append(el("section", { class: "teacher" }, el("h4", {}, "What the teacher saw"),
    el("p", { class: "missing" }, "nothing: no teacher was shown a hint")));
  return block;
}

// A rollout with its number in the group, by which links, notes and siblings name it.
function numbered(group, i, node) {
  node.dataset.rollout = i;
  node.querySelector(".mark").after(el("span", { class: "number" }, `rollout ${i + 1}`));
  node.append(detailsOf(group, i, node));
  return node;
}

const byReward = (a, b) => b.facts.reward - a.facts.reward || a.i - b.i;

function sides(group, numbers) {
  const items = numbers.map((i) => ({ i, facts: anyFacts(group.rollouts[i]) })).sort(byReward);
  const cards = (part) => part.map(({ i, facts }) => numbered(group, i, card(facts, 0, i)));
  const [won, lost, even] = [(s) => s > 0, (s) => s < 0, (s) => s === 0].map((is) => items.filter(({ facts }) => is(facts.side)));
  if (even.length) return el("div", { class: "columns" },
    el("section", {}, el("h4", {}, `All ${items.length} alike: no contrast, so no credit from the outcome`), cards(items.slice(0, Math.ceil(items.length / 2)))),
    el("section", { class: "headless" }, cards(items.slice(Math.ceil(items.length / 2)))));
  // Short rollouts leave room for the larger side to take two columns.
  const brief = items.every(({ facts }) => facts.tokens < 150);
  const wide = brief && Math.max(won.length, lost.length) >= 2 * Math.min(won.length, lost.length);
  const parts = !wide ? [1, 1] : won.length > lost.length ? [2, 1] : [1, 2];
  return el("div", { class: "columns", vars: { "--split": parts.map((n) => `minmax(0, ${n}fr)`).join(" "), "--card": brief ? "300px" : "420px" } },
    el("section", {}, el("h4", {}, plural(won.length, "winner")), cards(won)),
    el("section", {}, el("h4", {}, plural(lost.length, "loser")), cards(lost)));
}

const sameTokens = (a, b) => a && b && a.blobs[1] === b.blobs[1] && a.blobs[2] === b.blobs[2];

function matrix(group, numbers) {
  const runs = index.runs.map((_, r) => r).filter((r) => state.runs[r]);
  const items = numbers.map((i) => ({ i, facts: anyFacts(group.rollouts[i]) })).sort(byReward);
  const head = runs.map((r) => el("h4", { class: "run-name" }, runKey(r), visible(index.runs[r].name)));
  const cells = items.flatMap(({ i }) => runs.map((r) => {
    const facts = group.rollouts[i][r];
    if (!facts) return el("article", { class: "card" }, el("p", { class: "missing" }, "this run has no such rollout"));
    const same = sameTokens(facts, group.rollouts[i][runs[0]]);
    const node = numbered(group, i, card(facts, r, same ? i : `${i}-${r}`));
    node.prepend(el("div", { class: "narrow-name" }, runKey(r), visible(index.runs[r].name)));
    if (!same) node.prepend(el("p", { class: "missing" }, "sampled again in this run: other tokens, so not aligned"));
    return node;
  }));
  return el("div", { class: "matrix", vars: { "--runs": runs.length } }, head, cells);
}

function groupPane() {
  const pane = el("div", { class: "pane", id: "pane" });
  let everything = false;
  let ticket = 0, drawn = null;
  const draw = () => (drawn = drawing());
  const drawing = async () => {
    const mine = ++ticket;
    const group = index.groups[state.group];
    inspector.hide();
    const all = group.rollouts.map((_, i) => i);
    const kept = everything || !state.matching ? all : state.matching[state.group] ?? all;
    const shown = kept.length ? kept : all;
    const rest = all.length - shown.length;
    const prompts = await promptBlock(group).catch(() => el("p", { class: "missing" }, DAMAGED));
    if (mine !== ticket) return;
    pane.replaceChildren(heading(group), figureButtons(group), prompts,
      rest > 0 ? el("p", { class: "found" }, `${plural(rest, "rollout")} of this group do not match. `,
        el("button", { type: "button", class: "quiet", onclick: () => { everything = true; draw(); } }, "show them too")) : "",
      siblings(group), severalRuns ? matrix(group, shown) : sides(group, shown));
    pane.dataset.group = state.group;
  };
  // Opens a rollout, and holds the values of one of its tokens open; one that a filter hides is shown again.
  pane.reveal = async ({ group, rollout, token = null, run = 0 }) => {
    set("group", group);
    await drawn;
    const find = () => pane.querySelector(`.card:not(.departure)[data-rollout="${rollout}"][data-run="${run}"]`);
    if (!find()) {
      everything = true;
      await draw();
    }
    const node = find();
    if (!node) return;
    const same = [...pane.querySelectorAll(`.card[data-aligned="${node.dataset.aligned}"]`)]; // under every method
    await Promise.all(same.map((c) => c.fill?.()));
    await goTo(node, () => (token === null || !node.rollout ? node.scrollIntoView({ behavior: "instant" }) : node.showToken(token)));
  };
  when("group", () => { everything = false; writeHash(); draw(); });
  when("matching", () => { everything = false; draw(); });
  when("runs", draw);
  when("colour", () => {
    writeHash();
    pane.querySelectorAll(".card").forEach((node) => node.repaint?.());
    inspector.refresh();
  });
  draw();
  return pane;
}
