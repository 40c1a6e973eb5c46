"""BFCL v3: data, environment and judge, on a small set of our own; on the benchmark itself where its data is at hand."""

from __future__ import annotations

import json
import stat
import sys
import time
from pathlib import Path

import bfcl_sample
import pytest

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError
from gear_rl.tasks.base import Transcript, replay
from gear_rl.tasks.tools.bfcl import Bfcl, checker
from gear_rl.tasks.tools.bfcl.calls import executable
from gear_rl.tasks.tools.bfcl.data import UNPASSABLE
from gear_rl.tasks.workers import process
from gear_rl.tasks.workers.process import Died

SHARED = Path(__file__).parents[3] / "shared" / "data" / "bfcl_v3"
judged = pytest.mark.skipif(
    "not __import__('importlib').util.find_spec('bfcl_eval')", reason="bfcl-eval is not installed"
)
SAMPLE = ",".join([*bfcl_sample.SINGLE, "multi_turn_base", "multi_turn_miss_func"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return bfcl_sample.write_sample(tmp_path_factory.mktemp("bfcl") / "data")


@pytest.fixture(scope="module")
def task(folder):
    task = Bfcl(data=str(folder), category=SAMPLE, seconds=5.0)
    yield task
    task.close()


def row_of(task: Bfcl, category: str) -> dict:
    return next(row for row in task.rows("test", None) if row["category"] == category)


@judged
@pytest.mark.parametrize("category", SAMPLE.split(","))
def test_reference_passes_and_nothing_fails(task, category):
    row = row_of(task, category)
    reference, empty = replay(task, row, task.reference(row)), replay(task, row, task.empty(row))
    assert reference.success and reference.reward == 1.0 and reference.first_wrong is None
    assert empty.success == empty.trivially_passable == (category == "irrelevance")
    if category.startswith("multi_turn"):
        assert sum(reference.turn_rewards) == pytest.approx(1.0) and len(reference.turn_rewards) == len(task.reference(row))


@judged
def test_agrees_with_the_official_functions_on_mutated_answers(folder):
    task = Bfcl(data=str(folder), category=SAMPLE)
    found = bfcl_sample.agreement(task, 60)
    task.close()
    assert all(agreed == compared for agreed, compared, _ in found.values()), found
    accepted = sum(entry[2] for (_, kind), entry in found.items() if kind == "mutated")
    rejected = sum(entry[1] - entry[2] for (_, kind), entry in found.items() if kind == "mutated")
    assert accepted > 50 and rejected > 200  # neither side of the comparison is empty


@judged
def test_a_dialogue_is_credited_turn_by_turn(task):
    row = row_of(task, "multi_turn_base")
    said = task.reference(row)
    assert len(said) == 8
    said[4] = str(
        ToolCall("mv", {"source": "notes.txt", "destination": "nowhere.txt"})
    )  # the second call of user turn 1
    verdict = replay(task, row, said)
    assert not verdict.success and verdict.channels["turns_right"] == pytest.approx(1 / 3)
    assert verdict.turn_rewards == pytest.approx([0, 0, 1 / 3, 0, 0, 0, 0, 0])
    assert verdict.first_wrong == 4
    early = replay(task, row, [*task.reference(row)[:1], *task.reference(row)[2:]])  # a reference call left out of turn 0
    assert early.first_wrong == 1 and sum(early.turn_rewards) == 0


@judged
def test_training_may_see_the_share_of_turns_that_were_right(folder):
    task = Bfcl(data=str(folder), category="multi_turn_base", reward="turns", max_turns=9)
    row = task.rows("test", 1)[0]
    reference = task.reference(row)
    first = reference.index("That is done.") + 1
    verdict = replay(task, row, reference[:first])
    assert (verdict.reward, verdict.success) == (pytest.approx(1 / 3), False)
    assert replay(task, row, reference).reward == 1.0 and task.max_turns == 9
    task.close()
    with pytest.raises(GearError, match="Did you mean 'turns'"):
        Bfcl(reward="turn")
    with pytest.raises(GearError, match="at least 1"):
        Bfcl(max_turns=0)


@judged
def test_the_environment_answers_calls_users_and_mistakes(task):
    episode = task.episode(row_of(task, "multi_turn_miss_func"))
    assert [m["role"] for m in episode.reply(str(ToolCall("cd", {"folder": "old"})))] == ["tool"]
    mixed = str(ToolCall("mkdir", {"dir_name": "new"})) + "<tool_call>{oops</tool_call>" + str(ToolCall("fly", {}))
    made, broken, unknown = (message["content"] for message in episode.reply(mixed))
    assert made == "None" and "malformed" in broken and "fly" in unknown
    assert "error" in episode.reply(str(ToolCall("cd", {"folder": 7, "x y": 1})))[0]["content"].lower()
    assert episode.reply("I made it.") == [{"role": "user", "content": "Move it."}]
    held_out = episode.reply("I lack a function for that.")
    assert held_out[0]["role"] == "user" and '"mv"' in held_out[0]["content"]
    assert '"mv"' not in row_of(task, "multi_turn_miss_func")["tools"]
    assert episode.malformed == 1 and episode.closed == 2


@judged
def test_too_many_steps_and_broken_off_turns_fail(task):
    row = row_of(task, "multi_turn_base")
    episode = task.episode(row)
    replies = [episode.reply(str(ToolCall("ls", {}))) for _ in range(21)]
    assert replies[19] is not None and replies[20] is None
    assert "20 steps" in episode.failed and not task.verdict(row, Transcript("", [""] * 21, episode)).success
    cut = Transcript("", task.reference(row_of(task, "simple")), None, cut_off=True)
    assert not task.verdict(row_of(task, "simple"), cut).success


@judged
def test_a_call_that_never_ends_is_stopped_and_the_next_one_works(folder):
    task = Bfcl(data=str(folder), category="multi_turn_base", seconds=1.5)
    row = row_of(task, "multi_turn_base")
    other = task.episode(row)
    assert other.reply(str(ToolCall("cd", {"folder": "old"}))) is not None
    episode = task.episode(row)
    start = time.monotonic()
    assert episode.reply(str(ToolCall("power", {"base": 7, "exponent": 10**9}))) is None
    assert time.monotonic() - start < 5
    verdict = task.verdict(row, Transcript("", [""], episode))
    assert not verdict.success and "stopped" in episode.failed and task.judge_process.tally.overran == 1
    listed = other.reply(str(ToolCall("ls", {})))  # an episode under way goes on in the new process, where it was
    assert "notes.txt" not in listed[0]["content"]
    assert replay(task, row, task.reference(row)).success
    task.close()


@judged
def test_memory_is_bounded(caplog):
    official = checker.OfficialChecker(20.0, memory=120 * 2**20)
    for times in (1, 2):
        with pytest.raises(Died, match="memory"):
            official.check(kind="ast", much=[0.5] * 3_000_000)
        assert official.tally.died == official.tally.restarts == times
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "BFCL" in caplog.text, "said once"
    assert official.check(kind="ast", functions=[], calls=[], reference=[], language="Python", category="parallel")["valid"]
    assert "2 died" in str(official.tally)
    official.close()


def test_nothing_but_known_names_and_literals_reaches_eval():
    methods = frozenset({"cd"})
    assert executable(ToolCall("cd", {"folder": "a'); import os; ('"}), methods) == "cd(folder=\"a'); import os; ('\")"
    for call in (
        ToolCall("__import__('os').system", {"command": "true"}),
        ToolCall("open", {"file": "x", "mode": "w"}),
        ToolCall("cd", {"folder=1) or exit(": 1}),
        ToolCall("cd", {"class": 1}),
    ):
        assert executable(call, methods) == "no_such_function()"


def test_the_official_package_missing_is_said(folder, monkeypatch, tmp_path):
    bare = tmp_path / "python"
    settings = '{\\"path\\":[]}'  # without site-packages, by any path
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$3" "{settings}" "$5"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(process.sys, "executable", str(bare))
    task = Bfcl(data=str(folder), category="simple")
    row = row_of(task, "simple")
    with pytest.raises(GearError, match=r"pip install --no-deps bfcl-eval==2025\.8\.6"):
        replay(task, row, task.reference(row))


def test_tools_are_json_schemas(task):
    tool = json.loads(row_of(task, "simple")["tools"])[0]["function"]
    assert tool["name"] == "shapes_area" and tool["parameters"]["type"] == "object"
    assert tool["parameters"]["properties"]["width"]["type"] == "number"
    java = json.loads(row_of(task, "java")["tools"])[0]["function"]["parameters"]["properties"]
    assert {document["type"] for document in java.values()} == {"string"} and "ArrayList of String" in java["parts"][
        "description"
    ]


def test_bad_data_is_named(folder, tmp_path):
    with pytest.raises(GearError, match=r"no folder .*BFCL_v3_simple\.json.*bfcl-eval"):
        Bfcl(data=str(tmp_path / "none"), category="simple").rows("test", None)
    with pytest.raises(GearError, match=r"BFCL_v3_live_simple\.json"):
        Bfcl(data=str(folder), category="live_simple").rows("test", None)
    with pytest.raises(GearError, match="Did you mean 'multi_turn_base'"):
        Bfcl(data=str(folder), category="multi_turn_bass")
    broken = bfcl_sample.write_sample(tmp_path / "broken")
    with (broken / "BFCL_v3_simple.json").open("a") as file:
        file.write("\n{not json\n")
    with pytest.raises(GearError, match=r"BFCL_v3_simple\.json, line 3: not JSON"):
        Bfcl(data=str(broken), category="simple").rows("test", None)
    (broken / "possible_answer" / "BFCL_v3_multiple.json").write_text('{"id": "other", "ground_truth": []}\n')
    with pytest.raises(GearError, match="no answer for multiple_0"):
        Bfcl(data=str(broken), category="multiple").rows("test", None)
    (broken / "possible_answer" / "BFCL_v3_multi_turn_base.json").write_text(
        '{"id": "multi_turn_base_0", "ground_truth": [["cd(folder=x)"], [], []]}\n'
    )
    with pytest.raises(GearError, match="multi_turn_base_0: the reference call"):
        Bfcl(data=str(broken), category="multi_turn_base").rows("test", None)


def test_training_needs_a_share_and_variants_stay_together(folder):
    with pytest.raises(GearError, match=r"no training set.*train_share"):
        Bfcl(data=str(folder), category="simple").rows("train", 4)
    with pytest.raises(GearError, match="train_share"):
        Bfcl(data=str(folder), category="simple", train_share=1.5)
    parts = {}
    for split in ("train", "test"):
        task = Bfcl(data=str(folder), category=SAMPLE, train_share=0.5)
        parts[split] = {row["problem"] for row in task.rows(split, None)}
    assert parts["train"] and parts["test"] and not parts["train"] & parts["test"]


@judged
@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's data is not beside the checkout")
def test_a_part_of_the_benchmark_itself():
    task = Bfcl(data=str(SHARED))
    for row in task.rows("test", 250, seed=1):
        reference, empty = replay(task, row, task.reference(row)), replay(task, row, task.empty(row))
        assert reference.success or row["id"] in UNPASSABLE, row["id"]
        assert empty.success == empty.trivially_passable, row["id"]
    task.close()
