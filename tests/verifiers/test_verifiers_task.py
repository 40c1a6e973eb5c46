"""Environments of verifiers as tasks: single turns, tools with state, and an environment that leads the exchange."""

from __future__ import annotations

import pytest

from gear_rl.errors import GearError
from gear_rl.tasks import make_task, replay
from gear_rl.tasks.base import Transcript
from gear_rl.tasks.verifiers.play import _messages


def call(drawer):
    return f'<tool_call>{{"name": "drawers_open", "arguments": {{"drawer": "{drawer}"}}}}</tool_call>'


def test_one_turn_with_its_rewards_as_channels_and_its_answer_as_hint():
    task = make_task("verifiers:gear_sums", config={"largest": 4})
    rows = task.rows("train", None)
    assert len(rows) + len(task.rows("test", None)) == 16
    assert not {row["id"] for row in rows} & {row["id"] for row in task.rows("test", None)}
    row = next(row for row in rows if row["prompt"][1]["content"] == "2 + 3 =")
    assert row["prompt"][0] == {"role": "system", "content": "Add."} and row["hint"] == row["answer"] == "5"
    right = replay(task, row, ["it is 5"])
    assert right.channels == {"right": 1.0, "short": 0.5} and right.reward == 1.5 and right.success
    wrong = replay(task, row, ["it is surely the number 6"])
    assert wrong.channels == {"right": 0.0, "short": 0.0} and not wrong.success


def test_tools_run_here_with_the_state_of_their_rollout():
    task = make_task("verifiers:gear_drawers", full_marks=0.7)
    row = next(row for row in [*task.rows("train", None), *task.rows("test", None)] if row["answer"] == "middle")
    assert '"name": "drawers_open"' in row["tools"]
    one, other = task.episode(row), task.episode(row)
    assert one.reply(call("top"))[0]["content"] == "nothing (1 opened)"
    assert other.reply(call("bottom"))[0]["content"] == "nothing (1 opened)"
    assert "there is no drawer" in one.reply(call("left"))[0]["content"]
    assert "there is no tool" in one.reply(call("top").replace("drawers_open", "close"))[0]["content"]
    assert "malformed" in one.reply("<tool_call>{</tool_call>")[0]["content"]
    found = one.reply(f"{call('middle')}{call('middle')}")
    assert found is None  # the task's own @stop: three drawers are open
    verdict = task.verdict(row, Transcript("", ["a"] * 5, one))
    assert verdict.channels == pytest.approx({"found": 0.0, "opened": -0.3})
    told = replay(task, row, [call("middle"), "it was in the middle drawer"])
    assert told.channels == pytest.approx({"found": 1.0, "opened": -0.1}) and told.success
    cut = task.verdict(row, Transcript("", [call("bottom"), "it was in the mid"], other, cut_off=True))
    assert cut.channels == pytest.approx({"found": 0.0, "opened": -0.1})


def test_an_environment_that_leads_the_exchange():
    task = make_task("verifiers:gear_guess", problems=8)
    rows = [*task.rows("train", None), *task.rows("test", None)]
    row = next(row for row in rows if row["answer"] == "6")
    assert [m["role"] for m in row["prompt"]] == ["system", "user"]
    episode = task.episode(row)
    assert episode.reply("7") == [{"role": "user", "content": "lower"}]
    assert episode.reply("4") == [{"role": "user", "content": "higher"}]
    assert episode.reply("6") is None
    verdict = task.verdict(row, Transcript("", ["7", "4", "6"], episode))
    assert verdict.success and verdict.channels == pytest.approx({"right": 1.0, "quick": 0.1 / 3})
    unfinished = task.episode(row)
    unfinished.reply("1")  # the sampler's limit of turns ends it here
    assert task.verdict(row, Transcript("", ["1"], unfinished)).channels["right"] == 0.0


def test_what_cannot_be_played_is_said_at_the_start(monkeypatch):
    with pytest.raises(GearError, match="no_such_set"):
        make_task("verifiers:no_such_set")
    with pytest.raises(GearError, match="largest"):
        make_task("verifiers:gear_sums", config={"largest": "many"})
    with pytest.raises(GearError, match="no 'solution'; it has"):
        make_task("verifiers:gear_sums", hint_field="solution")
    import gear_sums

    with monkeypatch.context() as other:  # what is found while rows are made is said with the task's name too
        other.setattr("gear_rl.tasks.verifiers.task.prompt_of", lambda data: _messages([{"role": "user", "content": []}]))
        with pytest.raises(GearError, match=r"task verifiers:gear_sums: .* images are not supported here\.$"):
            make_task("verifiers:gear_sums")

    async def setup(self, trace, runtime):
        return None

    monkeypatch.setattr(gear_sums.SumTask, "setup", setup)
    with pytest.raises(GearError, match="setup reads the runtime of a harness"):
        make_task("verifiers:gear_sums")
    monkeypatch.setattr(gear_sums.SumTask, "NEEDS_CONTAINER", True)
    with pytest.raises(GearError, match="run in a container"):
        make_task("verifiers:gear_sums")
