"""`gear report --watch`: a real training in a real browser; and the small server, which trusts no one."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time

import pytest
from forked import Forked
from report_samples import write_agents

from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.report import collect, open_source
from gear_rl.report.notes import LONGEST_NOTE, MOST_NOTES, SCHEMA, Notes, checked_note, notes_path
from gear_rl.report.sources import NothingRecorded
from gear_rl.report.watch import LONGEST_REQUEST, Server

STEPS = ["train.steps=5000", "train.prompts=2", "train.generations=2", "train.record_every=1", "train.eval_rows=2"]


def test_a_training_is_followed_until_one_ctrl_c(browse, tmp_path, capsys):
    run = tmp_path / "run"
    training = Forked(["train", "--out", run, "--credit", "grpo", *[word for s in STEPS for word in ("--set", s)]])
    seen: list[object] = []

    def read() -> None:
        try:
            look(browse, run, training, capsys)
        except BaseException as error:
            seen.append(error)
        os.kill(os.getpid(), signal.SIGINT)

    reader = threading.Thread(target=read)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, it is ignored
    try:
        while not (run / "config.json").exists() and training.running():
            time.sleep(0.05)
        reader.start()
        assert main(["report", str(run), "--watch"]) == 0
        reader.join(30)
        assert not seen, seen
        assert capsys.readouterr().out == "gear report: ended.\n"
    finally:
        signal.signal(signal.SIGINT, before)
        training.kill()
        training.wait()


def look(browse, run, training, capsys) -> None:
    """What a reader of the page sees and does while the training goes on."""
    said = ""
    while not said.endswith("\n"):
        said += capsys.readouterr().out
        time.sleep(0.02)
    assert said.startswith(f"gear report: following {run} at http://127.0.0.1:") and "Ctrl-C" in said
    shown = browse(said.split(" at ")[1].split()[0])
    shown.wait(lambda: version_of(shown)[0])
    first, rollouts = version_of(shown)
    shown.wait(lambda: version_of(shown)[0] > first + 1, seconds=60)  # it has loaded itself, twice
    shown.wait(lambda: version_of(shown)[1] > rollouts)
    assert training.running()

    # While a token is looked at, the page stays as it is, and says that there is more.
    shown.wait(lambda: wrote_note(shown), seconds=60)
    version = version_of(shown)[0]
    shown.wait((run / "notes.json").exists)
    (note,) = json.loads((run / "notes.json").read_text())["notes"]
    assert (note["rollout"] >= 1, note["token"], note["text"]) == (True, 0, "Here.")
    shown.wait(lambda: shown.all("#reload"), seconds=60)
    assert version_of(shown)[0] == version
    shown.click("#reload")
    shown.wait(lambda: version_of(shown)[0] > version and has_note(shown))
    shown.driver.get("about:blank")  # or it would ask the server after its end


def version_of(shown) -> list:
    """Number of the page and of its rollouts; 0 while it loads."""
    try:
        return shown.js(
            """const index = document.getElementById('index');
               if (!index || !document.documentElement.dataset.readyAfter) return [0, 0];
               const { live, runs } = JSON.parse(index.textContent);
               return [live, runs[0].rollouts];"""
        )
    except Exception:  # the page went away under the question
        return [0, 0]


def wrote_note(shown) -> bool:
    """Not where the page was loading itself again just then: before a token is pinned, it may."""
    try:
        if not pinned(shown):
            return False
        shown.click("#inspector summary")
        shown.one("#inspector textarea").send_keys("Here.")
        shown.click("#inspector .note-editor button")
        return True
    except Exception:
        return False


def has_note(shown) -> bool:
    """The note stands in the list, and the address still names its token."""
    return shown.js(
        """const notes = document.getElementById('reader-notes');
           return Boolean(notes && notes.textContent.includes('Here.') && location.hash.endsWith('&token=0'));"""
    )


def pinned(shown) -> bool:
    """A token was clicked and its values stay: a page that was already loading itself again would lose them."""
    try:
        shown.js("document.querySelector('.card[data-filled] .t').click()")
        time.sleep(1)
        return shown.one("#inspector").is_displayed()
    except Exception:
        return False


# ---------------------------------------------------------------------------------------------------- the server
@pytest.fixture
def server(tmp_path):
    server = Server(0, Notes(tmp_path / "notes.json"))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server, path="", *, method="GET", body=None, secret=None, **headers):
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    names = {"Host": f"127.0.0.1:{port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/{secret or server.secret}/{path}", body, names)
    answer = connection.getresponse()
    return answer.status, answer.read()


def note(server, **fields):
    own = {"Origin": f"http://127.0.0.1:{server.server_address[1]}", "Content_Type": "application/json"}
    body = json.dumps({"step": 0, "group": 0, "rollout": 1, "text": "x", **fields})
    return ask(server, "notes", method="POST", body=body, **own)


def test_only_the_holder_of_the_address_is_served(server):
    server.show(b"<p>page</p>")
    assert ask(server) == (200, b"<p>page</p>")
    assert ask(server, Host="localhost:1234")[0] == 200  # through a tunnel
    assert ask(server, "state") == (200, b'{"version": 1, "message": "", "quiet": 0}')
    assert server.server_address[0] == "127.0.0.1" and len(server.secret) >= 20
    for answer in (ask(server, secret="other"), ask(server, Host="evil.example"), ask(server, "../../etc/passwd")):
        assert answer[0] == 404
    body = b'{"step": 0, "group": 0, "rollout": 1, "text": "x"}'
    json_type = {"Content_Type": "application/json"}
    assert ask(server, "notes", method="POST", body=body, **json_type)[0] == 403  # no origin
    assert ask(server, "notes", method="POST", body=body, Origin="http://evil.example", **json_type)[0] == 403
    assert not server.notes.path.exists()


def test_before_the_first_rollout_it_says_what_it_waits_for(server):
    server.message = "<script>x</script>\ud800"
    status, page = ask(server)
    assert status == 200 and b"&lt;script&gt;x" in page and page.count(b"<script") == 1 and b"location.reload()" in page


def test_notes_are_checked_bounded_and_kept_whole(server):
    hostile = "</script><script>window.hacked = 1</script>\x00\ud800"
    assert note(server, text=hostile)[0] == 200 and note(server, token=7, text="seven")[0] == 200
    assert [n.text for n in server.notes.read()] == [hostile, "seven"]
    assert note(server, token=7, text="eight")[0] == 200 and note(server, text=" ")[0] == 200
    assert json.loads(ask(server, "notes")[1]) == {
        "notes": [{"step": 0, "group": 0, "rollout": 1, "token": 7, "text": "eight"}]
    }
    long = "x" * (LONGEST_NOTE + 1)
    for bad in ({"text": long}, {"text": 3}, {"step": -1}, {"token": 1.5}, {"path": "/etc"}, {"group": True}):
        status, answer = note(server, **bad)
        assert status == 409 and json.loads(answer)["error"].startswith("note: ")
    assert note(server, text="x" * LONGEST_REQUEST)[0] == 413
    rows = [{"step": i, "group": 0, "rollout": 1, "token": None, "text": "x"} for i in range(MOST_NOTES)]
    server.notes.path.write_text(json.dumps({"schema": SCHEMA, "version": 1, "notes": rows}))
    assert note(server, step=MOST_NOTES)[0] == 409 and len(server.notes.read()) == MOST_NOTES
    for content in ("[]", "{", '{"schema": "other"}', json.dumps({"schema": SCHEMA, "version": 1, "notes": [{"step": 0}]})):
        server.notes.path.write_text(content)
        assert note(server)[0] == 409 and server.notes.path.read_text() == content  # never overwritten


def test_notes_lie_beside_their_run(tmp_path):
    assert notes_path(tmp_path) == tmp_path / "notes.json"
    assert notes_path(tmp_path / "a.jsonl") == tmp_path / "a.notes.json"
    with pytest.raises(GearError, match="must be an object"):
        checked_note([], "x")


# ---------------------------------------------------------------------------------------------------- files in the making
def test_a_line_being_written_is_left_for_the_next_time(tmp_path):
    record = write_agents(tmp_path / "rollouts.jsonl", steps=1, groups=1)
    text = record.read_text()
    record.write_text(text[:-100])
    assert collect([open_source(record, growing=True)]).runs[0].rollouts == 3
    with pytest.raises(GearError, match="cut off"):
        collect([open_source(record)])
    record.write_text(text.splitlines(keepends=True)[0])
    with pytest.raises(NothingRecorded):
        collect([open_source(record, growing=True)])


def test_what_cannot_be_watched_is_said_at_once(tmp_path, capsys, server):
    record = str(write_agents(tmp_path / "r.jsonl", steps=1, groups=1))
    taken = str(server.server_address[1])
    for words, message in [
        ([str(tmp_path / "none"), "--watch"], "no run or record"),
        ([str(tmp_path), "--watch"], "no config.json"),
        ([record, "--watch", "-o", "x.html"], "--watch writes no file"),
        ([record, "--watch", "--format", "json"], "--watch writes no file"),
        ([record, "--port", "8000"], "--port is the port of --watch"),
        ([record, "--watch", "--port", taken], f"--port {taken}: address already in use"),
        ([record, "--watch", "--port", "70000"], "at most 65535"),
    ]:
        assert main(["report", *words]) == 2
        assert message in capsys.readouterr().err
