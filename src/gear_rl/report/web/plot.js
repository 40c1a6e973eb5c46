// Small line plots, one per metric, all with the same steps: pointing at one shows the same step in all.

const runKey = (r) => svg("svg", { class: `key run-${r % 6}`, viewBox: "0 0 18 8", "aria-hidden": "true" },
  svg("path", { d: "M0 4H18", class: "line" }));

// A running mean over a twentieth of the run: the thin line behind it is what was logged.
function smoothed(values) {
  const reach = Math.floor(values.length / 40);
  if (reach < 1) return values;
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter((v) => v !== null);
    return near.length ? near.reduce((a, b) => a + b, 0) / near.length : null;
  });
}

function rangeOf(series) {
  const values = series.flatMap(({ values }) => values).filter((v) => v !== null);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (low >= 0 && low < 0.6 * high) low = 0;
  if (low === 0 && high > 0.4 && high <= 1) high = 1;
  // A tenth of the value at least: or rounding noise would fill the plot like a real change.
  const room = Math.max(Math.abs(low), Math.abs(high)) * 0.1 || 0.1;
  const pad = Math.max(0, room - (high - low)) / 2;
  return [low - pad, high + pad];
}

// Steps → unbroken spells of them, [first, last] each.
function spells(steps) {
  const found = [];
  for (const step of [...steps].sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && step <= last[1] + 1) last[1] = step;
    else found.push([step, step]);
  }
  return found;
}

const PLOT_WIDTH = 300, PLOT_HEIGHT = 72;

// series: [{run, steps, values}]; marks: {start, alarms, recorded}. `choose(step)` is called on a click.
function linePlot({ key, name, about, series, span, marks = {}, choose, point }) {
  const [first, last] = span, [low, high] = rangeOf(series);
  const x = (step) => (last > first ? (step - first) / (last - first) : 0.5) * PLOT_WIDTH;
  const y = (v) => PLOT_HEIGHT - ((v - low) / (high - low)) * PLOT_HEIGHT;
  const path = (steps, values) => {
    let d = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) pen = "M";
      else {
        d += `${pen}${x(steps[i]).toFixed(1)} ${y(v).toFixed(1)}`;
        pen = "L";
      }
    });
    return d;
  };
  const cross = svg("path", { class: "cross", d: "" });
  const now = el("span", { class: "now" });
  const picture = svg("svg", { viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    spells(marks.alarms ?? []).map(([from, to]) => svg("rect", { class: "alarm-band", "data-from": from, "data-to": to,
      x: x(from - 0.5), width: x(to + 0.5) - x(from - 0.5), y: 0, height: PLOT_HEIGHT })),
    svg("path", { class: "floor", d: `M0 ${PLOT_HEIGHT}H${PLOT_WIDTH}` }),
    (marks.start ?? []).filter((v) => v >= low && v <= high).map((v) => svg("path", { class: "start", d: `M0 ${y(v)}H${PLOT_WIDTH}` })),
    (marks.recorded ?? []).map((step) => svg("path", { class: "recorded", d: `M${x(step)} ${PLOT_HEIGHT}v-4` })),
    series.flatMap(({ run, steps, values }) => [
      svg("path", { class: `line raw run-${run % 6}`, d: path(steps, values) }),
      svg("path", { class: `line run-${run % 6}`, d: path(steps, smoothed(values)) })]), cross);
  const ringing = marks.alarms?.length ? el("span", { class: "alarm", title: `alarm at ${plural(marks.alarms.length, "step")}` }, " ▲") : null;
  const readout = (step) => {
    const parts = series.map(({ run, steps, values }) => {
      let at = steps.length - 1;
      if (step !== null) at = steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(steps[best] - step) ? i : best), 0);
      const v = values[at];
      return el("span", { "data-run": run }, series.length > 1 && runKey(run), v === null ? "–" : short(v));
    });
    now.replaceChildren(...parts);
    cross.setAttribute("d", step === null ? "" : `M${x(step)} 0V${PLOT_HEIGHT}`);
  };
  const frame = el("div", { class: "frame" }, el("span", { class: "high" }, short(high)), el("span", { class: "low" }, short(low)), picture);
  const stepAt = (event) => {
    const { left, width } = picture.getBoundingClientRect();
    return Math.round(first + Math.max(0, Math.min(1, (event.clientX - left) / width)) * (last - first));
  };
  frame.addEventListener("pointermove", (event) => point(stepAt(event)));
  frame.addEventListener("pointerleave", () => point(null));
  if (choose) frame.addEventListener("click", (event) => choose(stepAt(event)));
  const figure = el("figure", { class: "plot", "data-metric": key, title: about },
    el("figcaption", {}, el("b", {}, name, ringing), now), frame);
  figure.readout = readout;
  readout(null);
  return figure;
}
