// What turns did to the outcome, measured by going on from before and after them (`gear credit --check`): an interval on the
// turn's own line, and a table of all of them.

const measuredTurns = index.groups.flatMap((group, g) => group.rollouts.flatMap((perRun, i) => perRun.flatMap((facts, r) =>
  (facts?.measured ?? []).map((turn) => ({ ...turn, g, i, r, group })))));
const measuredTop = Math.max(0.1, ...measuredTurns.flatMap(({ interval }) => interval.map(Math.abs)));
const measuredTone = ({ interval: [low, high] }) => (low > 0 ? "plus" : high < 0 ? "minus" : "none");
const two = (x) => (x > 0 ? "+" : "") + minus(x.toFixed(2));
const measuredWords = ({ advantage, interval }) => `${two(advantage)} (${two(interval[0])} to ${two(interval[1])})`;

// Zero is the upright line; the interval a bar, the value a dot. The scale is the same all over the page.
function measuredPlot(turn) {
  const x = (v) => `${50 + (50 * v) / measuredTop}%`;
  return svg("svg", { class: `measured-plot ${measuredTone(turn)}`, "aria-hidden": "true" },
    svg("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: "100%" }),
    svg("line", { class: "bar", x1: x(turn.interval[0]), x2: x(turn.interval[1]), y1: "50%", y2: "50%" }),
    svg("circle", { cx: x(turn.advantage), cy: "50%", r: 3 }));
}

function measuredBadge(turn) {
  const words = `measured ${measuredWords(turn)}, ${plural(turn.continuations, "continuation")}`;
  return el("span", { class: "measured", "data-turn": turn.turn, role: "img", "aria-label": words,
    title: `what this turn did to the reward: ${words}` }, measuredPlot(turn), two(turn.advantage));
}

// For the card that explains a token.
const measuredLine = (turn) => el("p", { class: "measured-line" }, `this turn, measured: ${measuredWords(turn)}, `,
  `${plural(turn.continuations, "continuation")}`);

// Opens the group, and goes to the turn as soon as its card is there. A filter may hide the card.
async function openMeasured({ g, i, turn }) {
  set("group", g);
  for (let frames = 0; frames < 120; frames++) {
    const found = byId("pane").dataset.group === String(g) && document.querySelector(`.card[data-aligned="${i}"]`);
    if (found) {
      await found.fill();
      const mark = found.querySelector(`.measured[data-turn="${turn}"]`) ?? found;
      return goTo(mark, () => mark.scrollIntoView({ block: "center", behavior: "instant" }));
    }
    await new Promise(requestAnimationFrame);
  }
  goTo(byId("rollouts"));
}

function measuredSection() {
  const names = [...new Set(measuredTurns.flatMap(({ credit }) => Object.keys(credit)))];
  const once = measuredTurns.filter(({ g, i, turn }, k) =>
    measuredTurns.findIndex((other) => other.g === g && other.i === i && other.turn === turn) === k);
  const row = (turn) => el("tr", {},
    el("td", {}, el("button", { type: "button", class: "quiet", onclick: () => openMeasured(turn) }, `step ${turn.group.step}, group ${turn.group.group}, rollout ${turn.i + 1}, turn ${turn.turn}`)),
    el("td", {}, measuredPlot(turn)), el("td", { class: "mono" }, measuredWords(turn)),
    names.map((name) => el("td", { class: "mono" }, name in turn.credit ? two(turn.credit[name]) : "–")));
  return el("div", { class: "measured-table" },
    el("p", { class: "legend-line" }, "The turns that were blamed and praised most. Measured: the mean reward of continuations after the turn less that before it, ",
      "with its 95 % interval. Beside it each method's credit of the turn: the mean advantage of its tokens, weighted by the policy's entropy."),
    el("table", {}, el("tr", {}, el("th", {}, "turn"), el("th", { colspan: 2 }, "measured"), names.map((name) => el("th", {}, visible(name)))),
      once.sort((a, b) => a.advantage - b.advantage).map(row)));
}
