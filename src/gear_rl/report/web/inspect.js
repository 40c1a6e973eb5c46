// The exact values of one token: by pointer, by touch, or by keyboard. With several runs, the same token of each.

const inspector = (() => {
  const panel = el("div", { id: "inspector", role: "status", hidden: true });
  let current = null, pinned = false;
  panel.addEventListener("toggle", () => current && place(current), true); // a note being written needs more room

  const twins = (token) => {
    const own = token.closest(".card");
    return [...document.querySelectorAll(`.card[data-aligned="${own.dataset.aligned}"]`)].filter((c) => c.rollout);
  };

  function segmentOf(rollout, i) {
    const number = rollout.segments[i];
    let start = i, end = i;
    while (start > 0 && rollout.segments[start - 1] === number) start--;
    while (end < rollout.n - 1 && rollout.segments[end + 1] === number) end++;
    const where = start === end ? "this token alone" : `tokens ${start}–${end}`;
    const kind = rollout.onsets[start] ? (start === i ? ", adaptive, its onset is here" : ", adaptive") : "";
    return `segment ${number}: ${where}${kind}`;
  }

  function placeOf(token) {
    const { rollout, run } = token.closest(".card").dataset;
    return { run: Number(run), rollout: Number(rollout), token: Number(token.dataset.i) };
  }

  // What one can do with a token whose values are held open.
  function actions(token) {
    const where = { group: state.group, ...placeOf(token) };
    return el("div", { class: "actions" }, placeLink(where, {}, "link to this token"), noteEditor(where));
  }

  function content(token) {
    const own = token.closest(".card"), rollout = own.rollout, i = Number(token.dataset.i);
    const text = rollout.texts[i];
    const head = el("div", { class: "inspected" }, el("span", { class: "said-text" }, text.length > LONG_TOKEN ? shortened(text) : alone(text)),
      el("span", { class: "muted" }, `id ${rollout.ids[i]} · token ${i}` + (rollout.mask[i] ? ` · turn ${rollout.turns[i]}` : "")));
    const nodes = [head];
    if (text.length > LONG_TOKEN)
      nodes.push(el("button", { type: "button", class: "quiet", onclick: () => showWhole(text) }, `read all ${count(text.length)} characters`));
    if (!rollout.mask[i]) return [...nodes, el("p", { class: "muted" }, "not sampled by the policy: no signals, no credit")];
    nodes.push(el("p", { class: "muted" }, segmentOf(rollout, i)));
    const measured = own.measured.find(({ turn }) => turn === rollout.turns[i]);
    if (measured) nodes.push(measuredLine(measured));
    const cards = severalRuns ? twins(token) : [own];
    const names = [...new Set(cards.flatMap((c) => valuesAt(c.rollout, i).map(([name]) => name)))];
    const columns = cards.map((c) => new Map(valuesAt(c.rollout, i).map(([name, value, unit]) => [name, { value, unit }])));
    const table = el("table", {});
    if (cards.length > 1) table.append(el("tr", {}, el("th", {}), cards.map((c) =>
      el("th", { scope: "col" }, runKey(c.dataset.run), visible(index.runs[c.dataset.run].name)))));
    for (const name of names) {
      const unit = columns.map((c) => c.get(name)?.unit).find(Boolean);
      table.append(el("tr", { "data-name": name }, el("th", { scope: "row" }, visible(name), unit && el("small", {}, ` ${unit}`)),
        columns.map((c) => el("td", {}, c.get(name)?.value ?? "–"))));
    }
    nodes.push(table);
    return nodes;
  }

  function showWhole(text) {
    const dialog = el("dialog", { class: "whole" }, el("pre", {}, visible(text, true)),
      el("form", { method: "dialog" }, el("button", {}, "close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  function place(token) {
    if (matchMedia("(max-width: 720px)").matches) return; // docked by the style
    const box = token.getClientRects()[0] ?? token.getBoundingClientRect();
    const { width, height } = panel.getBoundingClientRect();
    const below = box.bottom + 8 + height < innerHeight;
    panel.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.left - 12))}px`;
    panel.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - height - 8)}px`;
  }

  function unmark() {
    document.querySelectorAll(".t.here, .t.echo").forEach((node) => node.classList.remove("here", "echo"));
  }

  function show(token, { pin = false } = {}) {
    current = token;
    pinned = pin;
    unmark();
    token.classList.add("here");
    for (const twin of twins(token)) {
      const echo = twin.querySelector(`.t[data-i="${token.dataset.i}"]`);
      if (echo && echo !== token) echo.classList.add("echo");
    }
    panel.replaceChildren(...content(token));
    const hasPlace = pin && token.closest(".card")?.dataset.rollout;
    if (hasPlace) panel.append(actions(token));
    state.pinned = hasPlace ? placeOf(token) : null;
    if (hasPlace) writeHash();
    panel.classList.toggle("pinned", pin);
    panel.hidden = false;
    place(token);
  }
  function hide() {
    if (state.pinned) {
      state.pinned = null;
      writeHash();
    }
    current = null;
    pinned = false;
    panel.hidden = true;
    unmark();
  }

  // The keyboard walks the tokens of a card; up and down go from segment to segment.
  function walk(token, key) {
    const tokens = [...token.closest(".tokens").querySelectorAll(".t")];
    const at = tokens.indexOf(token);
    const firsts = tokens.map((t, k) => (t.classList.contains("first") ? k : -1)).filter((k) => k >= 0);
    const target = {
      ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1,
      ArrowDown: firsts.find((k) => k > at), ArrowUp: firsts.findLast((k) => k < at),
    }[key];
    return tokens[target];
  }

  function listen(root) {
    root.addEventListener("pointerover", (event) => {
      const token = event.target.closest(".card .t");
      if (token && !pinned && event.pointerType !== "touch") show(token);
    });
    root.addEventListener("pointerout", (event) => {
      if (!pinned && event.target.closest(".card .t") && !event.relatedTarget?.closest?.(".t, #inspector")) hide();
    });
    root.addEventListener("click", (event) => {
      const token = event.target.closest(".card .t");
      if (token) {
        if (pinned && current === token) return hide();
        token.setAttribute("tabindex", "-1");
        token.focus({ preventScroll: true });
        show(token, { pin: true });
      } else if (pinned && !event.target.closest("#inspector, .map, button, a, select, input, dialog")) hide();
    });
    root.addEventListener("focusin", (event) => {
      if (event.target.matches(".card .t:focus-visible")) show(event.target, { pin: true });
    });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const token = event.target.closest?.(".card .t");
      const next = token && !event.altKey && !event.ctrlKey && !event.metaKey && walk(token, event.key);
      if (!next) return;
      event.preventDefault();
      token.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
      show(next, { pin: true });
    });
    addEventListener("scroll", () => current && (pinned ? place(current) : hide()), { passive: true, capture: true });
  }

  new ResizeObserver(() => pinned && place(current)).observe(panel); // a note, or a long answer to it, widens the panel

  return { panel, show, hide, listen, refresh: () => current && show(current, { pin: pinned }) };
})();
