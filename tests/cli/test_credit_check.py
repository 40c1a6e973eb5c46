"""`gear credit --check`: turns are measured beside their credit; what cannot be measured is one line and exit code 2."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from gear_rl.audition.check import check, text
from gear_rl.audition.recorded import recorded_groups
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.models import load_model
from gear_rl.records.measured import read_measured
from gear_rl.records.record import read_record
from gear_rl.tasks.workshop import Workshop

QUICK = ["--check", "--turns", "3", "--continuations", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked") / "run"
    small = ["task.steps=4", "train.steps=1", "train.prompts=6", "train.generations=4", "train.eval_rows=2"]
    assert main(["train", "--out", str(folder), *(word for one in small for word in ("--set", one))]) == 0
    return folder


@pytest.fixture(scope="module")
def groups(run):
    task = Workshop(steps=4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    lines = read_record(run / "rollouts.jsonl").rollouts
    return recorded_groups(lines, task, task.rows("train", 6), model, tokenizer), lines


def fails(words, capsys) -> str:
    capsys.readouterr()
    assert main(["credit", *map(str, words)]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and said.count("\n") == 1, said
    return said


def test_measured_advantages_stand_beside_each_methods_credit(run, capsys):
    capsys.readouterr()
    assert main(["credit", str(run), *QUICK, "--credit", "gear,grpo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["methods"].keys() == {"gear", "grpo"} and found["continuations"] > 50
    lines = read_record(run / "rollouts.jsonl").rollouts
    for turn in found["turns"]:
        low, high = turn["interval"]
        assert turn["advantage"] == pytest.approx(turn["after"] - turn["before"]) and low <= turn["advantage"] <= high
        line = [one for one in lines if one.group == turn["group"]][turn["rollout"]]
        own = [a for a, t in zip(line.advantages, line.turns, strict=True) if t == turn["turn"]]
        assert min(own) - 1e-4 <= turn["credit"]["gear"] <= max(own) + 1e-4  # as recorded, a mean of its tokens
        assert turn["credit"]["grpo"] == pytest.approx(line.group_advantage, abs=1e-3)
    sides = found["methods"]["grpo"]
    assert sides["blamed"]["average"] < 0 < sides["praised"]["average"]  # of rollouts that lost, and won, in mixed groups
    blamed = sorted(found["turns"], key=lambda turn: turn["credit"]["gear"])[0]
    assert blamed["credit"]["gear"] < 0 and blamed["reward"] == 0
    assert len(read_measured(run / "rollouts.measured.json")) == len(found["turns"])
    assert "exists" in fails([run, *QUICK], capsys)
    assert "gear, blamed" in text(found) and "group.rollout.turn" in text(found)
    capsys.readouterr()
    assert main(["report", str(run), "--format", "json", "-o", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    facts = [facts for group in shown["groups"] for per_run in group["rollouts"] for facts in per_run]
    assert sum(len(one.get("measured", [])) for one in facts) == len(found["turns"])


def test_rollouts_of_a_record_are_the_ones_that_were_played(groups):
    found, lines = groups
    assert [v.reward for v in found.verdicts] == [line.reward for line in lines]
    assert [p.action_mask for p in found.played] == [line.action_mask for line in lines]
    assert all(len(p.turns) == 5 for p in found.played) and found.size == 4
    own = found.credit(method("gear")).credit.advantages
    recorded = torch.tensor([line.advantages for line in lines])  # at its first step, training assigned the same
    torch.testing.assert_close(own, recorded, atol=2e-3, rtol=1e-3)


def test_without_contrast_there_is_nothing_to_check(groups):
    found, lines = groups
    alike = replace(found, verdicts=[replace(v, reward=1.0) for v in found.verdicts])
    with pytest.raises(GearError, match="no group of step 0 has different rewards"):
        check(alike, lines, {}, 3, 8)
    shape = found.sampled.action_mask.shape
    with pytest.raises(GearError, match="every turn's credit is 0"):
        check(found, lines, {"none": torch.zeros(shape)}, 3, 8)


def test_a_hinted_method_needs_hints(groups):
    found, _ = groups
    blank = replace(found, rows=[{**row, "hint": " "} for row in found.rows], _credit={})
    with pytest.raises(GearError, match="token reads a hint, and that of a problem of task workshop is empty"):
        blank.credit(method("token"))


def changed(record, folder, **fields):
    """A copy of the record elsewhere, with other values in its first rollout."""
    header, first, *rest = record.read_text().splitlines()
    copy = folder / "rollouts.jsonl"
    line = json.loads(first)
    copy.write_text("\n".join([header, json.dumps(line | {k: f(line) for k, f in fields.items()}), *rest]) + "\n")
    return copy


def other_reply(line):
    """The environment's first word, replaced by another of its words."""
    at = line["action_mask"].index(0)
    words = [i for i, mine in enumerate(line["action_mask"]) if not mine and line["token_texts"][i].startswith("g")]
    other = next(i for i in words if line["token_ids"][i] != line["token_ids"][at])
    return at, other


def test_a_record_that_cannot_be_played_again_is_named(run, tmp_path, capsys):
    record = run / "rollouts.jsonl"
    alone = changed(record, tmp_path)
    assert "name with --task" in fails([alone, *QUICK], capsys)
    assert "it has a prompt that none of them has" in fails([alone, *QUICK, "--task", "workshop"], capsys)
    words = ["--task", "workshop", "--set", "task.steps=4", "--turns", "1", "--continuations", "1", "--check"]
    assert main(["credit", str(alone), *words]) == 0  # its problems are found among the task's own
    (tmp_path / "rollouts.measured.json").unlink()
    shutil.copy(run / "config.json", tmp_path)
    elsewhere = changed(record, tmp_path, problem=lambda line: "order 7")
    assert "it has problem 'order 7'" in fails([elsewhere, *QUICK], capsys)
    lucky = changed(record, tmp_path, reward=lambda line: 1.0 - line["reward"])
    assert "played again one of" in fails([lucky, *QUICK], capsys)

    def swapped(name):
        def change(line):
            at, other = other_reply(line)
            return [line[name][other] if i == at else x for i, x in enumerate(line[name])]

        return change

    drifted = changed(record, tmp_path, token_ids=swapped("token_ids"), token_texts=swapped("token_texts"))
    assert "after turn 1 the world replied" in fails([drifted, *QUICK], capsys)
    texts = changed(record, tmp_path, token_texts=lambda line: ["?"] * len(line["token_texts"]))
    assert "tokenizer or chat template" in fails([texts, *QUICK], capsys)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--check", "--step", "7"], "no rollouts of step 7. Its steps: 0"),
        (["--check", "--credit", "gaer"], "Did you mean 'gear'"),
        (["--check", "--from-rewards"], "not with --check"),
        (["--credit", "grpo", "--turns", "3"], "--turns is for --check"),
        ([], "name the method with --credit"),
    ],
)
def test_bad_words_are_named(run, words, says, capsys):
    assert says in fails([run, *words, "-o", run / "unwritten.json"], capsys)
    assert not (run / "unwritten.json").exists()


def test_what_is_no_record_or_of_a_later_policy(run, tmp_path, capsys):
    (tmp_path / "said.jsonl").write_text('{"messages": [], "reward": 1.0}\n')
    assert "is no record" in fails([tmp_path / "said.jsonl", *QUICK], capsys)
    header, *lines = (run / "rollouts.jsonl").read_text().splitlines()
    later = [json.dumps(json.loads(line) | {"step": 40}) for line in lines]
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "rollouts.jsonl").write_text("\n".join([header, *later]) + "\n")
    assert "name it with --model" in fails([tmp_path / "run", *QUICK, "--force"], capsys)


def test_a_record_is_auditioned_in_place_of_new_rollouts(run, tmp_path, capsys):
    words = ["audition", str(run), "--credit", "gear", "--measured", "2", "--continuations", "8"]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rollouts"] == 24 and found["group"] == 4 and found["seconds"]["playing"] == 0
    assert {row["method"] for row in found["methods"]} == {"gear", "grpo"} and found["hint"]["reward"] > 0.8
    lines = read_record(run / "rollouts.jsonl").rollouts
    assert found["outcome"]["reward"] == pytest.approx(sum(line.reward for line in lines) / 24, abs=1e-4)
    transcripts = tmp_path / "t.jsonl"
    transcripts.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}], "reward": 1.0}) + "\n")
    for given, says in (
        ([str(transcripts)], "cannot be rewound"),
        ([str(tmp_path / "none.jsonl")], "none.jsonl"),
        ([str(run), "--prompts", "4"], "--prompts: a record has its own"),
        ([str(run), "--step", "7"], "Its steps: 0"),
        (["--step", "0"], "only with a record"),
    ):
        assert main(["audition", *given]) == 2
        said = capsys.readouterr().err
        assert says in said and "Traceback" not in said, said
