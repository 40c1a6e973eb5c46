"""Guards: what they measure, and when they ring."""

from __future__ import annotations

import logging

import pytest
import torch

from gear_rl.scoring.guards import (
    DRIFT_STEPS,
    FIRST_STEPS,
    HELD_STEPS,
    MOST_DRIFT,
    NGRAM,
    RECENT_STEPS,
    STUCK,
    Guards,
    copied_tokens,
    focus,
    has_contrast,
    share_of,
)

HINT = list(range(100, 100 + NGRAM + 2))


def share(completion, hint, mask=None):
    return share_of(copied_tokens([completion], [hint], torch.tensor([mask or [True] * len(completion)])))


def test_copied_share():
    own = [1, 2, 3, 4]
    assert share(own + HINT, HINT) == len(HINT) / (len(HINT) + 4)
    assert share(own + HINT[:NGRAM], HINT) == NGRAM / (NGRAM + 4)
    assert share(own + HINT[: NGRAM - 1], HINT) == 0, "shorter than an n-gram is chance"
    assert share([*HINT[:4], 7, *HINT[4:]], HINT) == 0, "interrupted is not copied"
    assert share([5, *HINT[:3], 6], HINT[:3]) == 3 / 5, "a short hint is compared whole"
    assert share(own, []) == 0
    assert copied_tokens([[]], [HINT], torch.zeros(1, 3, dtype=torch.bool)) == [(0, 0)] and share_of([(0, 0)]) == 0


def test_only_what_the_policy_said_counts_as_copied():
    said_by_tool = [True] * 2 + [False] * len(HINT)
    assert share([1, 2, *HINT], HINT, said_by_tool) == 0
    between = [token for pair in zip(HINT, [0] * len(HINT), strict=True) for token in pair]
    assert share(between, HINT, [True, False] * len(HINT)) == 1, "a tool's words between its own do not hide it"


def test_copied_share_is_over_all_rollouts():
    mask = torch.ones(2, len(HINT), dtype=torch.bool)
    assert share_of(copied_tokens([HINT, [0] * len(HINT)], [HINT, HINT], mask)) == 0.5


def test_short_of_the_best_reward_so_far():
    guards, nan = Guards(), float("nan")
    assert guards.short_of_best(torch.tensor([nan, nan])) == [False, False] and guards.best is None
    assert guards.short_of_best(torch.tensor([0.0, 0.5, nan])) == [True, False, False]
    assert guards.short_of_best(torch.tensor([1.0, 0.5])) == [False, True]
    assert guards.short_of_best(torch.tensor([0.9, 1.0])) == [True, False], "the best may be of an earlier step"
    assert Guards().short_of_best(torch.tensor([1e6, 1e6 + 0.06])) == [False, False], "that is rounding"
    assert Guards(**vars(guards)).short_of_best(torch.tensor([0.9])) == [True], "and of an earlier process"


def test_focus():
    mask = torch.tensor([[True, True, True, True, False], [True, True, False, False, False]])
    even = mask.float()
    assert focus(even, mask) == pytest.approx(1.0)
    assert focus(7 * even, mask) == pytest.approx(1.0), "of no scale"
    spike = torch.zeros(2, 5)
    spike[:, 0] = 1.0
    assert focus(spike, mask) == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert focus(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool)) == 1.0
    assert focus(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[True, True], [False, False]])) == 1.0


CALM = {"leak": 0.1, "entropy": 2.0, "length": 100.0, "focus": 0.5, "tokens": 50.0, "trust": 0.1, "stuck": 0.0}


@pytest.mark.parametrize(
    ("name", "calm", "alarming"),
    [
        ("leak", 0.29, 0.31),
        ("entropy", 0.21, 0.19),
        ("length", 299.0, 301.0),
        ("length", 34.0, 33.0),
        ("focus", 0.021, 0.019),
        ("tokens", 2.1, 1.9),
        ("trust", 0.031, 0.029),
        ("stuck", STUCK - 1.0, float(STUCK)),
    ],
)
def test_alarms_ring_against_the_start_of_the_run_and_are_said_once(name, calm, alarming, caplog):
    guards = Guards()
    for step in range(FIRST_STEPS):
        wobble = 1 + 0.2 * (-1) ** step
        assert guards.watch({k: v * (wobble if k == "length" else 1) for k, v in CALM.items()})["alarm"] == 0
    with caplog.at_level(logging.WARNING, "gear_rl"):
        assert guards.watch({**CALM, name: calm}) == {**CALM, name: calm, "alarm": 0.0}
        assert not caplog.records
        for _ in range(3):
            assert guards.watch({**CALM, name: alarming})["alarm"] == 1.0
        assert guards.watch(CALM)["alarm"] == 0.0, "and stops"
    assert len(caplog.records) == 1 and name in caplog.text


def test_several_alarms_and_missing_values():
    guards = Guards()
    for _ in range(FIRST_STEPS):
        guards.watch({"length": 10.0, "focus": 0.5})  # no teacher: no leak, no entropy
    assert guards.watch({"length": 100.0, "focus": 0.001})["alarm"] == 2.0


def test_a_resumed_run_remembers_how_it_began():
    guards = Guards()
    for _ in range(FIRST_STEPS):
        guards.watch(CALM)
    resumed = Guards(**vars(guards))
    assert resumed.watch({**CALM, "entropy": 0.1})["alarm"] == 1.0


def test_contrast_is_more_than_rounding():
    groups = torch.tensor([0, 0, 1, 1])
    assert has_contrast(torch.tensor([1.0, 1.0, 0.0, 1.0]), groups)
    assert not has_contrast(torch.tensor([1.0, 1.0, 0.0, 0.0]), groups), "groups differ, within them nothing does"
    assert not has_contrast(torch.tensor([0.3, 0.1 + 0.2, 0.0, 1e-7]), groups)
    assert not has_contrast(torch.tensor([1e6, 1e6 + 0.5, 0.0, torch.nan]), groups)
    assert not has_contrast(torch.full((4,), torch.nan), groups)


def test_stuck_counts_steps_without_contrast_unless_the_reward_has_risen():
    guards = Guards()
    for _ in range(FIRST_STEPS):
        assert guards.after_rewards(True, 0.5) == {"stuck": 0}
        guards.watch(CALM)
    assert [guards.after_rewards(False, 0.5)["stuck"] for _ in range(3)] == [1, 2, 3]
    assert guards.after_rewards(False, 0.9)["stuck"] == 0, "solved, not stuck"
    assert guards.after_rewards(False, 0.1)["stuck"] == 1 and guards.after_rewards(True, 0.1)["stuck"] == 0


def drifts(guards, kls, reward):
    """The alarms of steps with these KLs, each known when its loss is computed."""
    found = []
    for kl in kls:
        found.append(guards.watch(guards.after_rewards(True, reward))["alarm"])
        guards.after_loss(0.5, kl)
    return found


def test_drift_rings_during_the_first_steps_and_not_by_one_outlier():
    far = MOST_DRIFT + 0.01
    assert drifts(Guards(), [far] * (DRIFT_STEPS + 4), 0.5) == [0.0] * (DRIFT_STEPS + HELD_STEPS - 1) + [1.0] * 2
    outliers = [0.0, 9.0, 0.0, 0.0, 9.0, float("nan")]
    assert drifts(Guards(), outliers * 4, 0.5) == [0.0] * 24
    assert "drift" not in Guards().after_rewards(True, 0.5), "without a KL term nobody knows"


def test_drift_is_no_alarm_while_the_reward_has_risen():
    guards, far = Guards(), [MOST_DRIFT + 0.01] * 2 * RECENT_STEPS
    drifts(guards, [0.0] * FIRST_STEPS, 0.5)
    assert drifts(guards, far, 0.6) == [0.0] * 2 * RECENT_STEPS
    assert drifts(guards, far, 0.4)[-1] == 1.0


def test_a_value_that_is_not_known_at_every_first_step_begins_with_the_mean_of_those_known():
    guards = Guards()
    for step in range(FIRST_STEPS):
        guards.watch({"length": 10.0} | ({"entropy": 2.0} if step else {}))
    assert guards.start == {"length": 10.0, "entropy": 2.0}
    assert guards.watch({"entropy": 0.21})["alarm"] == 0 and guards.watch({"entropy": 0.19})["alarm"] == 1
