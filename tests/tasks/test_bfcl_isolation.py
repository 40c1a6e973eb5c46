"""BFCL: a verdict and a tool's result depend on their own rollout alone, and a reference call that fails is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.evaluation.task_check import check_split
from gear_rl.tasks.base import Transcript
from gear_rl.tasks.tools.bfcl import Bfcl

judged = pytest.mark.skipif(
    "not __import__('importlib').util.find_spec('bfcl_eval')", reason="bfcl-eval is not installed"
)
POST = {"content": "string", "tags": "array", "mentions": "array"}
REFERENCE = [
    ["post_tweet(content='hi')", "mention(tweet_id=0, mentioned_usernames=['@ada'])"],
    ["post_tweet(content='hello', mentions=[])"],
    ["post_tweet(content='again')", "mention(tweet_id=0, mentioned_usernames=['@bob', '@eve'])"],
]


def write(folder: Path, reference: list[list[str]], **more) -> Path:
    """Problems of one turn each, played on the official posting API."""
    for name in ("possible_answer", "multi_turn_func_doc"):
        (folder / name).mkdir(parents=True)
    entries = [
        {
            "id": f"multi_turn_base_{i}",
            "question": [[{"role": "user", "content": "Please."}]],
            "initial_config": {"TwitterAPI": {"authenticated": True, "tweets": {}, "tweet_counter": 0}},
            "involved_classes": ["TwitterAPI"],
            **more,
        }
        for i in range(len(reference))
    ]
    documents = [
        {"name": name, "parameters": {"type": "dict", "properties": {k: {"type": v} for k, v in keys.items()}}}
        for name, keys in (("post_tweet", POST), ("mention", {"tweet_id": "integer", "mentioned_usernames": "array"}))
    ]
    answers = [{"id": entry["id"], "ground_truth": [calls]} for entry, calls in zip(entries, reference, strict=True)]
    for path, lines in (
        ("BFCL_v3_multi_turn_base.json", entries),
        ("possible_answer/BFCL_v3_multi_turn_base.json", answers),
        ("multi_turn_func_doc/posting_api.json", documents),
    ):
        (folder / path).write_text("\n".join(map(json.dumps, lines)))
    return folder


def tweet(content: str, **more) -> ToolCall:
    return ToolCall("post_tweet", {"content": content, **more})


def mention(number: int, *names: str) -> ToolCall:
    return ToolCall("mention", {"tweet_id": number, "mentioned_usernames": list(names)})


def play(task: Bfcl, number: int, calls: list[ToolCall]):
    """All that a rollout sees, and its verdict."""
    row = task.rows("test", None)[number]
    episode = task.episode(row)
    turns = [*map(str, calls), "Done."]
    seen = [episode.reply(turn) for turn in turns]
    return seen, task.verdict(row, Transcript("", turns, episode))


@judged
def test_rollouts_do_not_see_each_other_in_whatever_order(tmp_path):
    data = str(write(tmp_path / "data", REFERENCE))
    rollouts = [
        (0, [tweet("hi"), mention(0, "@ada")]),
        (1, [tweet("hello")]),
        (1, [tweet("hello", mentions=[])]),
        (2, [tweet("again", mentions=[]), mention(0, "@bob", "@eve")]),
        (2, [tweet("again")]),
        (0, [mention(5, "@mallory")]),
    ]
    found = []
    for order in (range(6), reversed(range(6)), (0, 0, 0, 1, 2, 3, 4, 5)):
        task = Bfcl(data=data, category="multi_turn_base")
        played = {i: play(task, *rollouts[i]) for i in order}
        found.append([played[i] for i in range(6)])
        task.close()
    assert found[0] == found[1] == found[2]
    assert [verdict.success for _, verdict in found[0]] == [True, True, True, True, False, False]
    assert all(not verdict.failed_calls for _, verdict in found[0][:4]) and found[0][5][1].failed_calls
    assert json.loads(found[0][1][0][0][0]["content"])["mentions"] == []


@judged
def test_dialogues_that_are_played_side_by_side_do_not_mix(tmp_path):
    task = Bfcl(data=str(write(tmp_path / "data", REFERENCE)), category="multi_turn_base")
    rows = task.rows("test", None)
    one, two = task.episode(rows[0]), task.episode(rows[1])
    one.reply(str(tweet("hi")))
    one.reply(str(mention(0, "@ada")))
    assert json.loads(two.reply(str(tweet("hello")))[0]["content"])["id"] == 0
    after = json.loads(one.reply(str(tweet("next")))[0]["content"])
    assert after["id"] == 1 and after["mentions"] == []
    task.close()


def test_excluded_functions_are_not_offered_and_cannot_be_called(tmp_path):
    task = Bfcl(
        data=str(write(tmp_path / "data", REFERENCE[1:2], excluded_function=["mention"])), category="multi_turn_base"
    )
    row = task.rows("test", None)[0]
    assert [tool["function"]["name"] for tool in json.loads(row["tools"])] == ["post_tweet"]
    assert "mention" not in task.episode(row).methods
    task.close()


@judged
def test_the_check_notices_a_reference_call_that_fails(tmp_path):
    fails = ["mention(tweet_id=7, mentioned_usernames=['@ada'])"]
    task = Bfcl(data=str(write(tmp_path / "data", [REFERENCE[1], fails])), category="multi_turn_base")
    check = check_split(task, "test", None)
    assert not check.passed and len(check.failures) == 1
    assert "multi_turn_base_1: a call of the reference answer fails (mention" in check.failures[0]
    task.close()


@judged
def test_a_checker_that_dies_is_counted_and_said(tmp_path, caplog):
    task = Bfcl(data=str(write(tmp_path / "data", REFERENCE)), category="multi_turn_base")
    _, right = play(task, 1, [tweet("hello")])
    row = task.rows("test", None)[1]
    episode = task.episode(row)
    for turn in (str(tweet("hello")), "Done."):
        episode.reply(turn)
    task.judge_process._all[0].process.kill()
    verdict = task.verdict(row, Transcript("", ["", ""], episode))
    assert right.success and not verdict.success
    assert task.judge_process.tally.died == 1 and "1 died" in str(task.judge_process.tally)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    task.close()
