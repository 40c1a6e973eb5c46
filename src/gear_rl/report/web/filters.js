// Which rollouts the reader wants to see: by text, reward, true success, step and alarm.

function testOf({ reward, low, high, success, from, to, alarm, cluster, measured }) {
  const inside = (x, a, b) => (a === "" || x >= Number(a)) && (b === "" || x <= Number(b));
  return (group, facts, run) =>
    (!cluster || cluster === `${run}:${facts.cluster}`) && (!measured || facts.measured) &&
    inside(group.step, from, to) && (!alarm || group.alarm) && inside(facts.reward, low, high) &&
    (reward === "any" || (reward === "winners" ? facts.side > 0 : reward === "losers" ? facts.side < 0 : facts.side === 0)) &&
    (success === "any" ||
      (success === "lucky" ? facts.side > 0 && facts.success === false : facts.success === (success === "yes")));
}

const isNarrowed = (f) =>
  f.text || f.reward !== "any" || f.low !== "" || f.high !== "" || f.success !== "any" || f.from !== "" || f.to !== "" ||
  f.alarm || f.cluster || f.measured;

// The searchable text of a rollout: what was said, and the prompt. Read once, when the first search asks for it.
const searchTexts = new Map();
function searchText(facts, run) {
  const key = facts.blobs[0] + "/" + facts.blobs[1];
  if (!searchTexts.has(key))
    searchTexts.set(key, Promise.all([promptsOf(facts), inflateTexts(facts.blobs[1])]).then(([[prompt], texts]) =>
      (prompt + "\n" + texts.join(index.runs[run].gaps ? " " : "")).toLowerCase()).catch(() => ""));
  return searchTexts.get(key);
}

let newest = 0;
async function applyFilters() {
  const ticket = ++newest;
  const f = state.filters;
  if (!isNarrowed(f)) return set("matching", null);
  const passes = testOf(f), wanted = f.text.toLowerCase();
  const matching = [];
  for (const group of index.groups) {
    const numbers = [];
    for (const [i, perRun] of group.rollouts.entries()) {
      const run = perRun.findIndex((facts, r) => facts && passes(group, facts, r));
      if (run < 0) continue;
      if (wanted) {
        const texts = await Promise.all(perRun.map((facts, r) => (facts && passes(group, facts, r) ? searchText(facts, r) : "")));
        if (ticket !== newest) return; // the reader has typed on
        if (!texts.some((text) => text.includes(wanted))) continue;
      }
      numbers.push(i);
    }
    matching.push(numbers);
  }
  set("matching", matching);
}

function filterPanel() {
  let typing;
  const change = (name, value, delay = 0) => {
    state.filters = { ...state.filters, [name]: value };
    clearTimeout(typing);
    typing = setTimeout(applyFilters, delay);
  };
  const steps = index.groups.map((g) => g.step);
  const number = (name, hint, label) =>
    el("input", { type: "number", id: `filter-${name}`, placeholder: hint, "aria-label": label, step: "any",
      oninput: (e) => change(name, e.target.value, 150) });
  const select = (name, label, options) =>
    el("select", { id: `filter-${name}`, "aria-label": label, onchange: (e) => change(name, e.target.value) },
      options.map(([value, words]) => el("option", { value }, words)));
  const facts = index.groups.flatMap((g) => g.rollouts.map(anyFacts));
  const rewards = facts.map((f) => f.reward).filter((reward) => reward !== null);
  const knowsSuccess = facts.some((f) => f.success !== null);
  const anyAlarm = index.groups.some((g) => g.alarm);
  const clusters = index.runs.flatMap((run, r) => run.clusters.rows.map((cluster, c) => [`${r}:${c}`, oneLine(clusterName(cluster))]));
  const bound = (values, pick) => (values.length ? short(values.reduce((a, b) => pick(a, b))) : "");
  const search = el("input", { type: "search", class: "search", id: "filter-text", placeholder: "search prompts and rollouts  /",
    "aria-label": "Search prompts and rollouts", oninput: (e) => change("text", e.target.value.trim(), 250) });
  const panel = el("div", { class: "filters" },
    el("label", {}, el("span", {}, "outcome"), select("reward", "Outcome",
      [["any", "all"], ["winners", "winners"], ["losers", "losers"], ["even", "no contrast"]])),
    knowsSuccess && el("label", {}, el("span", {}, "true success"), select("success", "True success",
      [["any", "all"], ["yes", "yes"], ["no", "no"], ["lucky", "lucky: won without it"]])),
    el("label", {}, el("span", {}, "reward"),
      number("low", bound(rewards, Math.min), "Least reward"), "–", number("high", bound(rewards, Math.max), "Greatest reward")),
    el("label", {}, el("span", {}, "step"),
      number("from", bound(steps, Math.min), "First step"), "–", number("to", bound(steps, Math.max), "Last step")),
    clusters.length > 0 && el("label", {}, el("span", {}, "blamed step"), select("cluster", "Blamed step", [["", "all"], ...clusters])),
    el("label", { class: "check", title: anyAlarm ? "" : "no guard raised an alarm at a recorded step" },
      el("input", { type: "checkbox", id: "filter-alarm", disabled: !anyAlarm, onchange: (e) => change("alarm", e.target.checked) }),
      "only steps with an alarm"),
    facts.some((f) => f.measured) && el("label", { class: "check" },
      el("input", { type: "checkbox", id: "filter-measured", onchange: (e) => change("measured", e.target.checked) }),
      "only with measured turns"),
    el("label", {}, el("span", {}, "order"), el("select", { id: "order", "aria-label": "Order of groups",
        onchange: (e) => set("order", e.target.value) },
      ORDERS.map(([key, name]) => el("option", { value: key }, name)))),
    el("button", { type: "reset", class: "quiet" }, "clear"));
  const fold = el("details", { class: "filter-fold", id: "filter-fold" }, el("summary", {}, "filter and order"), panel);
  when("matching", (matching) => fold.toggleAttribute("data-active", matching !== null));
  return el("form", { role: "search", onsubmit: (e) => e.preventDefault(), onreset: () => setTimeout(() => {
    state.filters = { ...NO_FILTERS };
    set("order", "training");
    applyFilters();
  }) }, search, fold);
}

const spread = (group) => {
  const rewards = group.rollouts.map((perRun) => anyFacts(perRun).reward).filter((reward) => reward !== null);
  return rewards.length ? Math.max(...rewards) - Math.min(...rewards) : 0;
};
const greatest = (name) => (group) => Math.max(...group.rollouts.flat().map((facts) => facts?.[name] ?? 0));
const ORDERS = [
  ["training", "as trained", null],
  ["contrast", "most contrast in reward", spread],
  ["peak", "strongest credit", greatest("peak")],
  ["divergence", "largest divergence", greatest("divergence")],
];

// Numbers of the groups to list, filtered and in the chosen order.
function listed() {
  const numbers = index.groups.map((_, g) => g).filter((g) => !state.matching || state.matching[g].length);
  const score = ORDERS.find(([key]) => key === state.order)[2];
  if (!score) return numbers;
  const scores = index.groups.map(score);
  return numbers.sort((a, b) => scores[b] - scores[a] || a - b);
}
