// How training went: the curves, what the guards watched, and their alarms.

const METRICS = [
  ["reward", "Reward", "mean reward of the step's rollouts"],
  ["success", "True success", "share of rollouts in which every decision was right"],
  ["signals/reverse_kl", "Divergence", "mean reverse KL between the policy and its hinted teacher"],
  ["guards/entropy", "Entropy", "guard: alarm below a tenth of its start", "entropy"],
  ["guards/focus", "Focus", "guard: concentration of the weights; 1 is even, alarm below 0.02", "focus"],
  ["guards/length", "Length", "guard: sampled tokens per rollout; alarm at three times or a third of its start", "length"],
  ["guards/leak", "Leak", "guard: share of tokens copied from the hint, in rollouts below the best reward so far; alarm at 0.2 above its start", "leak"],
  ["credit/weight_max", "Largest weight", "of any token of the step"],
  ["credit/onsets_per_rollout", "Onsets", "adaptive segments per rollout"],
  ["credit/mean_abs_advantage", "Credit per token", "mean |advantage| of the sampled tokens"],
  ["loss", "Loss", ""],
  ["grad_norm", "Gradient norm", ""],
];

function alarmLines() {
  const lines = index.runs.flatMap((run, r) => {
    if (!run.curves.steps.length) return [];
    const whose = severalRuns ? [runKey(r), `${run.name}: `] : [];
    const watched = Object.keys(run.alarms.start);
    if (!run.alarms.steps.length) {
      const what = watched.length ? `no guard raised an alarm (${watched.join(", ")})` : "no guards were logged";
      return [el("p", { class: "alarm-line quiet-line" }, whose, what)];
    }
    const kinds = run.alarms.kinds.map(({ guard, meaning, steps }) =>
      el("p", { class: "alarm-line" }, el("span", { class: "alarm" }, "▲ "), whose, el("b", {}, guard), `: ${meaning}, `,
        `${plural(steps.length, "step")}, first ${steps[0]}, last ${steps[steps.length - 1]}`));
    return kinds.length ? kinds : [el("p", { class: "alarm-line" }, el("span", { class: "alarm" }, "▲ "), whose,
      `a guard raised an alarm at ${plural(run.alarms.steps.length, "step")}`)];
  });
  return el("div", { class: "alarms" }, lines);
}

function trainingSection() {
  const logged = index.runs.map((run, r) => ({ run, r })).filter(({ run }) => run.curves.steps.length);
  if (!logged.length) return el("p", { class: "missing" }, [...new Set(index.runs.flatMap((run) => run.notes))].join(" "));
  const ends = logged.flatMap(({ run }) => [run.curves.steps[0], run.curves.steps[run.curves.steps.length - 1]]);
  const span = [Math.min(...ends), Math.max(...ends)];
  // Rollouts of step s were sampled when s steps were done; the log of that step is line s + 1.
  const recorded = [...new Set(index.groups.map((g) => g.step + 1))].filter((step) => step >= span[0] && step <= span[1]);
  const plots = [];
  const point = (step) => plots.forEach((plot) => plot.readout(step));
  const choose = (step) => {
    const nearest = index.groups.reduce((best, g, i) =>
      Math.abs(g.step + 1 - step) < Math.abs(index.groups[best].step + 1 - step) ? i : best, 0);
    set("group", nearest);
    goTo(byId("rollouts"));
  };
  const draw = ([key, name, about, guard]) => {
    const series = logged.map(({ run, r }) => ({ run: r, steps: run.curves.steps, values: run.curves.values[key] }))
      .filter(({ values }) => values?.some((v) => v !== null));
    if (!series.length) return null;
    const marks = { recorded };
    if (guard) {
      marks.start = logged.map(({ run }) => run.alarms.start[guard]).filter((v) => v !== undefined);
      marks.alarms = [...new Set(logged.flatMap(({ run }) => run.alarms.kinds.filter((k) => k.guard === guard).flatMap((k) => k.steps)))];
    }
    const plot = linePlot({ key, name, about: about || key, series, span, marks, choose, point });
    plots.push(plot);
    return plot;
  };
  const main = METRICS.map(draw);
  const drawn = new Set(METRICS.map(([key]) => key));
  const others = [...new Set(logged.flatMap(({ run }) => Object.keys(run.curves.values)))].filter((key) => !drawn.has(key)).sort();
  const more = el("details", { class: "further" }, el("summary", {}, `all other metrics (${others.length})`));
  more.addEventListener("toggle", () => {
    if (more.open && more.children.length === 1) more.append(el("div", { class: "plots" }, others.map((key) => draw([key, key, key]))));
  });
  const every = Math.max(...logged.map(({ run }) => run.curves.every));
  return el("div", {}, alarmLines(), el("div", { class: "plots" }, main),
    el("p", { class: "legend-line" }, `steps ${span[0]} to ${span[1]}; ticks: recorded rollouts, click to open them; dotted: mean of the first ten steps`,
      every > 1 && `; each point is the mean of ${every} steps`, "."), others.length > 0 && more);
}
