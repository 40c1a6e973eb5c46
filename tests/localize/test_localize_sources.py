"""Where `gear localize` finds rollouts with a known mistake: tasks, records, step labels, sums; and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from bad_input import mistakes
from byte_tokenizers import byte_tokenizer
from labelled_samples import labelled, offered, prm800k, row_of

from gear_rl import Rollouts
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.localize.arithmetic import arithmetic_chains
from gear_rl.localize.blame import SIGNALS, lacks
from gear_rl.localize.measures import measure
from gear_rl.localize.sources import Request, played
from gear_rl.methods import method
from gear_rl.records.writer import RecordWriter
from gear_rl.tasks.base import Verdict
from gear_rl.tasks.workshop import Workshop


# ---------------------------------------------------------------------------------------------------- sources
def gear_json(capsys, *words):
    assert main(["localize", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_on_the_embedded_task_the_hint_finds_mistakes_and_a_wrong_hint_does_not(capsys):
    words = ["--rollouts", 96, "--set", "task.steps=4", "--teacher-model", "embedded", "--credit", "gear,oracle,grpo"]
    live, frozen = gear_json(capsys, *words)["parts"]
    assert live["rollouts"] == 96 and 40 < live["with_mistake"] < 96
    measured = {name: row_of(live, name) for name in [*SIGNALS, "gear", "oracle", "grpo"]}
    assert all(measured[name]["rollouts"] == live["with_mistake"] for name in SIGNALS)
    assert measured["reverse_kl"]["auc"]["low"] > 0.9 and measured["gap"]["hit"]["low"] > 0.8
    assert measured["wrong_hint_gap"]["hit"]["high"] < 0.3
    assert measured["gap"]["auc"]["low"] > measured["entropy"]["auc"]["high"]
    assert measured["random"]["auc"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert measured["gear"]["rollouts"] == measured["oracle"]["rollouts"] < live["with_mistake"]
    assert measured["oracle"]["hit"]["mean"] > 0.99 and measured["grpo"]["auc"]["mean"] == 0.5
    # A frozen teacher with the same weights is the live one; what no teacher has a part in is not measured again.
    assert {row["name"] for row in frozen["rows"]} == {"reverse_kl", "gap", "wrong_hint_kl", "wrong_hint_gap", "gear"}
    for row in frozen["rows"]:
        assert row["auc"]["mean"] == pytest.approx(measured[row["name"]]["auc"]["mean"], abs=0.01)


class TurnsOnly(Workshop):
    """The workshop by a judge that knows the first wrong turn and nothing finer."""

    def __post_init__(self):
        super().__post_init__()
        self.judge_knows_decisions = False

    def judge(self, row, completion):
        verdict = super().judge(row, completion)
        wrong = [i for i, decision in enumerate(verdict.decisions) if decision < 0]
        ends = [i for i, word in enumerate(completion.split()) if word == "<end>"]
        first = sum(end < wrong[0] for end in ends) if wrong else None
        return Verdict(verdict.reward, verdict.success, first_wrong=first)


def test_a_task_that_knows_the_first_wrong_turn_is_measured_turn_by_turn():
    request = Request(["gap", "entropy", "random"], [], ["embedded"], rollouts=64)
    source, unit, parts = played(request, TurnsOnly(steps=4))
    (part,) = parts
    assert unit == "turn" and source["task"]["steps"] == 4
    assert measure("gap", part.labelled).values["auc"][0] > 0.9
    # 5 turns, those after the first wrong one not labelled: chance is one in five, but for rollouts that broke off
    assert measure("random", part.labelled).values["hit"][0] == pytest.approx(0.2, abs=0.02)


def test_signals_that_need_the_rollout_itself_are_offered():
    chosen = [method(name) for name in ("hcapo", "grail", "oar_g")]
    (part,) = played(Request([], chosen, ["embedded"], rollouts=8), Workshop(steps=4))[2]
    for one in chosen:
        assert not lacks(one, part.labelled)
    assert lacks(method("cepo"), part.labelled) and lacks(method("shear"), part.labelled), "these compare a group"


def test_without_a_teacher_no_ground_truth_is_asked_for():
    class Bare(Workshop):
        def rows(self, split, count, seed=0):
            return [{**row, "hint": ""} for row in super().rows(split, count, seed)]

    (part,) = played(Request(["surprisal"], [], ["embedded"], rollouts=8), Bare(steps=4))[2]
    assert measure("surprisal", part.labelled).rollouts > 0
    with pytest.raises(GearError, match="no ground truth"):
        list(played(Request(["gap"], [], ["embedded"], rollouts=8), Bare(steps=4))[2])


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A tiny random chat model with the byte-level ChatML tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer, folder = byte_tokenizer(), tmp_path_factory.mktemp("chat") / "model"
    torch.manual_seed(0)
    sizes = dict(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=700, **sizes)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_file_with_step_labels_is_measured_step_by_step(chat_model, tmp_path, capsys):
    chains = arithmetic_chains(24)
    chains[3]["label"] = -1
    chains[5]["steps"][-1] += " very" * 200  # longer than the context
    path = write(tmp_path / "steps.jsonl", chains)
    summary = gear_json(capsys, path, "--model", chat_model)
    assert summary["unit"] == "step" and summary["source"]["rows"] == 24 and summary["source"]["measured"] == 23
    (part,) = summary["parts"]
    assert part["with_mistake"] == part["rollouts"] == 22 and part["left_out_as_too_long"] == 1
    kept = [chain for i, chain in enumerate(chains) if i not in (3, 5)]
    assert row_of(part, "random")["hit"]["mean"] == pytest.approx(
        np.mean([1 / len(c["steps"]) for c in kept]), abs=1e-4
    )
    last = np.mean([chain["label"] == len(chain["steps"]) - 1 for chain in kept])
    assert row_of(part, "position")["hit"]["mean"] == pytest.approx(last, abs=1e-4)
    assert row_of(part, "gear")["rollouts"] == 22
    assert {row["name"] for row in part["rows"]} == {*SIGNALS, "gear"}


def test_arithmetic_is_the_same_as_its_file(chat_model, tmp_path, capsys):
    path = write(tmp_path / "steps.jsonl", arithmetic_chains(8))
    made = gear_json(capsys, "--arithmetic", "--rollouts", 8, "--model", chat_model, "--hint", "answer")
    read = gear_json(capsys, path, "--model", chat_model, "--hint", "answer")
    assert made["parts"] == read["parts"]
    other = gear_json(capsys, path, "--model", chat_model, "--hint", "solution")
    assert row_of(other["parts"][0], "gap") != row_of(read["parts"][0], "gap")
    assert row_of(other["parts"][0], "entropy") == row_of(read["parts"][0], "entropy")


def test_prm800k_file_and_no_teacher(chat_model, tmp_path, capsys):
    path = write(tmp_path / "prm.jsonl", [prm800k(offered(1, chosen=0), offered(-1, 0)) for _ in range(3)])
    words = [path, "--model", chat_model, "--signals", "entropy,position", "--credit", "low_probability"]
    (part,) = gear_json(capsys, *words)["parts"]
    assert [row["name"] for row in part["rows"]] == ["entropy", "position", "low_probability"]
    assert (
        row_of(part, "position")["hit"]["mean"] == 1.0
    )  # in this layout the mistake is always last: the control shows it


def test_a_record_is_measured_in_thirds_of_its_training(tmp_path, capsys):
    path = tmp_path / "rollouts.jsonl"
    with RecordWriter(path, {"task": "workshop", "method": "gear"}) as writer:
        for step in range(0, 90, 10):
            wrong = step // 30  # where the mistake is: 0, 1, 2
            decision = [[-1.0 if i == wrong else 1.0 for i in range(3)], [1.0, 1.0, 1.0]]
            kl = [[1.0, 0.0, 0.0]] * 2  # always suspects the first
            case = labelled(decision, {"reverse_kl": kl}, advantages=[-1.0, 1.0])
            writer.write(
                step=step,
                rollouts=case.rollouts,
                credit=method("grpo").assign(case.rollouts),
                prompts=[f"p{step}"] * 2,
                hinted_prompts=None,
                token_texts=[["a", "b", "c"]] * 2,
                successes=[False, True],
            )
    summary = gear_json(capsys, path, "--credit", "oracle")
    assert [part["name"] for part in summary["parts"]] == ["steps 0–20", "steps 30–50", "steps 60–80"]
    assert [row_of(part, "reverse_kl")["hit"]["mean"] for part in summary["parts"]] == [1.0, 0.0, 0.0]
    assert [row_of(part, "reverse_kl")["distance"]["mean"] for part in summary["parts"]] == [0.0, 1.0, 2.0]
    assert all(
        part["with_mistake"] == 3 and part["rollouts"] == 6 and part["success"] == 0.5 for part in summary["parts"]
    )
    assert all(row_of(part, "oracle")["hit"]["mean"] == 1.0 for part in summary["parts"])
    assert {"gap", "entropy", "surprisal", "wrong_hint_kl", "wrong_hint_gap"} == summary["left_out"].keys()
    assert main(["localize", str(path)]) == 0
    assert (
        "Left out, for want of a teacher with another problem's hint: wrong_hint_kl"
        in capsys.readouterr().out.replace("\n", " ")
    )


# ---------------------------------------------------------------------------------------------------- refused, shown
@mistakes("""
    --signals revers_kl -> unknown signal 'revers_kl'. Did you mean 'reverse_kl'
    --signals gear -> It is a method: name it with --credit
    --credit gera -> Did you mean 'gear'
    --rollouts 0 -> at least 1
    --temperature 0 -> must be a number, above 0
    --set steps=4 -> gear localize takes task.NAME
    --credit gear,grpo --set credit.alpha=4 -> credit.METHOD.alpha
    --set credit.token.alpha=4 -> token is not among the methods named (gear)
    --set credit.gear.alpha=-4 -> at least 0
    --set task.steps=5 -> workshop.steps=5: must be one of 4, 6, 8, 12
    --hint answer -> --hint does not apply to a played task
    --arithmetic -> name the chat model
    --arithmetic x.jsonl -> leave out SOURCE
    --arithmetic --model x --hint-template {hint} -> lacks {prompt}
    --arithmetic --model x --chat-template gone -> there is no chat template gone
    gone.jsonl --model x -> there is no file gone.jsonl
    --signals entropy --credit '' --teacher-model embedded -> nothing that is to be measured depends
    --credit igpo --rollouts 4 -> igpo cannot be measured here
""")
def test_mistakes_are_explained(capsys, words, says):
    assert main(["localize", *words]) == 2
    assert says in capsys.readouterr().err


GOOD = {"problem": "p", "steps": ["a", "b"], "label": 1, "answer": "4"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{oh", "line 2: not JSON"),
        ({"steps": []}, "line 2: neither ProcessBench"),
        ({**GOOD, "label": 2}, "line 2: label must be the first wrong step, 0 to 1, or -1; got 2"),
        ({**GOOD, "label": True}, "line 2: label must be"),
        ({**GOOD, "steps": ["a", 3]}, "line 2: steps must be a list of texts"),
        ({**GOOD, "steps": ["a"] * 1001}, "line 2: 1001 steps"),
        ({**GOOD, "steps": ["a", " "]}, "line 2: step 1 is labelled wrong, but it is empty"),
        ({**GOOD, "problem": ""}, "line 2: the problem must be text"),
        ({**GOOD, "answer": None}, "line 2: no solution or answer"),
        (prm800k("x"), "line 2: label.steps must be a list of objects"),
        (prm800k(offered(1, chosen=4)), "line 2: chosen_completion of step 0 is 4"),
        (prm800k({"completions": [{"rating": -1}]}), "line 2: the completion taken at step 0 has no text"),
    ],
)
def test_rows_with_bad_labels_are_named_by_file_and_line(tmp_path, capsys, row, says):
    path = write(tmp_path / "steps.jsonl", [GOOD, row])
    assert main(["localize", str(path), "--model", "nowhere"]) == 2
    assert f"steps.jsonl, {says}" in capsys.readouterr().err


def test_records_without_decisions_and_models_for_records_are_refused(tmp_path, capsys):
    case = labelled([[0, 0]])
    path = tmp_path / "rollouts.jsonl"
    with RecordWriter(path, {"task": "maths", "method": "grpo"}) as writer:
        bare = Rollouts(
            case.rollouts.action_mask,
            torch.zeros(1),
            torch.zeros(1, dtype=torch.long),
            advantages=torch.ones(1),
            token_ids=case.rollouts.token_ids,
        )
        writer.write(
            step=0,
            rollouts=bare,
            credit=method("grpo").assign(bare),
            prompts=["p"],
            hinted_prompts=None,
            token_texts=[["a", "b"]],
        )
    assert main(["localize", str(path)]) == 2
    assert "does not say which decisions were wrong" in capsys.readouterr().err
    assert main(["localize", str(path), "--model", "x"]) == 2
    assert "--model does not apply to a record" in capsys.readouterr().err


def test_nothing_wrong_is_said(tmp_path, capsys):
    path = write(tmp_path / "steps.jsonl", [{**GOOD, "label": -1}])
    assert main(["localize", str(path), "--model", "x"]) == 2
    assert "none of the 1 solutions has a wrong step" in capsys.readouterr().err


def test_a_teacher_of_another_architecture_is_refused(chat_model, capsys):
    assert main(["localize", "--rollouts", "2", "--set", "task.steps=4", "--teacher-model", str(chat_model)]) == 2
    assert "is another architecture than the student" in capsys.readouterr().err
