// Blamed steps that are alike, most frequent first: how many rollouts, how much of the blame, and an example to open.

const clusterName = ({ turn, what, text, instead }) => {
  const told = { "wrong tool": ["wrong tool: ", mono(text)], argument: ["argument ", text.split(" of ").flatMap((word, k) => [k ? " of " : "", mono(word)])], "tool call": ["call of ", mono(text)],
    other: ["different texts"], text: [mono(text)] }[what] ?? [what];
  return [told, ` in turn ${turn}`, what === "other" && el("span", { class: "muted" }, ", such as ", mono(text)), instead && el("span", { class: "muted" }, " where winners called ", mono(instead))];
};
const mono = (text) => el("span", { class: "mono" }, visible(text));

function clusterRow(run, r, cluster, c, most) {
  const { rollouts, blame, wrong, judged, example } = cluster;
  const where = { group: example.group, rollout: example.rollout, token: example.token, run: r };
  const show = () => {
    byId("filter-cluster").value = `${r}:${c}`;
    byId("filter-cluster").dispatchEvent(new Event("change"));
    goTo(byId("rollouts"));
  };
  return el("tr", { "data-cluster": `${r}:${c}` },
    el("td", { class: "cluster-name" }, clusterName(cluster)),
    el("td", { class: "cluster-count" }, el("span", { class: "cluster-bar", vars: { width: `${(60 * rollouts) / most}px` } }), plural(rollouts, "rollout")),
    el("td", {}, run.credit.blame ? percent(blame / run.credit.blame) : "–", el("small", {}, " of the blame")),
    el("td", {}, judged > 0 && [`${count(wrong)} of ${count(judged)}`, el("small", {}, " truly wrong")]),
    el("td", { class: "actions" }, example.group >= 0 ? placeLink(where, {}, "an example") : el("span", { class: "muted" }, "none on this page"),
      example.group >= 0 && el("button", { type: "button", class: "quiet", onclick: show }, "show all")));
}

function clustersSection() {
  return el("div", {},
    el("p", { class: "legend-line" }, "The blamed step of a rollout is the stretch of one turn with its strongest blame, where that is at least 1.5 times the mean over its tokens."),
    index.runs.map((run, r) => {
      const { rows, even, unblamed, smaller } = run.clusters, most = Math.max(1, ...rows.map(({ rollouts }) => rollouts));
      const rest = [smaller.rollouts > 0 && `${plural(smaller.rollouts, "rollout")} in ${plural(smaller.clusters, "smaller cluster")}`,
        even > 0 && `${plural(even, "rollout")} blamed evenly, with no step that stands out`, unblamed > 0 && `${plural(unblamed, "rollout")} without blame`].filter(Boolean);
      return el("section", { class: "clusters" }, severalRuns && el("h3", { class: "run-name" }, runKey(r), visible(run.name)),
        rows.length ? el("div", { class: "scroll" }, el("table", {}, rows.map((cluster, c) => clusterRow(run, r, cluster, c, most)))) : el("p", { class: "missing" }, "no blamed step stands out"),
        rest.length > 0 && el("p", { class: "legend-line" }, `${rest.join("; ")}.`));
    }));
}
