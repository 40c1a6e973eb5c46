"""The bootstrap by groups: as wide as the number of groups demands."""

import random

import pytest

from gear_rl.evaluation import intervals
from gear_rl.evaluation.intervals import bootstrap_interval


def test_values_of_one_group_are_drawn_together():
    rng = random.Random(0)
    means = [rng.random() for _ in range(20)]
    values, groups = [mean for mean in means for _ in range(30)], [str(i) for i in range(20) for _ in range(30)]
    low, high = bootstrap_interval(means)
    assert bootstrap_interval(values, groups) == pytest.approx((low, high), abs=0.02), "20 groups are 20 values"
    one_by_one = bootstrap_interval(values)
    assert one_by_one[1] - one_by_one[0] < (high - low) / 3, "and not 600"


def test_memory_bound_does_not_change_the_interval(monkeypatch):
    values = [random.Random(0).random() for _ in range(50)]
    before = bootstrap_interval(values, seed=3)
    monkeypatch.setattr(intervals, "DRAWS_AT_ONCE", 77)
    assert bootstrap_interval(values, seed=3) == before


def test_level_and_seed():
    values = [0.0, 1.0, 0.5, 0.25] * 10
    narrow, wide = (bootstrap_interval(values, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1] and bootstrap_interval(values, level=0.5) == narrow
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
