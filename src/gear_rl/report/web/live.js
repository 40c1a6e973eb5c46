// The page of `gear report --watch`: it asks its server for news, and shows them by loading itself again where it stood. While
// a reader looks at a token, writes or filters, it only says that there is something new. A run that has ended, or whose files
// have not changed for long, is not called live.

const LIVE_EVERY = 1000; // milliseconds
const LIVE_QUIET = 60; // seconds
const kept = (() => {
  try {
    return (index.live && JSON.parse(sessionStorage.getItem("gear-report"))) || {};
  } catch {
    return {};
  }
})();

function reloadHere() {
  writeHash();
  const theme = document.documentElement.dataset.theme ?? "auto";
  sessionStorage.setItem("gear-report", JSON.stringify({ scroll: scrollY, theme, follow: state.follow }));
  location.reload();
}

const readerIsBusy = () => state.pinned || state.matching || document.querySelector("dialog[open], details.siblings[open]") ||
  document.activeElement?.matches("input:not(#follow), select, textarea");

function liveWords({ message, quiet }) {
  if (message) return [true, visible(message)];
  if (index.runs.every((run) => run.evaluation.after)) return [true, "the training has ended"];
  const minutes = Math.floor(quiet / 60);
  return quiet < LIVE_QUIET ? [false, "live"] : [true, `no change for ${minutes < 120 ? plural(minutes, "minute") : plural(Math.floor(minutes / 60), "hour")}`];
}

function liveLine() {
  state.follow = kept.follow ?? true;
  const said = el("span", { class: "live-said", role: "status" });
  const tell = (still, ...words) => {
    said.classList.toggle("still-run", Boolean(still));
    said.replaceChildren(...words.flat());
  };
  tell(...liveWords({ quiet: 0 }));
  const box = el("input", { type: "checkbox", id: "follow", checked: state.follow, onchange: (e) => { state.follow = e.target.checked; } });
  const ask = async () => {
    try {
      const news = await (await fetch("state", { cache: "no-store" })).json();
      if (news.version !== index.live && state.follow && !readerIsBusy()) return reloadHere();
      if (news.version !== index.live)
        tell(false, el("button", { type: "button", class: "quiet", id: "reload", onclick: reloadHere }, "there is more: load it"));
      else tell(...liveWords(news));
    } catch {
      tell(true, "the server has ended; this is its last page");
    }
    setTimeout(ask, LIVE_EVERY);
  };
  setTimeout(ask, LIVE_EVERY);
  return el("label", { class: "live", title: "load what is new by itself" }, box, "follow", said);
}

// Called once the first view is there.
function standWhereItStood() {
  if (!index.live || kept.scroll === undefined) return;
  history.scrollRestoration = "manual";
  scrollTo({ top: kept.scroll, behavior: "instant" });
}
