"""`gear localize`: measures against known answers, labels token by token, what is shown."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from byte_tokenizers import CHATML, byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled_samples import labelled, offered, prm800k, row_of

from gear_rl.chat.assistant_tokens import ConversationTokens
from gear_rl.localize.arithmetic import arithmetic_chains
from gear_rl.localize.blame import SIGNALS, blame
from gear_rl.localize.labelled import token_units, turn_units
from gear_rl.localize.measures import locate, mean_intervals, measure
from gear_rl.localize.steps import solution_of, step_of_tokens
from gear_rl.localize.table import text
from gear_rl.methods import method

TRUTHS = ("solution", "answer")


# ---------------------------------------------------------------------------------------------------- measures
def found(scores, wrong, units=None):
    n = len(scores)
    return locate(np.array(scores, float), np.array(units if units is not None else range(n)), np.array(wrong, bool))


def test_measures_by_hand():
    assert found([0, 3, 1, 2], [0, 1, 0, 0]) == (1.0, 1.0, 1.0, 0.0)
    assert found([0, 3, 1, 2], [0, 0, 1, 0]) == pytest.approx((1 / 3, 0.0, 1 / 3, 1.0))  # 1 is above, 3 too
    assert found([0, 1, 9, 2], [0, 1, 1, 0]) == pytest.approx(
        (1 / 2, 0.0, 1 / 2, 2.0)
    )  # later wrong: neither hit nor miss
    assert found([1, 1, 1, 0], [0, 1, 0, 0]) == pytest.approx(
        (2 / 3, 1 / 3, (1 + 1 / 2 + 1 / 3) / 3, 2 / 3)
    )  # three tie
    assert found([1, 2], [0, 0]) is None  # nothing wrong
    assert found([1, 2], [1, 1]) is None  # nothing to mistake it for


def test_a_step_is_as_suspicious_as_its_worst_token_and_distance_is_in_tokens():
    # steps of 2, 3 and 1 tokens, and one token (the end mark, the most suspicious of all) that belongs to none
    units, scores = [0, 0, 1, 1, 1, 2, -1], [0, 4, 1, 0, 5, 3, 9]
    assert found(scores, [0, 0, 1, 1, 1, 0, 0], units) == (1.0, 1.0, 1.0, 0.0)
    assert found(scores, [0, 0, 0, 0, 0, 1, 0], units) == pytest.approx(
        (0.0, 0.0, 1 / 3, 3.0)
    )  # step 1 begins 3 before


def brute_force(scores, target):
    """Means over all orders that agree with the scores, ties broken either way."""
    n, numbers = len(scores), []
    for order in itertools.permutations(range(n)):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            rank = order.index(target)
            numbers.append(((n - 1 - rank) / (n - 1), rank == 0, 1 / (rank + 1), abs(order[0] - target)))
    return np.mean(np.array(numbers, float), axis=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.data())
def test_ties_are_shared_out_as_random_order_would(scores, data):
    target = data.draw(st.integers(0, len(scores) - 1))
    wrong = [i == target for i in range(len(scores))]
    assert found(scores, wrong) == pytest.approx(brute_force(scores, target))


def test_intervals_cover_the_truth_as_often_as_they_say_also_with_several_rollouts_a_problem():
    rng, hits, narrow = np.random.default_rng(0), 0, 0
    for trial in range(300):
        effect = rng.normal(size=(40, 1)) + rng.normal(
            scale=0.5, size=(40, 4)
        )  # 40 problems of 4 like rollouts; mean 0
        values, problems = effect.reshape(-1, 1), [str(i // 4) for i in range(160)]
        ((low, high),) = mean_intervals(values, problems, resamples=400, seed=trial)
        hits += low <= 0 <= high
        ((low, high),) = mean_intervals(values, [str(i) for i in range(160)], resamples=400, seed=trial)
        narrow += low <= 0 <= high
    assert 0.90 <= hits / 300 <= 0.98
    assert narrow / 300 < 0.80  # drawing single rollouts would have been far too sure


def test_one_problem_has_no_interval():
    assert all(math.isnan(x) for x in mean_intervals(np.ones((3, 1)), ["a", "a", "a"])[0])


# ---------------------------------------------------------------------------------------------------- blame


def test_signals_are_what_their_names_say():
    signals = {
        "student_logprob": [[-1.0, -2.0]],
        "teacher_logprob": [[-4.0, -1.0]],
        "reverse_kl": [[0.1, 0.2]],
        "entropy": [[0.3, 0.4]],
    }
    other = {"student_logprob": [[-1.0, -2.0]], "teacher_logprob": [[-2.0, -2.0]], "reverse_kl": [[0.5, 0.6]]}
    case = labelled([[-1, 0]], signals, wrong_hint=other)
    expected = {
        "reverse_kl": [0.1, 0.2], "gap": [3.0, -1.0], "entropy": [0.3, 0.4], "surprisal": [1.0, 2.0],
        "wrong_hint_kl": [0.5, 0.6], "wrong_hint_gap": [1.0, 0.0], "position": [1.0, 2.0], "random": [0.0, 0.0],
    }  # fmt: skip
    assert expected.keys() == SIGNALS.keys()
    for name, scores in expected.items():
        assert blame(name, case)[0][0].tolist() == pytest.approx(scores), name


def test_a_method_blames_in_lost_rollouts_only():
    case = labelled([[0, -1, 0, 0], [0, 0, -1, 0], [1, 1, 1, 1]], advantages=[-1.0, 1.0, -1.0])
    assert measure(method("oracle"), case).rollouts == 1  # the first: lost, and with a mistake
    assert measure("random", case).rollouts == 2
    assert measure(method("oracle"), case).values["hit"][0] == 1.0


def test_grpo_is_chance_and_chance_is_exact():
    case = labelled([[0, -1, 0, 0], [0, 0, 0, -1]])
    assert measure(method("grpo"), case).values == measure("random", case).values
    values = {name: numbers[0] for name, numbers in measure("random", case).values.items()}
    assert values == pytest.approx(
        {"auc": 0.5, "hit": 0.25, "mrr": (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, "distance": (1.0 + 1.5) / 2}
    )


def test_opd_blames_what_the_teacher_finds_unlikely():
    signals = {"student_logprob": [[-1.0, -1.0, -1.0]], "teacher_logprob": [[-1.0, -2.0, -0.5]]}
    assert measure(method("opd"), labelled([[0, -1, 0]], signals)).values["hit"][0] == 1.0


def test_wrong_hint_reads_the_other_hints_signals():
    own = {name: [[0.0, 0.0, 0.0]] for name in ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")}
    other = {**own, "reverse_kl": [[0.0, 0.0, 2.0]], "teacher_logprob": [[0.0, 0.0, -5.0]]}
    suspicion, _ = blame(method("wrong_hint"), labelled([[0, 0, -1]], own, wrong_hint=other))
    assert suspicion[0].argmax() == 2


def test_units():
    mask = torch.tensor([[True, True, False, True], [False, True, True, True]])
    assert token_units(mask).tolist() == [[0, 1, -1, 2], [-1, 0, 1, 2]]
    assert turn_units(mask).tolist() == [[0, 0, -1, 1], [-1, 0, 0, 0]]


# ---------------------------------------------------------------------------------------------------- steps
def chatml_tokens(template=CHATML):
    tokenizer = byte_tokenizer(template)
    return tokenizer, ConversationTokens(tokenizer, {tokenizer.eos_token_id}, "tiny")


@pytest.mark.parametrize(
    "template", [CHATML, CHATML.replace("generation %}", "if true %}").replace("endif true", "endif")]
)
def test_every_token_of_a_step_and_no_other(template):
    tokenizer, tokens = chatml_tokens(template)
    row = {
        "problem": "add",
        "steps": ["  first: 1 € ", "second\n\nstill second", "", "third."],
        "label": 1,
        "answer": "1",
    }
    solution = solution_of(row, TRUTHS, "here")
    conversation = tokens.split(solution.messages, None, "here")
    steps = step_of_tokens(conversation, solution)
    said = {
        step: tokenizer.decode([t for t, s in zip(conversation.completion_ids, steps, strict=True) if s == step])
        for step in set(steps)
    }
    assert said == {0: "  first: 1 € \n\n", 1: "second\n\nstill second\n\n", 2: "\n\n", 3: "third.", -1: "<|im_end|>"}


def test_a_template_that_trims_the_steps_shifts_none():
    tokenizer, tokens = chatml_tokens(CHATML.replace("{{ m.content }}{% for", "{{ m.content | trim }}{% for"))
    solution = solution_of({"problem": "p", "steps": ["\n a", "b "], "label": 0}, TRUTHS, "here")
    conversation = tokens.split(solution.messages, None, "here")
    steps = step_of_tokens(conversation, solution)
    said = [
        tokenizer.decode([t for t, s in zip(conversation.completion_ids, steps, strict=True) if s == k]) for k in (0, 1)
    ]
    assert said == ["a\n\n", "b"]


def test_arithmetic_chains_have_one_wrong_step_each():
    chains = arithmetic_chains(200, seed=3)
    assert chains == arithmetic_chains(200, seed=3) != arithmetic_chains(200, seed=4)
    labels = set()
    for chain in chains:
        sums = [
            tuple(map(int, re.fullmatch(r"Step \d+: (\d+) \+ (\d+) = (\d+)", step).groups())) for step in chain["steps"]
        ]
        terms = list(map(int, re.findall(r"\d+", chain["problem"])))
        assert [b for _, b, _ in sums] == terms[1:] and sums[0][0] == terms[0]
        assert all(now[0] == before[2] for before, now in itertools.pairwise(sums))  # carried on consistently
        assert [i for i, (a, b, c) in enumerate(sums) if a + b != c] == [chain["label"]]
        assert chain["answer"] == str(sum(terms)) and chain["solution"].endswith(f"= {sum(terms)}")
        labels.add(chain["label"])
    assert len(labels) > 5


@pytest.mark.parametrize(
    ("steps", "path", "label"),
    [
        ([offered(1, chosen=0), offered(-1, 1, chosen=1)], ["c0", "c1"], -1),
        ([offered(1, chosen=0), offered(0, -1, -1)], ["c0", "c1"], 1),  # left because nothing was right
        ([offered(1, -1, chosen=1), offered(1, chosen=0)], ["c1", "c0"], 0),
        ([offered(human={"text": "mine"}), offered(-1)], ["mine", "c0"], 1),
        ([offered(0, chosen=0), offered(0)], ["c0"], -1),  # given up: no verdict
    ],
)
def test_prm800k_paths(steps, path, label):
    solution = solution_of(prm800k(*steps), TRUTHS, "here")
    assert (solution.steps, solution.label, solution.truth) == (path, label, "7")


# ---------------------------------------------------------------------------------------------------- shown
def test_the_table_fits_80_columns_whatever_the_numbers():
    wide = {"mean": 1.0, "low": 0.99999, "high": 1.0}
    far = {"mean": 12345.6, "low": 10000.4, "high": 23456.7}
    row = {
        "name": "a_method_with_a_long_name",
        "rollouts": 99999,
        "auc": wide,
        "hit": wide,
        "mrr": wide,
        "distance": far,
    }
    none = {"mean": None, "low": None, "high": None}
    empty = {"name": "b", "rollouts": 0, "auc": none, "hit": none, "mrr": none, "distance": none}
    part = {
        "name": "m" * 200,
        "teacher": "live",
        "rollouts": 99999,
        "with_mistake": 99999,
        "action_tokens": 1e5,
        "success": 0.5,
        "rows": [row, empty],
    }
    summary = {
        "source": {"rows": 10**6, "measured": 10**6},
        "unit": "step",
        "interval": {"level": 0.95},
        "parts": [part],
        "left_out": {"x" * 30: "y " * 60},
    }
    lines = text(summary).splitlines()
    assert max(map(len, lines)) <= 80 and "a_method_with_…" in "".join(lines)


ROOT = Path(__file__).parents[2]


def cell(value, scale, form):
    return "{} ({}–{})".format(*(form.format(scale * value[key]) for key in ("mean", "low", "high")))


def test_the_page_shows_the_committed_numbers():
    page = (ROOT / "docs" / "localize.md").read_text()
    parts = json.loads((ROOT / "benchmarks" / "results" / "localize_workshop.json").read_text())["parts"]
    for teacher, label in (("live", ""), ("frozen", ", frozen")):
        over_training = [part for part in parts if part["teacher"] == teacher]
        for name in [row["name"] for row in over_training[0]["rows"]]:
            for key, scale, form in (("hit", 100, "{:.0f}"), ("auc", 1, "{:.3f}")):
                cells = [cell(row_of(part, name)[key], scale, form) for part in over_training]
                assert " | ".join([f"| `{name}`{label}", *cells]) in page
    (errors,) = json.loads((ROOT / "benchmarks" / "results" / "localize_workshop_hint_errors.json").read_text())[
        "parts"
    ]
    for name in ("reverse_kl", "gap", "gear", "token", "rlsd"):
        row = row_of(errors, name)
        assert f"| `{name}` | {cell(row['auc'], 1, '{:.3f}')} | {cell(row['hit'], 100, '{:.0f}')} |" in page
