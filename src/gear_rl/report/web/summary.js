// The head of the page: what this is, what is missing, and what training did to the score.

const MEASURES = { success: "true success", reward: "reward" };

// Before → after, on one axis from 0 to 1 (or to what the scores need), with the interval of the score after.
function evaluationBlock() {
  const rows = [];
  for (const [r, run] of index.runs.entries()) {
    const { before, after } = run.evaluation;
    const ways = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
    for (const measure of Object.keys(MEASURES)) for (const way of ways) {
      const old = before?.[way]?.[measure], now = after?.[way]?.[measure];
      if (old === undefined && now === undefined) continue;
      rows.push({ r, measure, way, old, now, interval: after?.[way]?.[`${measure}_interval`] ?? null, n: (after ?? before)[way].n });
    }
  }
  if (!rows.length) return null;
  const values = rows.flatMap(({ old, now, interval }) => [old, now, ...(interval ?? [])]).filter((v) => v !== undefined);
  const low = Math.min(0, ...values), high = Math.max(1, ...values);
  const at = (v) => `${(100 * (v - low)) / (high - low)}%`;
  const shares = low === 0 && high === 1;
  const write = (v) => (v === undefined ? "–" : shares ? `${(100 * v).toFixed(1)}` : short(v));
  const dot = (v, kind) => (v === undefined ? null : el("i", { class: `dot ${kind}`, vars: { left: at(v) } }));
  rows.sort((a, b) => a.measure !== b.measure ? (a.measure === "success" ? -1 : 1) : a.way !== b.way ? (a.way < b.way ? 1 : -1) : a.r - b.r);
  const problems = rows.find((row) => row.n !== undefined)?.n;
  return el("section", { class: "evaluation", id: "evaluation" },
    el("h2", {}, "Before → after", el("small", {}, `${problems ? ` ${count(problems)} unseen problems` : ""}${shares ? ", %" : ""}`)),
    rows.map(({ r, measure, way, old, now, interval }, k) => {
      const again = k > 0 && rows[k - 1].measure === measure && rows[k - 1].way === way;
      return el("div", { class: again ? "score again" : "score", "data-score": `${measure} ${way}`, "data-run": r },
        el("span", { class: "score-name" }, !again && `${MEASURES[measure]}, ${way}`),
        severalRuns && el("span", { class: "run-name" }, runKey(r), visible(index.runs[r].name)),
        el("span", { class: "track" },
          interval && el("i", { class: "interval", vars: { left: at(interval[0]), right: `calc(100% - ${at(interval[1])})` } }),
          old !== undefined && now !== undefined &&
            el("i", { class: "path", vars: { left: at(Math.min(old, now)), right: `calc(100% - ${at(Math.max(old, now))})` } }),
          dot(old, "old"), dot(now, "new")),
        el("span", { class: "score-numbers" }, `${write(old)} → `, el("b", {}, write(now)),
          el("small", {}, interval ? `${write(interval[0])}–${write(interval[1])}` : "")));
    }));
}

function facts() {
  const run = index.runs[0];
  const line = (...words) => words.filter(Boolean).join(" · ");
  const tokens = index.runs.map((r) => r.credit.tokens);
  return el("p", { class: "facts" }, line(
    plural(run.rollouts, "rollout"), `${plural(run.steps, "recorded step")}`,
    `${count(tokens[0])} sampled tokens`, run.model && `model ${run.model}`, run.seed !== null && `seed ${run.seed}`));
}

// The one sentence a reader should take along: credit where the task knows the decisions, else where the method saw onsets.
function finding(run) {
  const share = (rows, name, kind) => rows.find((row) => row.name === name)?.[kind] / (run.credit[kind] || 1);
  const { decision, place } = run.shares;
  if (decision?.some((row) => row.name === "wrong decision")) {
    const [tokens, praise, blame] = ["tokens", "praise", "blame"].map((kind) => percent(share(decision, "wrong decision", kind)));
    return `Wrong decisions (${tokens} of the tokens) got ${blame} of the blame and ${praise} of the praise.`;
  }
  const on = place?.filter((row) => row.name !== "elsewhere" && row.tokens) ?? [];
  if (!on.length) return ""; // no onsets: nothing to say about them
  const sum = (kind) => on.reduce((total, row) => total + row[kind], 0);
  const credit = (sum("praise") + sum("blame")) / (run.credit.praise + run.credit.blame || 1);
  return `Adaptive segments (${percent(sum("tokens") / (run.credit.tokens || 1))} of the tokens) got ${percent(credit)} of the credit.`;
}

function runLines() {
  return el("ul", { class: "runs" }, index.runs.map((run, r) => {
    const toggle = severalRuns && el("input", { type: "checkbox", checked: true, "aria-label": `show ${run.name}`, "data-toggle": r,
      onchange: (e) => {
        const next = state.runs.with(r, e.target.checked);
        if (next.some(Boolean)) set("runs", next);
        else e.target.checked = true;
      } });
    const options = run.options ? el("code", {}, visible(run.options)) : "default options";
    return el("li", {}, el("label", {}, toggle, severalRuns && runKey(r), el("b", {}, visible(run.name))), " ",
      el("span", { class: "muted" }, options, run.trained_with && ` · on rollouts trained with ${run.trained_with}`),
      el("span", { class: "finding" }, finding(run)));
  }));
}

function notesBlock() {
  const lines = new Map();
  index.runs.forEach((run) => {
    const missing = Object.entries(run.missing).filter(([name]) => name !== "hinted_prompt");
    const grouped = new Map();
    for (const [name, why] of missing) grouped.set(why, [...(grouped.get(why) ?? []), name]);
    const sentences = [...run.notes, ...[...grouped].map(([why, names]) => `Not in the record: ${names.join(", ")} (${why}).`)];
    for (const sentence of sentences) lines.set(sentence, [...(lines.get(sentence) ?? []), run.name]);
  });
  const models = new Set(index.runs.map((run) => run.model));
  if (models.size > 1) lines.set(`The runs are of different models: ${[...models].join(", ")}.`, index.runs.map((run) => run.name));
  if (!lines.size) return null;
  return el("details", { class: "notes", id: "notes", open: true }, el("summary", {}, "What is missing here"),
    el("ul", {}, [...lines].map(([sentence, names]) =>
      el("li", {}, severalRuns && names.length < index.runs.length && el("b", {}, visible(names.join(", ")), ": "), visible(sentence)))));
}

function pageHead(themeButton) {
  const run = index.runs[0];
  return el("header", {},
    el("div", { class: "bar-line" }, el("span", { class: "brand" }, "gear report"),
      el("nav", { "aria-label": "Parts of the page" }, [["rollouts", "Rollouts"], ["clusters", "Blamed steps"],
        ...(measuredTurns.length ? [["measured", "Measured"]] : []), ["shares", "Shares"], ["training", "Training"], ["reader-notes", "Notes"]]
        .map(([id, name]) => el("a", { href: `#${id}`, onclick: (e) => { e.preventDefault(); goTo(byId(id)); } }, name))),
      index.live > 0 && liveLine(), themeButton),
    el("div", { class: "head" },
      el("div", {},
        el("h1", {}, "Where the credit went", el("small", {}, severalRuns ? `${index.runs.length} runs` : visible(run.method), " on ", visible(run.task))),
        facts(), runLines(), notesBlock()),
      evaluationBlock()));
}
