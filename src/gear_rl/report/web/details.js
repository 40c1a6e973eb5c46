// What lies behind a rollout: its tool calls with the replies, what the verifier said of it, notes, and exports. Read when asked.

const CALLS = /<(tool_call|function_call)>([\s\S]*?)(?:<\/\1>|$)/g;

// The calls between two tags: one, a list of them, or one a line. `call` is null where the model wrote something else.
function readCalls(text) {
  const parse = (part) => {
    try {
      return [JSON.parse(part)].flat();
    } catch {
      return null;
    }
  };
  const lines = text.split("\n").filter((line) => line.trim());
  const found = parse(text) ?? (lines.every(parse) ? lines.flatMap(parse) : [null]);
  return found.map((call) => {
    const inner = typeof call?.function === "object" ? call.function : call;
    return { text: text.trim(), call: typeof inner?.name === "string" ? { name: inner.name, arguments: inner.arguments ?? inner.parameters ?? {} } : null };
  });
}

// Turn by turn: what the policy said, the calls in it, and the environment's reply.
function turnsOf(rollout, run) {
  const found = [];
  for (const { turn, start, end } of stretches(rollout, rollout.n)) {
    const text = textOf(rollout, start, end, run);
    if (!turn) {
      if (found.length) found[found.length - 1].reply = text;
      continue;
    }
    const calls = [...text.matchAll(CALLS)].flatMap((match) => readCalls(match[2]));
    found.push({ turn, start, text, calls, reply: "", credit: creditOf(rollout, start, end) });
  }
  return found;
}

const shownCall = ({ call, text }) => call
  ? [el("b", { class: "mono" }, visible(call.name)), el("dl", { class: "arguments" },
    Object.entries(typeof call.arguments === "object" && call.arguments !== null ? call.arguments : { "": call.arguments }).map(([key, value]) =>
      [el("dt", {}, visible(key)), el("dd", {}, passage((part) => visible(part, true), typeof value === "string" ? value : JSON.stringify(value)))]))]
  : [el("span", { class: "muted" }, "not JSON: "), passage((part) => visible(part, true), text)];

function toolPanel(rollout, where) {
  const turns = turnsOf(rollout, where.run);
  const withTools = turns.filter(({ calls, reply }) => calls.length || reply.trim());
  if (!withTools.length) return el("p", { class: "missing" }, "no tool calls and no replies");
  return el("table", { class: "calls" }, el("tr", {}, ["turn", "action", "reply", "credit"].map((name) => el("th", { scope: "col" }, name))),
    withTools.map(({ turn, start, text, calls, reply, credit }) => el("tr", {},
      el("td", {}, placeLink({ ...where, token: start }, {}, String(turn))),
      el("td", {}, calls.length ? calls.map((call) => el("div", { class: "call" }, shownCall(call))) : passage((part) => visible(part, true), text, 300)),
      el("td", {}, passage((part) => visible(part, true), reply.trim(), 300)), el("td", {}, signed(credit)))));
}

function verdictPanel(facts, verdict) {
  const parts = Object.entries(verdict?.channels ?? {});
  const rows = [["reward", short(facts.reward)], ...parts.map(([name, value]) => [name, short(value)]),
    ...(facts.success === null ? [] : [["true success", facts.success ? "yes" : "no"]])];
  return el("div", { class: "verdict" },
    el("table", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, visible(name)), el("td", {}, value)))),
    verdict?.feedback ? passage((part) => visible(part, true), verdict.feedback)
      : el("p", { class: "missing" }, verdict ? "the verifier gave no feedback" : "the record has no reward parts and no feedback of the verifier"));
}

const fileName = (group, i) => `step-${group.step}-group-${group.group}-rollout-${i + 1}`;

function detailsOf(group, i, card) {
  const run = Number(card.dataset.run), g = index.groups.indexOf(group), facts = group.rollouts[i][run];
  const where = { group: g, rollout: i, run };
  const body = el("div", { class: "detail-body" });
  const fill = async () => {
    await card.fill();
    if (!card.rollout) return;
    const verdict = facts.verdict === undefined ? null : JSON.parse((await inflateTexts(facts.verdict))[0]);
    const save = (name, act) => el("button", { type: "button", class: "quiet", onclick: act }, name);
    const editor = noteEditor(where);
    body.replaceChildren(
      el("div", { class: "actions" }, placeLink(where, {}, "link to this rollout"),
        save("save as Markdown", async () => download(`${fileName(group, i)}.md`, "text/markdown", await asMarkdown(group, i, run))),
        save("as SVG", () => download(`${fileName(group, i)}.svg`, "image/svg+xml", asSvg(card))),
        save("as PNG", () => savePng(`${fileName(group, i)}.png`, asSvg(card)))),
      editor ?? "", el("h5", {}, "Tool calls"), toolPanel(card.rollout, where), el("h5", {}, "Verifier"), verdictPanel(facts, verdict));
  };
  const fold = el("details", { class: "details" }, el("summary", {}, "tool calls, verifier, note, export"), body);
  fold.addEventListener("toggle", () => {
    if (fold.open && !body.childElementCount) fill().catch(() => body.replaceChildren(el("p", { class: "missing" }, DAMAGED)));
  });
  return el("div", { class: "card-foot" }, el("ul", { class: "card-notes", "data-group": g }), fold);
}
