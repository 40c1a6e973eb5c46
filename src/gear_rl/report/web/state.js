// What the reader has chosen. Parts of the page listen for the choices they depend on.

const NO_FILTERS = { text: "", reward: "any", low: "", high: "", success: "any", from: "", to: "", alarm: false, measured: false };
const state = {
  group: 0,
  colour: "advantage",
  runs: index.runs.map(() => true),
  filters: { ...NO_FILTERS },
  order: "training",
  matching: null, // per group the numbers of its matching rollouts; null: no filter
};

const listeners = {};
const when = (what, act) => (listeners[what] ??= []).push(act);
function set(what, value) {
  if (state[what] === value) return;
  state[what] = value;
  for (const act of listeners[what] ?? []) act(value);
}

const rolloutsOf = (group) => group.rollouts;
const anyFacts = (perRun) => perRun.find(Boolean);

// #group=STEP/NUMBER&colour=KEY: a link to what one sees.
function readHash() {
  const words = new URLSearchParams(location.hash.slice(1));
  const find = (name) => index.groups.findIndex((g) => `${g.step}/${g.group}` === name);
  const found = find(words.get("group"));
  return { group: found >= 0 ? found : find(index.open.group.join("/")), colour: channelOf(words.get("colour") ?? index.open.colour).key };
}

function writeHash() {
  const { step, group } = index.groups[state.group];
  try {
    history.replaceState(null, "", `#group=${step}/${group}&colour=${state.colour}`);
  } catch { /* some viewers of local files allow no history */ }
}
