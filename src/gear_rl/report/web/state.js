// What the reader has chosen. Parts of the page listen for the choices they depend on.

const NO_FILTERS = { text: "", reward: "any", low: "", high: "", success: "any", from: "", to: "", alarm: false, cluster: "", measured: false };
const state = {
  group: 0,
  colour: "advantage",
  runs: index.runs.map(() => true),
  filters: { ...NO_FILTERS },
  order: "training",
  matching: null, // per group the numbers of its matching rollouts; null: no filter
  pinned: null, // {run, rollout, token} of the open group whose values are held open
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

// #group=STEP/NUMBER&colour=KEY&rollout=NUMBER&token=NUMBER&run=NUMBER: a link to what one sees, down to a token. Rollouts and
// runs are counted from 1, tokens from 0, as the page shows them.
function readHash() {
  const words = new URLSearchParams(location.hash.slice(1));
  const find = (name) => index.groups.findIndex((g) => `${g.step}/${g.group}` === name);
  const whole = (name) => (/^\d{1,9}$/.test(words.get(name) ?? "") ? Number(words.get(name)) : null);
  const found = find(words.get("group")), opening = find(index.open.group.join("/"));
  const rollout = whole("rollout"), here = found >= 0 || !words.has("group");
  return {
    group: found >= 0 ? found : opening, colour: channelOf(words.get("colour") ?? index.open.colour).key,
    rollout: here && rollout ? rollout - 1 : null, token: whole("token"), run: Math.max(0, (whole("run") ?? 1) - 1),
  };
}

function hashOf({ group, rollout = null, token = null, run = 0 }) {
  const { step, group: number } = index.groups[group];
  const words = [`group=${step}/${number}`, `colour=${encodeURIComponent(state.colour)}`];
  if (rollout !== null) words.push(`rollout=${rollout + 1}`);
  if (token !== null) words.push(`token=${token}`);
  return "#" + [...words, ...(run > 0 ? [`run=${Number(run) + 1}`] : [])].join("&");
}

function writeHash() {
  try {
    history.replaceState(null, "", hashOf({ group: state.group, ...state.pinned }));
  } catch { /* some viewers of local files allow no history */ }
}

// A link to a rollout or a token of this page. `where`: {group, rollout, token, run}.
const placeLink = (where, props, ...children) => el("a", { ...props, href: hashOf(where), onclick: (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  byId("pane").reveal(where);
} }, ...children);
