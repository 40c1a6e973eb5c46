"""Lucky wins are found by the measured value alone, and hints in other forms are those of the same problems."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gear_rl.audition.hint_forms import form_of, other_forms
from gear_rl.audition.luck import largest_fall, lucky_wins
from gear_rl.audition.values import TurnValue, Value
from gear_rl.tasks.base import Verdict
from gear_rl.tasks.workshop import Workshop


def value(share: float, n: int = 32) -> Value:
    ones = round(share * n)
    return Value(0.0, 1.0, [1.0] * ones + [0.0] * (n - ones))


def test_the_fall_is_the_most_that_was_ever_lost_on_the_way():
    assert largest_fall([value(0.5), value(1.0), value(0.75), value(0.25), value(0.5)]) == (0.75, True)
    assert largest_fall([value(0.25), value(0.25), value(0.75)]) == (0.0, False)  # hard, not lucky
    fall, clear = largest_fall([value(0.5, 4), value(0.25, 4)])
    assert fall == 0.25 and not clear


def test_lucky_wins_are_compared_with_the_tasks_own_labels():
    paths = [[0.5, 1.0, 0.25], [0.5, 0.5, 0.9], [0.9, 0.9, 0.9], [0.9, 0.1, 0.1]]
    turns = [
        TurnValue(i, t, value(path[t]), value(path[t + 1]) if t < 2 else Value(0.0, 1.0, [1.0], exact=True))
        for i, path in enumerate(paths)
        for t in range(3)
    ]
    verdicts = [Verdict(1.0, False), Verdict(1.0, True), Verdict(1.0, True), Verdict(0.0, False)]
    groups = SimpleNamespace(rewards=[v.reward for v in verdicts], verdicts=verdicts, task=Workshop(), seed=0)
    found = lucky_wins(groups, turns)
    assert (found["won"], found["lucky"]) == (3, 1)  # the last one lost: its fall is no luck
    labels = found["labels"]
    assert (labels["lucky"], labels["auc"], labels["precision"], labels["recall"]) == (1, 1.0, 1.0, 1.0)
    shares = labels["true_share"], labels["true_share_weighed"]
    assert shares == pytest.approx((2 / 3, 2 / 2.25))  # 1 − 0.75 is left of the lucky one
    groups.task.judge_knows_decisions = False
    assert "labels" not in lucky_wins(groups, turns)


def test_other_forms_tell_the_same_problems_differently():
    task = Workshop(world=1)
    rows = task.rows("train", 5, seed=3)
    found = other_forms(task, rows, 3)
    assert form_of(task) == "calls" and found.keys() == {"answer", "other"}
    other, told = found["answer"]
    assert form_of(other) == "answer" and [row["order"] for row in told] == [row["order"] for row in rows]
    assert all(row["hint"].startswith("answer ") for row in told)
    assert not other_forms(task, rows, 4)  # of another seed: not the same problems
    assert other_forms(Workshop(), Workshop().rows("train", 5), 0).keys() == {"other"}  # its model reads no answers
