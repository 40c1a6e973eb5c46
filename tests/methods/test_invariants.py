"""The six invariants of GEAR, over random batches and random options."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rollouts import (
    DEGENERATE,
    VALUES,
    assert_alone_as_together,
    batches,
    degenerate,
    independent_options,
    random_options,
    seeds,
    to_rollouts,
    with_masked_insertions,
)
from reference import random_batch, reference_credit
from reference_peers import PEER_DEFAULTS

from gear_rl import GearError, Rollouts, credit
from gear_rl.methods import METHODS, method

WEIGHTING = [name for name, cls in METHODS.items() if cls.preserves_mass]
few = settings(max_examples=60, deadline=None, derandomize=True)
weighting_methods, every_method = pytest.mark.parametrize("name", WEIGHTING), pytest.mark.parametrize("name", METHODS)


def test_every_option_is_varied():
    assert {f.name for cls in METHODS.values() for f in fields(cls.Options)} == set(VALUES)


def outcome_of(name: str, rollouts: Rollouts, options: dict) -> torch.Tensor:
    """A_i, each rollout's own: GRPO's, or for the one control that deals outcomes out, a permutation of it."""
    outcome = method(name, **options).outcome(rollouts)
    scaled = options.get("scale_rewards", name != "dr_grpo")
    grpo = method("grpo" if scaled else "dr_grpo").outcome(rollouts)
    if name != "shuffled_outcomes":
        assert torch.equal(outcome, grpo)
    for group in rollouts.group_ids.unique():
        members = rollouts.group_ids == group
        assert torch.equal(outcome[members].sort().values, grpo[members].sort().values)
    return outcome * rollouts.credited  # whatever it is, a rollout that is not trained on has no credit


# 1. α = 0 or λ = 0 gives GRPO, bit for bit
@weighting_methods
@given(batch=batches, seed=seeds, double=st.booleans())
@few
def test_without_weight_it_is_grpo_bit_for_bit(name, batch, seed, double):
    rollouts = to_rollouts(batch, torch.float64 if double else torch.float32)
    for off in ("alpha", "mix"):
        options = random_options(name, seed)
        if off in {f.name for f in fields(METHODS[name].Options)}:
            options[off] = 0.0
        elif name not in ("grpo", "dr_grpo", "sdpg"):
            continue
        expected = outcome_of(name, rollouts, options)[:, None] * rollouts.action_mask
        assert torch.equal(credit(name, rollouts, **options).advantages, expected)


# 2. Mass and sign
@weighting_methods
@given(batch=batches, seed=seeds, double=st.booleans())
@few
def test_mass_is_preserved_and_weights_are_positive(name, batch, seed, double):
    rollouts, options = to_rollouts(batch, torch.float64 if double else torch.float32), random_options(name, seed)
    c = credit(name, rollouts, **options)
    n, tolerance = rollouts.action_mask.sum(1), 1e-12 if double else 1e-5
    expected = n * outcome_of(name, rollouts, options)
    torch.testing.assert_close(c.advantages.sum(1), expected.to(c.advantages.dtype), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(c.weights.sum(1), n.to(c.weights.dtype), rtol=tolerance, atol=0)
    assert (c.weights[rollouts.action_mask] > 0).all()


# 3. Masked tokens change nothing


@every_method
@given(batch=batches, seed=seeds)
@settings(few, max_examples=40)
def test_masked_tokens_change_nothing(name, batch, seed):
    options = random_options(name, seed)
    if options.get("variant", "").startswith("position"):
        options["variant"] = "separate"  # positions in the tensor are what the other two compare
    widened, places = with_masked_insertions(batch, random.Random(seed))
    before, after = credit(name, to_rollouts(batch), **options), credit(name, to_rollouts(widened), **options)
    places = torch.tensor(places)
    for field in ("advantages", "weights", "segments", "onsets"):
        values = getattr(after, field)
        assert torch.equal(values.gather(1, places), getattr(before, field))
        assert not values[~to_rollouts(widened).action_mask].any()


# 4. The batch a rollout sits in changes nothing except through its group
@weighting_methods
@given(batch=batches, seed=seeds)
@few
def test_permuting_the_batch_permutes_the_result(name, batch, seed):
    options = random_options(name, seed)
    order = random.Random(seed).sample(range(len(batch)), len(batch))
    before = credit(name, to_rollouts(batch), **options)
    after = credit(name, to_rollouts([batch[i] for i in order]), **options)
    for field in ("advantages", "weights", "segments", "onsets"):
        assert torch.equal(getattr(after, field), getattr(before, field)[order])


@every_method
@given(batch=batches, seed=seeds)
@settings(few, max_examples=40)
def test_other_groups_change_nothing(name, batch, seed):
    assert_alone_as_together(name, independent_options(name, seed), batch, random.Random(seed))


# 5. Degenerate rollouts are defined and finite; NaN and Inf are refused by place


@weighting_methods
@pytest.mark.parametrize("direction", ["consistent", "outcome", "teacher"])
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_rollouts(name, kind, direction):
    has_direction = "direction" in {f.name for f in fields(METHODS[name].Options)}
    batch = degenerate(kind)
    c = credit(name, to_rollouts(batch), **({"direction": direction} if has_direction else {}))
    mask = to_rollouts(batch).action_mask
    assert c.advantages.isfinite().all() and c.weights.isfinite().all()
    assert (c.weights[mask] > 0).all()
    if kind in ("no action tokens", "equal rewards", "none could be scored", "one could be scored"):
        assert (c.advantages == 0).all()
    if kind == "zero signals":
        assert torch.equal(c.weights, mask.float())


@every_method
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_signals_are_refused_by_place(name, bad):
    batch = random_batch(3)
    batch[2].mask[-1], position = True, len(batch[2].mask) - 1
    for signal in method(name).needs:
        broken = replace(batch[2], signals={k: list(v) for k, v in batch[2].signals.items()})
        broken.signals[signal][position] = bad
        with pytest.raises(GearError, match=rf"'{signal}' is {bad} at rollout 2, position {position}"):
            credit(name, to_rollouts([*batch[:2], broken, *batch[3:]]))


# 6. Vectorised equals loops written from the equations; those of the peers are in test_peers.py
@pytest.mark.parametrize("name", [name for name in METHODS if name not in PEER_DEFAULTS])
@given(batch=batches, seed=seeds)
@settings(few, max_examples=150)
def test_vectorised_equals_the_plain_loop(name, batch, seed):
    options = random_options(name, seed)
    c = credit(name, to_rollouts(batch, torch.float64), **options)
    for i, expected in enumerate(reference_credit(name, batch, **options)):
        assert c.segments[i].tolist() == expected.segments
        assert c.onsets[i].tolist() == expected.onsets
        assert c.weights[i].tolist() == pytest.approx(expected.weights, rel=1e-9, abs=1e-12)
        assert c.advantages[i].tolist() == pytest.approx(expected.advantages, rel=1e-9, abs=1e-12)
