"""`gear audition`: agreement is what it says, the command answers all questions on the embedded task, bad input is named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from gear_rl.audition.advice import advice
from gear_rl.audition.agreement import agreements, correlations
from gear_rl.audition.contents import effective_tokens, finds_mistakes, style
from gear_rl.audition.groups import play_groups
from gear_rl.audition.page import html
from gear_rl.audition.text import WIDTH, text
from gear_rl.audition.values import Interventions
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
    by_turn = groups.turn_credit(scored.credit.advantages)
    for i, turns in enumerate(by_turn):  # GRPO: the rollout's advantage, in every turn
        assert len(turns) == 7 and turns == pytest.approx(
            [float(scored.credit.advantages[i].max() or scored.credit.advantages[i].min())] * 7
        )
    with pytest.raises(GearError, match="turn_ppo"):
        groups.credit(method("turn_ppo"))
    grpo, oracle, gear = (groups.credit(method(name)).credit.advantages for name in ("grpo", "oracle", "gear"))
    assert finds_mistakes(groups, oracle) == 1.0 and 1 / 7 <= finds_mistakes(groups, grpo) < 0.5  # by chance
    assert finds_mistakes(groups, -oracle) < 0.5  # it praises what was wrong
    assert style(groups, method("grpo"), grpo) is None and 0 <= style(groups, method("gear"), gear) < 0.5
    other = method("gear+wrong_hint")
    assert style(groups, method("gear"), groups.credit(other).credit.advantages) == pytest.approx(1.0)


def test_the_command_answers_every_question(tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main([*SMALL, "--credit", "gear,opsd,turn_ppo,oracle", "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["method"] for row in found["methods"]} == {"grpo", "gear", "oracle"}
    assert found["left_out"].keys() == {"opsd", "turn_ppo"} and "loss" in found["left_out"]["opsd"]
    assert found["hint"]["reward"] > found["outcome"]["reward"] + 0.2 and -1 < found["hint"]["trust"] < 1
    assert found["rollouts"] == 48 and found["continuations"] > 100 and found["advice"]
    known = found["wrong_turns"]
    assert known["wrong"] + known["right"] == 6 * 7 and 0 <= known["interval"][0] <= known["auc"] <= 1
    step = found["step"]
    assert step["rollouts"] == 8 * found["group"] and step["methods"].keys() == {"grpo", "gear", "oracle"}
    assert 0 < step["methods"]["grpo"]["seconds"] < step["methods"]["gear"]["seconds"] and step["methods"]["gear"]["gib"] > 0
    said = text(found)
    assert "GiB" in said and "does not know this kind" in text({**found, "step": None})
    large = {**step, "gpu": "A100-80GB", "methods": {"grpo": {"gib": 139.8, "seconds": 1234.0, "fits": False}}}
    of_large = text({**found, "step": large})
    assert "140 GiB (does not fit), 1234 s: grpo" in of_large
    for line in [*said.splitlines(), *of_large.splitlines()]:
        assert len(line) <= WIDTH, line
    assert "Is the hint any good?" in said and "oracle" in said and "of form other instead" in said
    the_page_draws_it_and_escapes_what_it_shows(out.read_text(), found)
    assert main([*SMALL, "--out", str(out)]) == 2 and "exists" in capsys.readouterr().err  # before anything is played


def the_page_draws_it_and_escapes_what_it_shows(page: str, found: dict) -> None:
    for words in (
        "anything to gain",
        "hint any good",
        "form calls",
        "form other",
        "Whose credit agrees",
        "would it cost",
    ):
        assert words in page
    assert page.count("<svg") == 2 * 2 + 3 * 3 and "Left out: opsd" in page  # two forms twice; three methods three times
    assert "http:" not in page and "https:" not in page and "<script" not in page and "default-src 'none'" in page
    drawn = html({**found, "task": "<img src=x>", "advice": ["<b>"], "left_out": {"<i>": "</p><script>"}})
    assert "<img" not in drawn and "<b>" not in drawn and "<i>" not in drawn and "<script" not in drawn
    assert "There is none" in html({**found, "hint": None, "other_hints": []})
    assert "memory of a training step" in page and "memory of" not in html({**found, "step": None})


def test_a_teacher_that_copies_the_answer_is_seen():
    shares = {}
    for form in ("calls", "answer"):
        task = Workshop(world=1, hint_form=form)
        model, tokenizer = load_model(task.default_model(), "cpu")
        verdicts, shares[form] = play_groups(task, model, tokenizer, task.rows("train", 8, 0), 2).hinted()
        assert len(verdicts) == 8
    assert shares["calls"] == 0 and 0.03 < shares["answer"] < 0.2  # one token of 27 or so


def test_tokens_can_be_measured_one_by_one():
    task = Workshop(steps=4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    groups = play_groups(task, model, tokenizer, task.rows("train", 2), 4, points="tokens")
    actions = sum(groups.played[0].action_mask)
    assert len(groups.spans(0)) == actions > 10
    work = Interventions(groups, 8)
    measured = work.turns([0])
    whole = groups.rewards[0] - measured[0].before.mean
    assert sum(token.advantage for token in measured) == pytest.approx(whole) and len(measured) == actions
    credit = groups.credit(method("grpo")).credit.advantages
    assert groups.turn_credit(credit)[0] == pytest.approx(credit[0][groups.sampled.action_mask[0]].tolist())


TASKS = """
import random
from types import SimpleNamespace
from gear_rl.tasks.workshop import Workshop

class Restless(Workshop):
    name = "restless"
    def episode(self, row):
        world = Workshop.episode(self, row)
        return SimpleNamespace(reply=lambda turn: world.reply(turn) and f"g{random.randrange(32)}")

class Silent(Workshop):
    name = "silent"
    def rows(self, split, count, seed=0):
        rows = Workshop.rows(self, split, count, seed)
        return [{**row, "hint": " " if i == 5 else row["hint"], "id": f"order {i}"} for i, row in enumerate(rows)]
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Restless", "Task restless cannot be rewound"),  # found by replaying
        ("Silent", "order 5: its hint is empty (1 of 12 problems"),  # before anything is played
    ],
)
def test_tasks_that_cannot_be_auditioned_are_named(name, says, tmp_path, monkeypatch, capsys):
    (tmp_path / "odd_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*SMALL, "--task", f"odd_tasks:{name}"]) == 2
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said


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
    hint = {"reward": 0.5 + gain, "reward_interval": (gain + 0.4, gain + 0.6), "trust": trust[0], "copied": 0.0}
    hint["trust_interval"] = trust[1:]
    return {"outcome": outcome, "hint": hint, "methods": list(rows)}


def test_advice_follows_the_figures():
    assert "distil" in advice(findings())[0] and "gear (0.30" in advice(findings())[1]
    assert "Only 10 %" in advice(findings(mixed=0.1))[0]
    doubtful = advice(findings(trust=(0.0, -0.03, 0.01)))
    assert "Do not use the hint" in doubtful[0] and doubtful[-1] == "Prefer methods that read no hint."
    assert "Plain GRPO may be enough" in advice(findings(rows=(row("gear", 0.1, -0.1, 0.3), GRPO)))[1]
    assert "adds little" in advice(findings(gain=0.05))[0]
    copying = findings()
    copying["hint"]["copied"] = 0.7  # rollouts that make the hint's calls without having read it
    assert "distil" in advice(copying)[0]
    without = {**findings(), "hint": None}
    assert len(advice(without)) == 1
    assert "first fifth of a training" in advice(findings(rows=(GEAR, row("token", 0.3, 0.1, 0.5), GRPO)))[-1]


NONE, UNCLEAR, CLEAR = (0.0, -0.03, 0.01), (0.48, -0.1, 1.06), (0.48, 0.3, 0.66)
AVOID = "Prefer methods that read no hint."


@pytest.mark.parametrize(
    ("trust", "gain", "says", "avoid"),
    [
        (NONE, 0.4, "reading it raises the reward, but rollouts that follow it do not win more often (reward 0.90 with", True),
        (NONE, -0.2, "reading it does not raise the reward, and rollouts that follow it do not win more often", True),
        (UNCLEAR, 0.4, "not clear yet (trust 0.48, -0.10 to 1.06: the interval holds 0): take more prompts.", True),
        (UNCLEAR, -0.2, "holds 0), and reading it does not raise the reward (reward 0.30 with it, 0.50 without): take", True),
        (CLEAR, -0.05, "The two measures of the hint disagree. Rollouts that follow it win more often (trust 0.48,", False),
        (CLEAR, 0.05, "goes with winning (trust 0.48, 0.30 to 0.66), but reading it adds little (reward 0.55 with", False),
        (CLEAR, 0.4, "The hint helps (reward 0.90 with it, 0.50 without) and following it goes with winning", False),
        ((0.01, 0.005, 0.015), 0.4, "Do not use the hint", True),  # surely next to nothing
    ],
)
def test_what_is_said_of_the_hint_names_the_measure_it_is_about(trust, gain, says, avoid):
    said = advice(findings(trust=trust, gain=gain))
    assert says in said[0] and (AVOID in said) is avoid
    assert "not trust" not in " ".join(said)  # a measure has that name, and it may be high


def test_a_reward_that_may_be_lower_by_chance_is_called_so():
    assert "this may be chance" in advice(findings(trust=CLEAR, gain=-0.05))[0]
    assert "chance" not in advice(findings(trust=CLEAR, gain=-0.2))[0]
