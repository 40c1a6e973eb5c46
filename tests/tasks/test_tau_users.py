"""τ-bench's users: the script, an endpoint (a real server on this machine), a local model."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tau_sample

from gear_rl.errors import GearError
from gear_rl.tasks.tau import TauRetail, user_models
from gear_rl.tasks.tau.airline import AirlineTools
from gear_rl.tasks.tau.retail import RetailTools
from gear_rl.tasks.tau.user import OPENING, STOP, ScriptedUser, first_person


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tau_sample.write_sample(tmp_path_factory.mktemp("tau"), {"retail": RetailTools, "airline": AirlineTools})


def test_the_scripted_user():
    user = ScriptedUser("You are Mia and your zip code is 10001. You'd like what suits you; tell you why.", patience=3)
    assert user.opening() == "I am Mia and my zip code is 10001. I'd like what suits I; tell me why."
    assert user.reply("Do you confirm the change?") == "Yes, please go ahead."
    assert user.reply("Could you provide your zip code?").startswith("This is all I know: I am Mia")
    assert user.reply("It is done.") == STOP
    assert user.reply("Shall I proceed?") == STOP  # out of patience
    assert first_person("You're late. you were there.") == "I'm late. I was there."


class _Endpoint(BaseHTTPRequestHandler):
    replies: list = []  # noqa: RUF012
    seen: list = []  # noqa: RUF012

    def do_POST(self):
        self.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = self.replies.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *_):
        pass


def test_a_user_behind_an_endpoint(folder, monkeypatch):
    monkeypatch.setattr(user_models.time, "sleep", lambda seconds: None)
    said = [{"choices": [{"message": {"content": text}}]} for text in ("My order is #W1.", f"Thanks {STOP}")]
    _Endpoint.replies[:] = [(500, b"busy"), (200, said[0]), (200, b"<html>"), (429, b""), (200, said[1]), (404, b"no")]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        with pytest.raises(GearError, match="user_model"):
            TauRetail(data=str(folder), user=url)
        task = TauRetail(data=str(folder), user=url, user_model="m")
        row = task.rows("test", None)[0]
        episode = task.episode(row)
        assert episode.reply("Which order?") == [{"role": "user", "content": "My order is #W1."}]
        assert episode.reply("Done, 1020.1.") is None and episode.ended
        assert _Endpoint.seen[0]["model"] == "m" and "cancel your order" in _Endpoint.seen[0]["messages"][0]["content"]
        assert task.concurrent_replies > 1
        with pytest.raises(GearError, match=r"status 404 \(tried 1 times\)"):
            task.episode(row).reply("Hello?")
        with pytest.raises(GearError, match="scripted user"):
            task.reference(row)
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(GearError, match=r"does not answer.*tried 5"):
        task.episode(row).reply("Hello?")
    with pytest.raises(GearError, match="write script, an endpoint"):
        TauRetail(data=str(folder), user="gpt")


def test_a_local_model_as_user(folder, workshop):
    """The embedded model says nothing sensible here; that it speaks, and only when asked, is what counts."""
    task = TauRetail(data=str(folder), user=workshop.default_model())
    row = task.rows("test", None)[0]
    assert row["prompt"][1]["content"] == OPENING
    reply = task.episode(row).reply("hello")
    assert reply is None or isinstance(reply[0]["content"], str)
