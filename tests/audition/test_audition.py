"""`gear audition`: agreement is what it says, the command answers all questions on the embedded task, bad input is named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from gear_rl.audition.advice import advice
from gear_rl.audition.agreement import agreements, correlations, effective_tokens
from gear_rl.audition.groups import play_groups
from gear_rl.audition.text import WIDTH, text
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.models import load_model
from gear_rl.tasks.workshop import Workshop

SMALL = ["audition", "--prompts", "12", "--group", "4", "--measured", "6", "--continuations", "8"]


def test_agreement_is_a_correlation_within_rollouts():
    rng = np.random.default_rng(0)
    true, rollouts, prompts = rng.normal(size=400), [i // 4 for i in range(400)], [i // 8 for i in range(400)]
    outcome = np.repeat(true.reshape(-1, 4).sum(1), 4)  # the same in all turns of a rollout, as GRPO's
    good, noise = true + rng.normal(size=400) + 5 * outcome, rng.normal(size=400)
    found = agreements({"grpo": outcome, "good": good, "noise": noise, "flat": [1.0] * 400}, true, rollouts, prompts)
    assert found["grpo"].value == found["flat"].value == 0.0 and found["grpo"].interval == (0.0, 0.0)
    centred = [(v.reshape(-1, 4) - v.reshape(-1, 4).mean(1, keepdims=True)).ravel() for v in (good, true)]
    assert found["good"].value == pytest.approx(np.corrcoef(*centred)[0, 1]) and found["good"].interval[0] > 0.5
    assert found["noise"].interval[0] < 0 < found["noise"].interval[1]
    assert correlations(np.array([[1.0, 2.0, 3.0]]), np.array([1.0, 2.0, 3.0]))[0] == pytest.approx(1.0)


def test_effective_tokens():
    advantages = torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 5.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert effective_tokens(advantages) == pytest.approx((4 + 1) / 2)


def test_credit_is_what_training_assigns_and_by_turn_weighted_by_entropy():
    task = Workshop()
    model, tokenizer = load_model(task.default_model(), "cpu")
    groups = play_groups(task, model, tokenizer, task.rows("train", 4), 4)
    scored = groups.credit(method("grpo"))
    by_turn = groups.turn_credit(scored)
    for i, turns in enumerate(by_turn):  # GRPO: the rollout's advantage, in every turn
        assert len(turns) == 7 and turns == pytest.approx(
            [float(scored.credit.advantages[i].max() or scored.credit.advantages[i].min())] * 7
        )
    with pytest.raises(GearError, match="turn_ppo"):
        groups.credit(method("turn_ppo"))


def test_the_command_answers_every_question(capsys):
    assert main([*SMALL, "--credit", "gear,opsd,turn_ppo,oracle", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in found["methods"]} == {"grpo", "gear", "oracle"}
    assert found["left_out"].keys() == {"opsd", "turn_ppo"} and "loss" in found["left_out"]["opsd"]
    assert found["hint"]["reward"] > found["outcome"]["reward"] + 0.2 and -1 < found["hint"]["trust"] < 1
    assert found["rollouts"] == 48 and found["continuations"] > 100 and found["advice"]
    said = text(found)
    assert all(len(line) <= WIDTH for line in said.splitlines()), max(said.splitlines(), key=len)
    assert "Is the hint any good?" in said and "oracle" in said


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--group", "1"], "give 2 or more"),
        (["--credit", "gaer"], "Did you mean 'gear'"),
        (["--set", "task.steps=0"], "workshop.steps=0"),
        (["--task", "gsm8k"], "give one with --model"),
        (["--prompts", "2"], "groups have different rewards, and at least 4"),
    ],
)
def test_bad_input_is_named(args, says, capsys):
    assert main([*SMALL, *args]) == 2
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said


def row(name: str, value: float, low: float, high: float) -> dict:
    return {"method": name, "agreement": value, "interval": (low, high)}


GRPO, GEAR = row("grpo", 0, 0, 0), row("gear", 0.3, 0.2, 0.4)


def findings(
    mixed: float = 0.9, trust: tuple = (0.1, 0.05, 0.15), gain: float = 0.4, rows: tuple = (GEAR, GRPO)
) -> dict:
    outcome = {"mixed_groups": mixed, "reward": 0.5, "measured_turns": 100}
    hint = {"reward": 0.5 + gain, "trust": trust[0], "trust_interval": trust[1:], "copied": 0.0}
    return {"outcome": outcome, "hint": hint, "methods": list(rows)}


def test_advice_follows_the_figures():
    assert "distil" in advice(findings())[0] and "gear (0.30" in advice(findings())[1]
    assert "Only 10 %" in advice(findings(mixed=0.1))[0]
    doubtful = advice(findings(trust=(0.0, -0.03, 0.01)))
    assert "Do not trust" in doubtful[0] and doubtful[-1] == "Prefer methods that read no hint."
    assert "Plain GRPO may be enough" in advice(findings(rows=(row("gear", 0.1, -0.1, 0.3), GRPO)))[1]
    without = {**findings(), "hint": None}
    assert len(advice(without)) == 1
