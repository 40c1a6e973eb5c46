"""Measured values: they add up to the outcome, stay within their budget, and find what decides a rollout."""

from __future__ import annotations

import math
import random

import pytest

from gear_rl.audition.groups import play_groups
from gear_rl.audition.values import FIRST, Interventions, TurnValue, Value
from gear_rl.models import load_model
from gear_rl.tasks.workshop import Workshop


@pytest.fixture(scope="module")
def groups():
    task = Workshop()
    model, tokenizer = load_model(task.default_model(), "cpu")
    return play_groups(task, model, tokenizer, task.rows("test", 6), 4)


def test_advantages_of_a_rollout_add_up_to_its_reward_less_the_prompts_value(groups):
    work = Interventions(groups, most=16)
    turns = work.turns([0, 5])
    assert [(t.rollout, t.turn) for t in turns] == [(i, t) for i in (0, 5) for t in range(7)]
    for rollout in (0, 5):
        own = [t for t in turns if t.rollout == rollout]
        whole = groups.rewards[rollout] - own[0].before.mean
        assert sum(t.advantage for t in own) == pytest.approx(whole, abs=1e-9)
        assert own[-1].after.exact and own[-1].after.variance == 0
    sampled = {id(v): v for t in turns for v in (t.before, t.after) if not v.exact}
    assert all(FIRST <= len(v.rewards) <= 16 + groups.size for v in sampled.values())
    own = (
        sum(len(v.rewards) for v in sampled.values()) - 2 * groups.size
    )  # a prompt's value has its group's rewards, too
    assert work.continuations == own and 0 < work.tokens < work.continuations * 27


def test_siblings_share_the_value_of_their_prompt(groups):
    turns = Interventions(groups, most=FIRST).turns([0, 1])
    first, second = (t for t in turns if t.turn == 0)
    assert first.before is second.before and set(groups.rewards[:4]) <= set(first.before.rewards)


def test_a_few_equal_rewards_are_no_certainty():
    some = Value(0.0, 1.0, [1.0] * 8)
    assert some.mean == 1.0 and 0.05 < math.sqrt(some.variance) < 0.15
    turn = TurnValue(0, 0, Value(0.0, 1.0, [0.0, 1.0] * 4), Value(0.0, 1.0, [1.0] * 8))
    assert turn.advantage == 0.5 and turn.half_width > 0.3
    sure = TurnValue(0, 0, Value(0.0, 1.0, [0.0] * 32), Value(0.0, 1.0, [1.0], exact=True))
    assert sure.advantage == 1.0 and sure.clear
    assert TurnValue(0, 0, Value(0.0, 1.0, [0.5] * 2000), Value(0.0, 1.0, [0.5] * 2000)).clear  # clearly nothing


def test_intervals_cover_the_true_difference():
    rng, inside, n = random.Random(0), 0, 400
    for _ in range(n):
        p, q = rng.random(), rng.random()
        before, after = (Value(0.0, 1.0, [float(rng.random() < share) for _ in range(16)]) for share in (p, q))
        turn = TurnValue(0, 0, before, after)
        inside += abs(turn.advantage - (q - p)) <= turn.half_width
    assert inside / n > 0.93
