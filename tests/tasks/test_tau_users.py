"""τ-bench's users: the script, an endpoint (a real server on this machine), a local model."""

from __future__ import annotations

from pathlib import Path

import pytest
import tau_sample
from chat_server import message, serving

from gear_rl.errors import GearError
from gear_rl.tasks.tools.tau import TauRetail
from gear_rl.tasks.tools.tau.airline import AirlineTools
from gear_rl.tasks.tools.tau.retail import RetailTools
from gear_rl.tasks.tools.tau.user import OPENING, STOP, ScriptedUser, first_person


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


def test_a_user_behind_an_endpoint(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    said = iter(["<think>which?</think>My order is #W1.", f"Thanks {STOP}"])
    with serving(lambda body: message(next(said))) as server:
        with pytest.raises(GearError, match="user_model"):
            TauRetail(data=str(folder), user=server.url)
        task = TauRetail(data=str(folder), user=f"{server.url}/v1", user_model="m")
        row = task.rows("test", None)[0]
        episode = task.episode(row)
        server.trouble = [(429, "", {"Retry-After": "0.01"})]
        assert episode.reply("Which order?") == [{"role": "user", "content": "My order is #W1."}]
        assert episode.reply("Done, 1020.1.") is None and episode.ended
        asked = server.requests[0]
        assert asked["model"] == "m" and "cancel your order" in asked["messages"][0]["content"]
        assert server.headers[0]["Authorization"] == "Bearer secret" and len(server.requests) == 3
        assert task.concurrent_replies > 1
        server.trouble = [(404, "no", {})]
        with pytest.raises(GearError, match=r"HTTP 404 'no'.*task\.user_model"):
            task.episode(row).reply("Hello?")
        with pytest.raises(GearError, match="scripted user"):
            task.reference(row)
    with pytest.raises(GearError, match="no connection"):  # before anything is sampled
        TauRetail(data=str(folder), user=server.url, user_model="m")
    with pytest.raises(GearError, match="write script, an endpoint"):
        TauRetail(data=str(folder), user="gpt")


def test_a_local_model_as_user(folder, workshop):
    """The embedded model says nothing sensible here; that it speaks, and only when asked, is what counts."""
    task = TauRetail(data=str(folder), user=workshop.default_model())
    row = task.rows("test", None)[0]
    assert row["prompt"][1]["content"] == OPENING
    reply = task.episode(row).reply("hello")
    assert reply is None or isinstance(reply[0]["content"], str)
