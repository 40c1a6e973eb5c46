"""Figures by brute force, and intervals that hold what they promise."""

import itertools
import random

import pytest
from samples import sample

from gear_rl.evaluation.estimates import pass_all, pass_at, summarise
from gear_rl.evaluation.intervals import mean_interval, wilson_interval


def test_pass_at_k_is_the_share_of_all_draws():
    for n in range(1, 7):
        for right in range(n + 1):
            results = [True] * right + [False] * (n - right)
            for k in range(1, n + 1):
                draws = list(itertools.combinations(results, k))
                assert pass_at(n, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))
                assert pass_all(n, right, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_intervals_cover_what_they_promise():
    """True mean 0.3 of problems that differ: about 95 % of the intervals hold it."""
    rng, held = random.Random(0), 0
    for trial in range(120):
        values = [
            sum(rng.random() < chance for _ in range(4)) / 4 for chance in (rng.uniform(0, 0.6) for _ in range(80))
        ]
        low, high = mean_interval(values, seed=trial)
        held += low <= 0.3 <= high
    assert 105 <= held <= 120
    assert mean_interval([0.0] * 30) == wilson_interval(0, 30) and mean_interval([0.0] * 30)[1] > 0.05
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_summary():
    samples = [sample("a", k, k < 2, "sums") for k in range(4)] + [
        sample("b", k, False, "logs", malformed=1) for k in range(4)
    ]
    summary = summarise(samples)
    assert summary["n"] == 2 and summary["samples"] == 8 and summary["k"] == 4 and summary["success"] == 0.25
    assert set(summary["pass@"]) == {"2", "4"} and summary["pass@"]["4"]["value"] == 0.5
    assert summary["pass^"]["2"]["value"] == pytest.approx(1 / 12) and summary["pass^"]["4"]["value"] == 0
    assert summary["categories"]["sums"]["success"] == 0.5 and summary["categories"]["logs"]["n"] == 1
    assert summary["malformed_calls"] == 4 and summary["tokens"] == 40 and summary["channels"] == {"x": 1.0}
    assert summary["trivially_passable"] == 0 and "without_trivially_passable" not in summary
    with pytest.raises(ValueError):
        summarise(samples[:-1])


def test_trivially_passable_problems_are_told_apart():
    easy = [sample("a", trivially_passable=True), sample("b", success=False), sample("c", success=True)]
    summary = summarise(easy)
    assert summary["trivially_passable"] == 1 and summary["success"] == pytest.approx(2 / 3)
    assert summary["without_trivially_passable"]["success"] == 0.5
