"""The six invariants of GEAR, each for every method that reweights, over random batches and random options."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Rollout, random_batch, reference_credit
from reference_peers import PEER_DEFAULTS

from gear_rl import GearError, Rollouts, credit
from gear_rl.methods import METHODS, method

WEIGHTING = [name for name, cls in METHODS.items() if cls.preserves_mass]

VALUES = {  # tried for every option of that name
    "alpha": (0.0, 0.5, 2.0, 30.0), "direction": ("consistent", "outcome", "teacher"), "mix": (1.0, 0.3, 0.0),
    "quantile": (1.0, 0.9, 0.5, 0.01), "floor_kl": (0.1, 1e-6, 1.5), "floor_h": (0.3, 1e-6, 1.0),
    "tau_kl": (0.5, 0.0, 1.0, 1.5), "tau_h": (0.5, 0.0, 1.0, 1.5), "rho_min": (0.05, 0.5, 1.0),
    "rho_max": (10.0, 1.0, 2.0), "scale_rewards": (True, False), "length": (1, 3, 8), "seed": (0, 1, 2**40),
    "floor": (0.1, 1e-6, 1.0), "clip": (0.5, 0.2, 1.0),
    "hint": ("feedback", "sibling"), "sharpness": (0.5, 2.0), "surprise": (0.5, 0.0, 1.0), "beta": (0.5, 0.1, 0.9),
    "threshold": (0.5, 0.0, 0.8, 1.0), "coefficient": (1.0, 0.5), "reference": (0.001, 0.0), "top_k": (100, 0),
    "share": (0.2, 1.0, 0.5, 0.01), "scope": ("batch", "rollout"), "turn_weight": (1.0, 0.0, 0.5),
    "baseline": ("unbiased", "naive"), "omega": (1.0, 0.0, 0.5), "gamma": (0.95, 1.0, 0.0), "turn_rewards": (True, False),
}  # fmt: skip

seeds, either = st.integers(0, 10**9), st.booleans()
batches = st.builds(random_batch, seeds, coarse=either, turns=either, tokens=either, advantages=either)
few = settings(max_examples=60, deadline=None, derandomize=True)
weighting_methods = pytest.mark.parametrize("name", WEIGHTING)


def to_rollouts(batch: list[Rollout], dtype: torch.dtype = torch.float32) -> Rollouts:
    first = batch[0]
    return Rollouts(
        torch.tensor([r.mask for r in batch]),
        torch.tensor([r.reward for r in batch], dtype=dtype),
        torch.tensor([r.group for r in batch]),
        turn_ids=None if first.turns is None else torch.tensor([r.turns for r in batch]),
        advantages=None if first.advantage is None else torch.tensor([r.advantage for r in batch], dtype=dtype),
        token_ids=None if first.tokens is None else torch.tensor([r.tokens for r in batch]),
        signals={k: torch.tensor([r.signals[k] for r in batch], dtype=dtype) for k in first.signals},
        channels={k: torch.tensor([r.channels[k] for r in batch], dtype=dtype) for k in first.channels},
    )


def random_options(name: str, seed: int) -> dict:
    draw = random.Random(seed)
    names = [f.name for f in fields(METHODS[name].Options)]
    return {n: draw.choice(VALUES[n]) for n in names if draw.random() < 0.6}


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
    return outcome


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
def with_masked_insertions(batch: list[Rollout], draw: random.Random) -> tuple[list[Rollout], list[list[int]]]:
    """The batch with masked tokens full of NaN put in, and where each old position went. Anywhere, if turns are given;
    else not inside a run of action tokens, which would split a turn in two."""
    widened, places, width = [], [], len(batch[0].mask) + 9
    for rollout in batch:
        turns, tokens = (None if x is None else [] for x in (rollout.turns, rollout.tokens))
        new = replace(rollout, mask=[], signals={k: [] for k in rollout.signals}, turns=turns, tokens=tokens)
        place: list[int] = []

        def add(t: int | None, new=new, rollout=rollout):
            new.mask.append(t is not None and rollout.mask[t])
            for k in new.signals:
                new.signals[k].append(float("nan") if t is None else rollout.signals[k][t])
            if new.turns is not None:
                new.turns.append(draw.randrange(99) if t is None else rollout.turns[t])
            if new.tokens is not None:
                new.tokens.append(draw.randrange(99) if t is None else rollout.tokens[t])

        for t in range(len(rollout.mask)):
            inside_a_run = t > 0 and rollout.mask[t - 1] and rollout.mask[t]
            for _ in range(draw.randrange(4)):
                if (rollout.turns is not None or not inside_a_run) and len(new.mask) - t < 9:
                    add(None)
            place.append(len(new.mask))
            add(t)
        while len(new.mask) < width:
            add(None)
        widened.append(new)
        places.append(place)
    return widened, places


@weighting_methods
@given(batch=batches, seed=seeds)
@few
def test_masked_tokens_change_nothing(name, batch, seed):
    options = random_options(name, seed)
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


@weighting_methods
@given(batch=batches, seed=seeds)
@few
def test_other_groups_change_nothing(name, batch, seed):
    options = random_options(name, seed)
    together = credit(name, to_rollouts(batch), **options)
    for group in {r.group for r in batch}:
        members = [i for i, r in enumerate(batch) if r.group == group]
        alone = credit(name, to_rollouts([batch[i] for i in members]), **options)
        for field in ("advantages", "weights", "segments", "onsets"):
            assert torch.equal(getattr(alone, field), getattr(together, field)[members])


# 5. Degenerate rollouts are defined and finite; NaN and Inf are refused by place
def degenerate(kind: str) -> list[Rollout]:
    batch = random_batch(3, longest=12, groups=2)
    T = len(batch[0].mask)
    for i, r in enumerate(batch):
        if kind == "no action tokens":
            r.mask = [False] * T
        elif kind == "one with none":
            r.mask = [i % 2 == 0] * T
        elif kind == "one alone in its group with any":
            r.mask = [r is next(x for x in batch if x.group == r.group)] * T
        elif kind == "one token":
            r.mask = [t == i % T for t in range(T)]
        elif kind == "equal rewards":
            r.reward = 0.1
        elif kind == "zero signals":
            r.signals = {k: [0.0] * T for k in r.signals}
        elif kind == "huge signals":
            r.signals = {k: [1e30 if x >= 0 else -1e30 for x in v] for k, v in r.signals.items()}
    return batch


@weighting_methods
@pytest.mark.parametrize("direction", ["consistent", "outcome", "teacher"])
@pytest.mark.parametrize(
    "kind", ["no action tokens", "one with none", "one alone in its group with any", "one token", "equal rewards",
             "zero signals", "huge signals"])  # fmt: skip
def test_degenerate_rollouts(name, kind, direction):
    has_direction = "direction" in {f.name for f in fields(METHODS[name].Options)}
    batch = degenerate(kind)
    c = credit(name, to_rollouts(batch), **({"direction": direction} if has_direction else {}))
    mask = to_rollouts(batch).action_mask
    assert c.advantages.isfinite().all() and c.weights.isfinite().all()
    assert (c.weights[mask] > 0).all()
    if kind in ("no action tokens", "one alone in its group with any", "equal rewards"):
        assert (c.advantages == 0).all()
    if kind == "zero signals":
        assert torch.equal(c.weights, mask.float())


@weighting_methods
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_signals_are_refused_by_place(name, bad):
    batch = random_batch(3)
    batch[2].mask[-1], position = True, len(batch[2].mask) - 1
    for signal in METHODS[name].needs:
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
