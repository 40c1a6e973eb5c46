"""The statistics against known answers and on simulated data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gear_rl.compare import statistics as st


@pytest.mark.parametrize(("n", "least", "most"), [(5, 0.92, 0.985), (10, 0.93, 0.975), (20, 0.93, 0.97)])
def test_intervals_cover_what_they_claim(monkeypatch, n, least, most):
    monkeypatch.setattr(st, "RESAMPLES", 2000)
    rng = np.random.default_rng(n)
    hits = 0
    for i in range(600):
        low, high = st.mean_interval(rng.normal(0.3, 0.1, n), seed=i)
        hits += low <= 0.3 <= high
    assert least <= hits / 600 <= most


def test_the_plain_percentile_interval_would_not(monkeypatch):
    """Why the expanded one: the plain one at n = 5 is far below 95 %."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(600):
        x = rng.normal(0.3, 0.1, 5)
        means = x[rng.integers(0, 5, (2000, 5))].mean(1)
        low, high = np.quantile(means, [0.025, 0.975])
        hits += low <= 0.3 <= high
    assert hits / 600 < 0.9


def test_false_positives_stay_at_the_level():
    rng = np.random.default_rng(1)
    p = [st.sign_flip_p(rng.normal(0, 1, 8)) for _ in range(800)]
    assert np.mean(np.array(p) <= 0.05) <= 0.07
    assert 0.4 < np.mean(np.array(p) <= 0.5) < 0.6  # and it is not simply never significant


def test_family_wise_error_under_holm():
    rng = np.random.default_rng(2)
    wrong = sum(min(st.holm([st.sign_flip_p(rng.normal(0, 1, 8)) for _ in range(5)])) <= 0.05 for _ in range(200))
    assert wrong / 200 <= 0.09


def test_power_where_there_is_a_difference():
    rng = np.random.default_rng(3)
    seen = np.mean([st.sign_flip_p(rng.normal(1.5, 1, 10)) <= 0.05 for _ in range(200)])
    assert seen > 0.9


def test_known_answers():
    assert st.sign_flip_p([1, 1, 1, 1, 1]) == pytest.approx(2 / 32) == st.smallest_p(5)
    assert st.sign_flip_p([1, -1]) == 1.0 and st.sign_flip_p([0, 0, 0]) == 1.0 and st.sign_flip_p([]) == 1.0
    assert st.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # by hand
    assert st.holm([]) == []
    assert all(math.isnan(v) for v in st.mean_interval([1.0])) and st.mean_interval([2.0, 2.0]) == (2.0, 2.0)


def test_seeds_needed_agrees_with_simulation():
    x = np.random.default_rng(4).normal(0.0, 1.0, 50)
    x = (x - x.mean()) / x.std(ddof=1)
    n = st.seeds_needed(x, effect=1.0)
    assert n == 10  # the textbook: d = 1, power 0.8, two-sided 0.05, paired
    assert st.seeds_needed(x, effect=0.5) == 34
    assert st.seeds_needed([1.0], 1.0) is None and st.seeds_needed([1.0, 1.0], 1.0) is None


def test_better_is_not_said_with_a_large_p():
    from gear_rl.compare.table import verdict

    cell = {"difference_interval": (0.01, 0.2), "p": 0.0625, "p_holm": 1.0, "seeds_for_5_points": 9}
    assert verdict(cell, 0.0625).startswith("above, not significant, p 1.000")
    assert verdict({**cell, "p": 0.002, "p_holm": 0.01}, 0.001).startswith("better, p 0.010")
    assert verdict({**cell, "difference_interval": (-0.2, -0.1), "p_holm": 0.01}, 0.001).startswith("worse")


def test_scaled_grpo_runs_at_its_methods_rate_and_has_a_row_of_its_own():
    from gear_rl.compare.plan import Plan

    plan = object.__new__(Plan)
    object.__setattr__(plan, "methods", ["grpo", "rlsd", "rlsd+scaled_grpo", "rlsd+wrong_hint"])
    assert plan.tuned_as("rlsd+scaled_grpo") == "rlsd" and plan.control_of("rlsd+scaled_grpo") is None
    assert plan.tuned_as("rlsd+wrong_hint") == "rlsd" and plan.control_of("rlsd+wrong_hint") == ("rlsd", "wrong_hint")
    assert plan.tuned_as("grpo") == "grpo"
