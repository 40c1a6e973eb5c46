"""The statistics against known answers and on simulated data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gear_rl.compare import statistics as st


def runs(rng, n: int, collapse: float, level: float = 0.5) -> np.ndarray:
    """Outcomes of n runs, of which a share collapses to 0."""
    return np.where(rng.random(n) < collapse, 0.0, rng.normal(level, 0.03, n))


def student(x: np.ndarray) -> tuple[float, float]:
    reach = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
    return x.mean() - reach, x.mean() + reach


def covered(found: tuple[float, float], truth: float) -> bool:
    return found[0] <= truth <= found[1]


@pytest.mark.parametrize("n", [5, 8, 12])
def test_intervals_cover_what_they_claim_where_runs_collapse(n):
    rng = np.random.default_rng(n)
    for collapse in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
        truth = 0.5 * (1 - collapse)
        hits = [covered(st.plus_two_interval([runs(rng, n, collapse)], (0.0, 0.55)), truth) for _ in range(300)]
        assert np.mean(hits) >= 0.94, collapse


@pytest.mark.parametrize(("n", "worlds"), [(5, 1), (8, 1), (12, 1), (4, 3), (12, 3)])
def test_intervals_of_differences_cover_where_runs_collapse(n, worlds):
    rng = np.random.default_rng(n)
    for collapse, other in ((0.0, 0.0), (0.1, 0.0), (0.1, 0.2), (0.3, 0.0), (0.3, 0.2), (0.6, 0.2)):
        hits = []
        for _ in range(250):
            x = [runs(rng, n, collapse, 0.5 + 0.1 * w) for w in range(worlds)]  # worlds differ in how well they go …
            y = [runs(rng, n, other, 0.3) for _ in range(worlds)]
            differences = [a - b for a, b in zip(x, y, strict=True)]
            ends = st.difference_ends(x, y, max(np.max(x), np.max(y)))
            truth = (0.5 + 0.05 * (worlds - 1)) * (1 - collapse) - 0.3 * (1 - other)
            hits.append(covered(st.plus_two_interval(differences, ends), truth))
        assert np.mean(hits) >= 0.9, (collapse, other)


def test_intervals_of_the_share_cover_where_runs_collapse():
    rng = np.random.default_rng(0)
    for collapse in (0.0, 0.1, 0.3):
        hits = []
        for _ in range(250):
            x, base, best = [runs(rng, 8, collapse)], [runs(rng, 8, 0, 0.2)], [runs(rng, 8, 0, 0.6)]
            top = max(np.max(x), np.max(best))
            own, gain = [x[0] - base[0]], [best[0] - base[0]]
            ends = st.difference_ends(x, base, top), st.difference_ends(best, base, top)
            found = st.share_interval(own, gain, *ends)
            hits.append(found is not None and covered(found, (0.5 * (1 - collapse) - 0.2) / 0.4))
        assert np.mean(hits) >= 0.9, collapse
    nothing = [rng.normal(0, 0.1, 8)]
    assert st.share_interval(nothing, nothing, (-0.5, 0.5), (-0.5, 0.5)) is None


def test_intervals_made_of_the_seen_runs_alone_do_not():
    """Why two more runs: one run in ten collapses, and in most samples of five none is seen."""
    rng = np.random.default_rng(5)

    def bca(x):
        return tuple(stats.bootstrap((x,), np.mean, n_resamples=500, rng=rng).confidence_interval)

    samples = [runs(rng, 5, 0.1) for _ in range(150)]
    assert np.mean([covered(student(x), 0.45) for x in samples]) < 0.8
    assert np.mean([covered(bca(x), 0.45) for x in samples]) < 0.8


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
    assert all(math.isnan(v) for v in st.plus_two_interval([[1.0]], (0.0, 1.0)))
    low, high = st.plus_two_interval([[0.5] * 5], (0.0, 1.0))  # by hand: t(6) = 2.447, s = √(0.5 / 6), n = 7
    assert (low, high) == pytest.approx(
        (0.5 - 2.447 * (0.5 / 6 / 7) ** 0.5, 0.5 + 2.447 * (0.5 / 6 / 7) ** 0.5), abs=1e-3
    )


def test_seeds_needed_agrees_with_simulation():
    x = np.random.default_rng(4).normal(0.0, 1.0, 50)
    x = (x - x.mean()) / x.std(ddof=1)
    n = st.seeds_needed([x], effect=1.0)
    assert n == 10  # the textbook: d = 1, power 0.8, two-sided 0.05, paired
    assert st.seeds_needed([x], effect=0.5) == 34
    assert st.seeds_needed([x], effect=0.5, comparisons=5) > 45  # Holm's first step: a fifth of the level
    assert st.seeds_needed([x], effect=100.0) == 6  # with fewer the permutation test cannot reach 0.05
    assert st.seeds_needed([x[:25], x[25:]], effect=0.5) == 17  # in each of two worlds
    assert st.seeds_needed([[1.0]], 1.0) is None and st.seeds_needed([[1.0, 1.0]], 1.0) is None


def test_better_is_not_said_with_a_large_p():
    from gear_rl.compare.table import verdict

    cell = {"difference": 0.1, "difference_interval": (0.01, 0.2), "p": 0.0625, "p_holm": 1.0, "seeds_for_5_points": 9}
    assert verdict(cell, 0.0625).startswith("above, not significant, p 1.000")
    assert verdict({**cell, "difference_interval": (-0.01, 0.2)}, 0.0625).startswith("no difference found, p 1.000")
    assert verdict({**cell, "p": 0.002, "p_holm": 0.01}, 0.001) == "better, p 0.010"
    unsure = verdict({**cell, "p": 0.002, "p_holm": 0.01, "difference_interval": (-0.01, 0.2)}, 0.001)
    assert unsure == "better, p 0.010; runs that collapse unseen could undo it"
    worse = {**cell, "difference": -0.1, "difference_interval": (-0.2, -0.1), "p_holm": 0.01}
    assert verdict(worse, 0.001).startswith("worse")


def test_scaled_grpo_runs_at_its_methods_rate_and_has_a_row_of_its_own():
    from gear_rl.compare.plan import Plan

    plan = object.__new__(Plan)
    object.__setattr__(plan, "methods", ["grpo", "rlsd", "rlsd+scaled_grpo", "rlsd+wrong_hint"])
    assert plan.tuned_as("rlsd+scaled_grpo") == "rlsd" and plan.control_of("rlsd+scaled_grpo") is None
    assert plan.tuned_as("rlsd+wrong_hint") == "rlsd" and plan.control_of("rlsd+wrong_hint") == ("rlsd", "wrong_hint")
    assert plan.tuned_as("grpo") == "grpo"
