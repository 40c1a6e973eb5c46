// Where the credit went: praise and blame by turn, kind, decision, place and text, each beside its share of the tokens.

const QUESTIONS = {
  decision: "By decision", place: "By place", kind: "By kind of token", turn: "By turn", text: "By token",
};

function shareCell(run, row, top) {
  const { tokens, praise, blame } = run.credit;
  row ??= { tokens: 0, praise: 0, blame: 0 };
  const share = { tokens: row.tokens / (tokens || 1), praise: praise ? row.praise / praise : null, blame: blame ? row.blame / blame : null };
  const bar = (kind, tone) => share[kind] === null ? null
    : el("div", { class: `share-bar ${tone}`, vars: { width: `${(100 * share[kind]) / top}%` } });
  const words = [share.praise !== null && `praise ${percent(share.praise)}`, share.blame !== null && `blame ${percent(share.blame)}`, `tokens ${percent(share.tokens)}`];
  return el("div", { class: "share", title: words.filter(Boolean).join(", ") },
    el("div", { class: "share-bars" }, bar("praise", "plus"), bar("blame", "minus"),
      el("div", { class: "share-tick", vars: { left: `${(100 * share.tokens) / top}%` } })),
    el("div", { class: "share-numbers" },
      el("span", { "data-kind": "praise" }, share.praise === null ? "–" : percent(share.praise)),
      el("span", { "data-kind": "blame" }, share.blame === null ? "–" : percent(share.blame)),
      !severalRuns && el("span", { "data-kind": "tokens" }, percent(share.tokens))));
}

function question(key, title) {
  const asked = index.runs.map((run) => run.shares[key] ?? []);
  if (asked.every((rows) => rows.length < 2)) return null; // one row says nothing
  const names = [...new Set(asked.flatMap((rows) => rows.map((row) => row.name)))];
  const find = (r, name) => asked[r].find((row) => row.name === name);
  const top = Math.max(...index.runs.flatMap((run, r) => asked[r].flatMap((row) =>
    [row.tokens / (run.credit.tokens || 1), row.praise / (run.credit.praise || 1), row.blame / (run.credit.blame || 1)])));
  return el("section", { class: "question", "data-question": key, vars: { "--runs": index.runs.length } }, el("h3", {}, title),
    el("div", { class: severalRuns ? "share-grid several" : "share-grid" },
      el("div", { class: "share-head" }), index.runs.map((run, r) => el("div", { class: "share-head" },
        severalRuns && el("span", { class: "run-name" }, runKey(r), visible(run.name)),
        el("div", { class: "share-numbers" }, el("span", {}, "praise"), el("span", {}, "blame"), !severalRuns && el("span", {}, "tokens")))),
      names.map((name) => [el("div", { class: key === "text" ? "share-name mono" : "share-name" }, key === "text" ? alone(name) : name),
        index.runs.map((run, r) => shareCell(run, find(r, name), top))])));
}

function sharesSection() {
  const found = Object.entries(QUESTIONS).map(([key, title]) => question(key, title)).filter(Boolean);
  const silent = index.runs.filter((run) => !run.credit.praise && !run.credit.blame);
  const missing = silent.map((run) => el("p", { class: "missing" }, `${run.name} gives no credit at all: every advantage is 0.`));
  return el("div", {},
    el("p", { class: "legend-line" }, el("i", { class: "swatch plus" }), " praise: positive advantages  ",
      el("i", { class: "swatch minus" }), " blame: negative ones  ", el("i", { class: "swatch tick" }),
      " share of all sampled tokens: where an even spread would end"),
    missing, el("div", { class: "questions" }, found));
}
