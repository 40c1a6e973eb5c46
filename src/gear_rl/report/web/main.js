// Puts the page together, and listens to the keys that work everywhere.

function legend() {
  const channel = channelOf(state.colour);
  const [down, up] = channel.key === "weight" ? ["less", "more"] : ["minus", "plus"];
  const steps = channel.two ? [[down, 1], [down, 0.5], ["none", 0], [up, 0.5], [up, 1]]
    : [["none", 0], ["more", 0.25], ["more", 0.5], ["more", 0.75], ["more", 1]];
  return [
    el("span", { class: "ramp", "aria-hidden": "true" }, steps.map(([tone, v]) => el("span", { class: `t ${tone}`, vars: { "--v": v } }, "\u2003"))),
    el("span", { class: "ramp-ends" }, channel.ends.map((end) => el("span", {}, end))),
    el("span", { class: "about" }, channel.name, ": ", channel.about, channel.unit ? ` (${channel.unit})` : "", "."),
  ];
}

function colouring() {
  const options = CHANNELS.map((channel, k) => {
    const why = whyMissing(channel);
    return { key: channel.key, name: channel.name, off: !!why, title: why ? `not here: ${why}` : `${channel.about}  [${k + 1}]` };
  });
  const buttons = choice("Colour tokens by", options, state.colour, (key) => set("colour", key));
  const explained = el("div", { class: "legend", id: "legend" }, legend());
  when("colour", (key) => {
    buttons.choose(key);
    explained.replaceChildren(...legend());
  });
  return el("div", { class: "colouring" }, buttons, explained);
}

const SIGNS = () => el("p", { class: "legend-line signs" },
  el("span", {}, el("i", { class: "sign adaptive" }), "adaptive segment, its onset flagged"), el("span", {}, el("i", { class: "sign plain" }), "other segment"),
  el("span", {}, el("span", { class: "tool inline" }, "tool"), " not sampled"),
  measuredTurns.length > 0 && el("span", {}, measuredBadge(measuredTurns[0]), "what the turn did to the reward, measured"),
  el("span", {}, el("kbd", {}, "←"), el("kbd", {}, "→"), " token ", el("kbd", {}, "↑"), el("kbd", {}, "↓"), " segment ",
    el("kbd", {}, "j"), el("kbd", {}, "k"), " group ", el("kbd", {}, "1"), "–", el("kbd", {}, String(CHANNELS.length)), " colour ", el("kbd", {}, "/"), " search"));

function themeSwitch() {
  const names = ["auto", "light", "dark"];
  const before = kept.theme ?? "auto";
  if (before !== "auto") document.documentElement.dataset.theme = before;
  return choice("Theme", names.map((key) => ({ key, name: key })), before, function pick(key) {
    if (key === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = key;
    byId("theme").choose(key);
  });
}

function shortcuts(list) {
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea, dialog") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "j") list.move(1);
    else if (event.key === "k") list.move(-1);
    else if (event.key === "/") {
      event.preventDefault();
      byId("filter-text").focus();
    } else if (/^[1-9]$/.test(event.key)) {
      const channel = CHANNELS[Number(event.key) - 1];
      if (channel && !whyMissing(channel)) set("colour", channel.key);
    }
  });
}

// A still picture: no controls, a few telling rollouts. `gear report --format png` photographs it, `--format svg` takes it as text.
async function figure(kind) {
  Object.assign(document.documentElement.dataset, { figure: "true", theme: "light" });
  const main = still(index.groups[state.group]);
  byId("page").append(main);
  // All at once and without waiting for frames: a headless browser may draw none before the picture is taken.
  await Promise.all([...document.querySelectorAll(".card")].map((c) => c.fill?.()));
  document.documentElement.dataset.height = Math.ceil(document.body.getBoundingClientRect().height);
  if (kind === "svg") document.documentElement.dataset.svg = btoa(Array.from(new TextEncoder().encode(asSvg(main)), (byte) => String.fromCharCode(byte)).join(""));
}

function still(group) {
  const items = group.rollouts.map((perRun, i) => ({ i, facts: anyFacts(perRun) })).sort(byReward);
  const few = severalRuns ? [items[0], items[items.length - 1]] : [...items.slice(0, 2), ...items.slice(-2)];
  const numbers = [...new Set(few.map(({ i }) => i))];
  const run = index.runs[0];
  return el("main", { class: "still" },
    el("div", { class: "still-head" }, el("b", {}, index.runs.map((r) => r.name).join(", ")), ` on ${run.task} · step ${group.step}, group ${group.group}`,
      el("div", { class: "legend" }, legend())), severalRuns ? matrix(group, numbers) : sides(group, numbers));
}

function ready() {
  const cards = [...document.querySelectorAll(".card")].filter((c) => c.fill);
  const inView = (c) => c.getBoundingClientRect().top < innerHeight && c.getBoundingClientRect().bottom > 0;
  if (!cards.length || cards.some((c) => !c.dataset.filled && inView(c))) return requestAnimationFrame(ready);
  requestAnimationFrame(() => {
    standWhereItStood();
    document.documentElement.dataset.readyAfter = Math.round(performance.now());
  });
}

function start() {
  if (!globalThis.DecompressionStream || !Array.prototype.with || !CSS.supports("color", "color-mix(in srgb, red, blue)")) {
    byId("page").append(el("p", {}, "This browser is too old for this page: Chrome or Edge 111, Firefox 115, Safari 16.4, or newer."));
    return;
  }
  const { group, colour, ...place } = readHash();
  Object.assign(state, { group, colour });
  if (location.hash.startsWith("#figure")) return figure(location.hash.slice(8));
  const theme = themeSwitch();
  theme.id = "theme";
  const list = groupList();
  byId("page").append(pageHead(theme),
    el("main", {},
      el("section", { id: "rollouts" }, el("h2", {}, "Rollouts"), colouring(), SIGNS(),
        el("div", { class: "explorer" },
          el("aside", {}, filterPanel(), list.nodes),
          groupPane())),
      el("section", { id: "clusters" }, el("h2", {}, "Blamed steps"), clustersSection()),
      measuredTurns.length > 0 && el("section", { id: "measured" }, el("h2", {}, "Measured turns"), measuredSection()),
      el("section", { id: "shares" }, el("h2", {}, "Share of credit"), sharesSection()),
      el("section", { id: "training" }, el("h2", {}, "Training"), trainingSection()),
      el("section", { id: "reader-notes" }, el("h2", {}, "Notes"), notesSection())),
    el("footer", {}, `Made by ${index.made_by}. `, index.live ? "This page is of a run that may be going on." : "This file is complete in itself: it fetches nothing."), inspector.panel);
  inspector.listen(document.body);
  list.reveal();
  shortcuts(list);
  addEventListener("hashchange", () => {
    const { group, colour, ...place } = readHash();
    set("colour", colour);
    if (place.rollout !== null) byId("pane").reveal({ group, ...place });
    else set("group", group);
  });
  if (place.rollout !== null) byId("pane").reveal({ group, ...place });
  requestAnimationFrame(ready);
}

start();
