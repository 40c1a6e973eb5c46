// What the reader noted about rollouts and tokens of the first run. Under `gear report --watch` the server keeps the notes in
// a file beside the run; in a page from disk they live as long as the page is open, and can be saved as that file.

const LONGEST_NOTE = 4000;
const notes = new Map();
let unsaved = false;

const noteKey = (step, group, rollout, token) => [step, group, rollout, token ?? ""].join("/");
const keyOfPlace = ({ group, rollout, token }) => noteKey(index.groups[group].step, index.groups[group].group, rollout + 1, token);

function takeNotes(list) {
  notes.clear();
  for (const note of list) notes.set(noteKey(note.step, note.group, note.rollout, note.token), note);
  set("notes", (state.notes ?? 0) + 1);
}

async function askForNotes(request) {
  const answer = await fetch("notes", request).catch(() => { throw new Error("the server of this page has ended"); });
  const content = await answer.json().catch(() => { throw new Error(`the note was not taken (${answer.status})`); });
  if (content.error) throw new Error(content.error);
  takeNotes(content.notes);
}

async function saveNote(where, text) {
  const { step, group } = index.groups[where.group];
  const note = { step, group, rollout: where.rollout + 1, token: where.token ?? null, text };
  if (index.live)
    return askForNotes({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(note) });
  const others = [...notes.values()].filter((other) => noteKey(other.step, other.group, other.rollout, other.token) !== keyOfPlace(where));
  unsaved = true;
  takeNotes(text.trim() ? [...others, note] : others);
}

function noteEditor(where) {
  if (where.run) return null;
  const text = el("textarea", { rows: 3, maxlength: LONGEST_NOTE, "aria-label": "Note" });
  text.value = notes.get(keyOfPlace(where))?.text ?? "";
  const said = el("span", { class: "muted", role: "status" });
  const save = (value) => saveNote(where, value).then(
    () => { text.value = value; said.textContent = value.trim() ? "saved" : "removed"; },
    (error) => said.replaceChildren(...visible(error.message)));
  return el("details", { class: "note-editor", open: !!text.value }, el("summary", {}, "note"), text,
    el("div", { class: "actions" },
      el("button", { type: "button", class: "quiet", onclick: () => save(text.value) }, "save note"),
      el("button", { type: "button", class: "quiet", onclick: () => save("") }, "remove"), said));
}

const notesOf = (step, group, rollout) =>
  [...notes.values()].filter((note) => note.step === step && note.group === group && note.rollout === rollout)
    .sort((a, b) => (a.token ?? -1) - (b.token ?? -1));

// The tokens that have a note, and the notes themselves at the foot of their rollout.
function markNotes(card) {
  const list = card.querySelector(".card-notes");
  if (!list || card.dataset.run !== "0") return;
  const { step, group } = index.groups[list.dataset.group], rollout = Number(card.dataset.rollout);
  card.querySelectorAll(".t.noted").forEach((node) => node.classList.remove("noted"));
  list.replaceChildren(...notesOf(step, group, rollout + 1).map((note) => {
    if (note.token !== null) card.querySelector(`.tokens .t[data-i="${note.token}"]`)?.classList.add("noted");
    return noteLine(note, Number(list.dataset.group), note.token === null ? "rollout" : `token ${note.token}`);
  }));
}

function noteLine(note, group, name) {
  const place = group >= 0 && index.groups[group].rollouts.length >= note.rollout;
  const where = { group, rollout: note.rollout - 1, token: note.token };
  return el("li", {}, place ? placeLink(where, {}, name) : el("span", { class: "muted", title: "not on this page" }, name), " ",
    el("span", { class: "note-text" }, visible(note.text, true)));
}

function notesSection() {
  const list = el("ul", { class: "note-list" });
  const how = el("p", { class: "legend-line" });
  const save = el("button", { type: "button", class: "quiet", onclick: () => {
    download("notes.json", "application/json", JSON.stringify({ schema: "gear_rl.notes", version: 1, notes: [...notes.values()] }, null, 1));
    unsaved = false;
  } }, "save as notes.json");
  const draw = () => {
    const all = [...notes.values()].sort((a, b) => a.step - b.step || a.group - b.group || a.rollout - b.rollout || (a.token ?? -1) - (b.token ?? -1));
    list.replaceChildren(...all.map((note) => {
      const group = index.groups.findIndex((g) => g.step === note.step && g.group === note.group);
      return noteLine(note, group, `step ${note.step}, group ${note.group}, rollout ${note.rollout}${note.token === null ? "" : `, token ${note.token}`}`);
    }));
    how.replaceChildren(all.length ? plural(all.length, "note") : "None yet: click a token, or open the details of a rollout. ",
      index.live ? all.length ? ", kept in a file beside the run. " : "" : all.length ? ". They are lost when this page closes. Put them into the run's folder, and the next report has them: " : "",
      all.length ? save : "");
    document.querySelectorAll(".card").forEach(markNotes);
  };
  when("notes", draw);
  takeNotes(index.notes);
  draw();
  if (index.live) askForNotes().catch((error) => how.replaceChildren(...visible(error.message)));
  else addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
  return el("div", {}, how, list);
}
