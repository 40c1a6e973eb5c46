// A rollout at one glance: a bar per token (or per few tokens, the largest of them), up for plus, down for minus, with
// hairlines between turns and ticks at onsets.

const MOST_BARS = 400, MAP_HEIGHT = 34;

function bars(rollout, channel) {
  const values = channel.values(rollout);
  const every = Math.max(1, Math.ceil(rollout.n / MOST_BARS));
  const found = [];
  for (let start = 0; start < rollout.n; start += every) {
    let best = { size: 0, tone: "plus" };
    for (let i = start; i < Math.min(rollout.n, start + every); i++) {
      if (!values || Number.isNaN(values[i])) continue;
      const level = channel.level(values[i]);
      if (level.size > best.size) best = level;
    }
    found.push(best);
  }
  return { found, every };
}

function minimap(rollout, channel) {
  const { found, every } = bars(rollout, channel);
  const down = (b) => b.tone === "minus" || b.tone === "less";
  const both = found.some((b) => down(b) && b.size > 0) && found.some((b) => !down(b) && b.size > 0);
  const onlyMinus = !both && found.some((b) => down(b) && b.size > 0);
  const zero = both ? MAP_HEIGHT / 2 : onlyMinus ? 3 : MAP_HEIGHT - 1;
  const reach = both ? MAP_HEIGHT / 2 - 3 : MAP_HEIGHT - 5;
  const paths = { plus: "", minus: "", more: "", less: "" };
  found.forEach((bar, k) => {
    const { size, tone } = bar;
    if (size <= 0) return;
    const height = Math.max(0.6, size * reach);
    paths[tone] += `M${k + 0.06} ${zero}h.88v${(down(bar) ? height : -height).toFixed(2)}h-.88z`;
  });
  let turns = "", onsets = "", tools = "";
  for (let i = 0; i < rollout.n; i++) {
    const x = i / every;
    if (i > 0 && rollout.mask[i] && rollout.turns[i] !== rollout.turns[i - 1]) turns += `M${x} 0V${MAP_HEIGHT}`;
    if (rollout.onsets[i]) onsets += `M${x + 0.5 / every} 0v4`;
    if (!rollout.mask[i]) tools += `M${x} ${zero}h${1 / every}`;
  }
  return svg("svg", { class: "minimap", viewBox: `0 0 ${Math.max(1, found.length)} ${MAP_HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "turn-lines", d: turns }),
    svg("path", { class: "zero", d: `M0 ${zero}H${found.length}` }),
    svg("path", { class: "tool-line", d: tools }),
    Object.keys(paths).map((tone) => svg("path", { class: `bar ${tone}`, d: paths[tone] })),
    svg("path", { class: "onset-ticks", d: onsets }));
}
