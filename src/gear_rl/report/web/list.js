// The list of groups. Only the rows in sight exist: a thousand groups cost what twenty do.

const ROW = 58;

// A winner is filled, a loser hollow, a lucky winner half filled: no colour needed.
function mark(facts) {
  const lucky = facts.side > 0 && facts.success === false;
  const kind = lucky ? "lucky" : facts.side > 0 ? "won" : facts.side < 0 ? "lost" : "even";
  return svg("svg", { class: `mark ${kind}`, viewBox: "0 0 10 10", "aria-hidden": "true" },
    svg("rect", { x: 1, y: 1, width: 8, height: 8, rx: 2, class: "outline" }),
    kind !== "lost" && kind !== "even" && svg("rect", { x: 1, y: lucky ? 5 : 1, width: 8, height: lucky ? 4 : 8, rx: 2, class: "fill" }),
    kind === "even" && svg("path", { d: "M3 5h4", class: "outline" }));
}

function groupList() {
  let numbers = listed();
  const inner = el("div", { class: "rows" });
  const frame = el("div", { class: "list", tabindex: 0, role: "listbox", "aria-label": "Groups of rollouts" }, inner);
  const total = el("p", { class: "found", role: "status" });

  const row = (g, place) => {
    const group = index.groups[g];
    const facts = group.rollouts.map(anyFacts);
    const kept = state.matching?.[g];
    const scored = facts.filter((f) => f.reward !== null);
    const mean = scored.length ? scored.reduce((sum, f) => sum + f.reward, 0) / scored.length : null;
    return el("div", { class: "row", id: `row-${g}`, role: "option", "data-group": g, "aria-selected": String(g === state.group),
        "aria-label": `step ${group.step}, group ${group.group}, mean reward ${short(mean)}`, vars: { top: `${place * ROW}px` } },
      el("div", { class: "row-head" }, el("b", {}, `step ${group.step}`), ` · group ${group.group}`,
        group.alarm && el("span", { class: "alarm", title: "a guard raised an alarm at this step" }, " ▲ alarm"),
        el("span", { class: "row-reward" }, kept ? `${kept.length} of ${facts.length}` : `mean ${short(mean)}`)),
      el("div", { class: "marks" }, facts.slice(0, 32).map((f, i) => {
        const node = mark(f);
        if (kept && !kept.includes(i)) node.classList.add("out");
        return node;
      }), facts.length > 32 && `+${facts.length - 32}`),
      el("div", { class: "row-prompt" }, group.prompts > 1 && `${group.prompts} prompts: `, visible(group.prompt)));
  };

  // Rows that stay in sight stay the same nodes: one that is replaced between press and release would lose the click.
  let drawn = new Map();
  const draw = () => {
    const first = Math.max(0, Math.floor(frame.scrollTop / ROW) - 4);
    const last = Math.min(numbers.length, first + Math.ceil((frame.clientHeight || 600) / ROW) + 8);
    const wanted = new Map(numbers.slice(first, last).map((g, k) => [g, drawn.get(g) ?? row(g, first + k)]));
    for (const [g, node] of drawn) if (!wanted.has(g)) node.remove();
    for (const [g, node] of wanted) {
      node.setAttribute("aria-selected", String(g === state.group));
      if (!drawn.has(g)) inner.append(node);
    }
    drawn = wanted;
    frame.setAttribute("aria-activedescendant", `row-${state.group}`);
  };
  const refresh = () => {
    numbers = listed();
    inner.replaceChildren();
    drawn = new Map();
    inner.style.height = `${numbers.length * ROW}px`;
    frame.style.setProperty("--all", `${Math.max(1, numbers.length) * ROW + 1}px`); // few groups need no tall box
    const rollouts = numbers.reduce((sum, g) => sum + (state.matching ? state.matching[g].length : index.groups[g].rollouts.length), 0);
    total.replaceChildren(numbers.length ? `${plural(rollouts, "rollout")} in ${plural(numbers.length, "group")}` : "nothing matches");
    if (numbers.length && !numbers.includes(state.group)) set("group", numbers[0]);
    draw();
  };
  const reveal = () => {
    const place = numbers.indexOf(state.group);
    if (place < 0) return;
    const top = place * ROW, height = frame.clientHeight;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + ROW > frame.scrollTop + height) frame.scrollTop = Math.ceil((top + ROW - height) / ROW) * ROW;
    draw();
  };
  const move = (by) => {
    const place = numbers.indexOf(state.group) + by;
    if (place >= 0 && place < numbers.length) set("group", numbers[place]);
  };

  frame.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  frame.addEventListener("click", (event) => {
    const hit = event.target.closest(".row");
    if (hit) set("group", Number(hit.dataset.group));
  });
  frame.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(by);
  });
  when("group", reveal);
  when("matching", refresh);
  when("order", refresh);
  new ResizeObserver(draw).observe(frame);
  refresh();
  const pager = el("div", { class: "pager" },
    el("button", { type: "button", onclick: () => move(-1), "aria-label": "Previous group" }, "‹ previous"),
    el("button", { type: "button", onclick: () => move(1), "aria-label": "Next group" }, "next ›"));
  return { nodes: [total, frame, pager], move, reveal };
}
