"""Files of messages that `gear report` opens by themselves: transcripts, and logs of Inspect."""

from __future__ import annotations

import json

import pytest
from report_samples import gear

from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.records.inspect_log import read_inspect_log
from gear_rl.report import collect, open_source, summary


def call(tool: str) -> dict:
    return {"id": "c1", "type": "function", "function": {"name": tool, "arguments": '{"q": "1+1 </script>"}'}}


def transcript(tool="add", **more) -> dict:
    messages = [
        {"role": "user", "content": "What is 1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call(tool)]},
        {"role": "tool", "tool_call_id": "c1", "content": "two"},
        {"role": "assistant", "content": "It is <b>two</b>."},
    ]
    return {"messages": messages, "reward": float(tool == "add"), "success": tool == "add", **more}


def sample(number: int, grade: object, tool="bash", **more) -> dict:
    """As inspect_ai 0.3.285 writes it."""
    said = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I look."}, {"type": "image", "image": "x"}]
    messages = [
        {"id": "a", "content": "How many files?", "source": "input", "role": "user"},
        {"id": "b", "content": said, "role": "assistant", "source": "generate",
         "tool_calls": [{"id": "t", "function": tool, "arguments": {"cmd": "ls"}, "type": "function"}]},
        {"id": "c", "content": "attachment://f00", "role": "tool", "tool_call_id": "t", "function": tool},
        {"id": "d", "content": "Three.", "role": "assistant"},
    ]  # fmt: skip
    scores = {"match": {"value": grade, "answer": "3", "explanation": "counted </script>"}, "cost": {"value": {"usd": 0.5}}}
    return {"id": number, "epoch": 1, "messages": messages, "scores": scores, "attachments": {"f00": "a b c"}, **more}


def log(samples: list, **more) -> dict:
    spec = {"task": "files", "model": "mockllm/model", "created": "2026-01-01T00:00:00+00:00"}
    return {"version": 2, "status": "success", "eval": spec, "samples": samples, **more}


def test_transcripts_open_as_they_are(browse, tmp_path):
    path = tmp_path / "talks.jsonl"
    rows = [transcript(), transcript("guess"), transcript()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    gear("report", path)
    shown = browse(path.with_suffix(".html"))
    assert "words stand for tokens" in shown.text("#notes") and shown.listed() == "3 rollouts in 1 group"
    assert "model" not in shown.text(".facts") and shown.text(".finding") == ""  # unknown; no method saw an onset
    shown.fill_all()
    given = "[...document.querySelectorAll('.card')].map((c) => [...c.rollout.advantages].filter((a) => a === a))"
    values = shown.js(f"return {given}")
    assert sorted(round(row[0], 5) for row in values) == [-0.66667, 0.33333, 0.33333]
    assert all(len({*row}) == 1 for row in values)  # a rollout's words share its advantage: no step is blamed
    assert "no blamed step stands out" in shown.text("#clusters")
    shown.click(".columns section:last-child .details summary")
    shown.wait(lambda: shown.all(".calls"))
    assert shown.text(".calls b") == "guess" and "1+1 </script>" in shown.text(".calls") and "tool: two" in shown.text(".calls")


def test_inspect_logs_open_as_they_are(tmp_path):
    path = tmp_path / "log.json"
    for indent in (None, 2):  # one line, or as Inspect writes it
        path.write_text(json.dumps(log([sample(1, "C"), sample(2, 0.25), sample(1, "I", "python")]), indent=indent))
        source = open_source(path)
        assert (source.task, source.header["model"]) == ("files", "mockllm/model")
        first, other, alone = source.rollouts()
    assert (first.reward, other.reward, alone.reward) == (1.0, 0.0, 0.25)  # the two attempts at sample 1, then sample 2
    assert (first.success, other.success, alone.success) == (True, False, None)
    assert (first.group_advantage, other.group_advantage, alone.group_advantage) == (0.5, -0.5, 0.0)
    assert first.verdict == {"channels": {"match": 1.0, "cost/usd": 0.5}, "feedback": "match: counted </script>"}
    said = "".join(first.token_texts)
    assert said.startswith("<think>hm</think>I look.[image]\n<tool_call>") and '{"name": "bash"' in said
    masked = "".join(text for text, sampled in zip(first.token_texts, first.action_mask, strict=True) if not sampled)
    assert masked.strip() == "tool: a b c" and first.prompt == "user: How many files?\n"
    path.write_text(json.dumps(log([sample(1, float("nan")), sample(1, True)])))
    assert [rollout.reward for rollout in open_source(path).rollouts()] == [None, 1.0]
    shown = summary(collect([source]))
    assert [len(group["rollouts"]) for group in shown["groups"]] == [2, 1]


def test_what_is_no_log_or_has_no_answers_is_said(tmp_path, capsys):
    path = tmp_path / "log.json"
    silent = sample(1, "C", messages=[{"role": "user", "content": "?"}])
    for content, message in [
        (log([]), "without samples"),
        (log([silent]), "no message of the assistant|no sample has"),
        (log([3]), "sample 1: must be an object"),
        (log([sample(1, "C", scores=[1])]), "scores must be an object"),
        (log([sample(1, "C")], version=1), "version 1; version 2 is read"),
        (log([sample(1, "C", messages=[{"role": "robot"}])]), "must have a role"),
    ]:
        path.write_text(json.dumps(content))
        with pytest.raises(GearError, match=message):
            read_inspect_log(path, content)
        assert main(["report", str(path)]) == 2
    (tmp_path / "log.eval").write_bytes(b"PK")
    assert main(["report", str(tmp_path / "log.eval")]) == 2
    assert "inspect log dump" in capsys.readouterr().err
    path.write_text(json.dumps([transcript(), {**transcript(), "reward": "high"}]))
    assert main(["report", str(path)]) == 2 and "row 2: reward must be" in capsys.readouterr().err


def test_traces_of_verifiers_open_as_they_are(tmp_path):
    """Before and after they have advantages, which `gear credit` fills in."""
    said = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "I add.", "tool_calls": [
        {"id": "c", "name": "add", "arguments": '{"x": 1}'}]}, {"role": "tool", "content": "2", "tool_call_id": "c"},
        {"role": "assistant", "content": "It is 2."}]  # fmt: skip
    credit = [None, [1.0, 3.0], None, [-1.0]]

    def episode(reward, filled):
        nodes = []
        for i, message in enumerate(said):
            n = len(credit[i] or [0])
            node = {"message": message, "token_ids": [7] * n, "mask": [credit[i] is not None] * n}
            more = {"advantages": credit[i], "logprobs": [-0.5] * n} if credit[i] and filled else {}
            nodes.append({**node, **more, **({"parent": i - 1} if i else {})})
        task = {"type": "T", "data": {"prompt": "1+1?"}}
        agent = {"name": "a", "trainable": True}
        rewards = {"right": {"score": reward, "weight": 1.0}}
        trace = {"version": 1, "task": task, "agent": agent, "nodes": nodes, "rewards": rewards}
        judge = {**trace, "agent": {"name": "judge", "trainable": False}}
        return {"task": task, "traces": [trace, judge]}

    path = tmp_path / "traces.jsonl"
    for filled in (False, True):
        path.write_text("".join(json.dumps(episode(reward, filled)) + "\n" for reward in (1.0, 0.0)))
        source = open_source(path)
        won, lost = source.rollouts()
        assert (won.group, lost.group, won.group_advantage, lost.group_advantage) == (0, 0, 0.5, -0.5)
        assert won.verdict == {"channels": {"right": 1.0}} and '<tool_call>\n{"name": "add"' in "".join(won.token_texts)
        of_turn = {turn: a for turn, a in zip(won.turns, won.advantages, strict=True)}
        assert of_turn == ({1: 2.0, 0: 0.0, 2: -1.0} if filled else {1: 0.5, 0: 0.0, 2: 0.5})
        assert ("mean advantage of its message" in source.notes[0]) == filled
    assert collect([source]).runs[0].clusters.blamed[0].turn == 2
