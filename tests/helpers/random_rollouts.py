"""Shared by several test modules."""

from __future__ import annotations

import math
import random
from dataclasses import fields, replace

import torch
from hypothesis import strategies as st
from reference import Rollout, random_batch

from gear_rl import Rollouts, credit
from gear_rl.methods import METHODS

VALUES = {  # tried for every option of that name
    "alpha": (0.0, 0.5, 2.0, 30.0), "direction": ("consistent", "outcome", "teacher"), "mix": (1.0, 0.3, 0.0),
    "quantile": (1.0, 0.9, 0.5, 0.01), "floor_kl": (0.1, 1e-6, 1.5), "floor_h": (0.3, 1e-6, 1.0),
    "tau_kl": (0.5, 0.0, 1.0, 1.5), "tau_h": (0.5, 0.0, 1.0, 1.5), "rho_min": (0.05, 0.5, 1.0),
    "rho_max": (10.0, 1.0, 2.0), "scale_rewards": (True, False), "length": (1, 3, 8), "seed": (0, 1, 2**40),
    "floor": (0.1, 1e-6, 1.0), "clip": (0.5, 0.2, 1.0),
    "hint": ("feedback", "sibling"), "tau": (2.0, 0.02, 0.5), "surprise": (0.5, 0.0, 1.0), "beta": (0.5, 0.0, 0.9, 1.0),
    "success_by": ("reward", "group_mean"),
    "threshold": (0.25, 0.5, 0.0, 0.8, 1.0), "coefficient": (1.0, 0.5), "reference": (0.001, 0.0), "top_k": (100, 0),
    "entry_clip": (0.05, 0.0), "token_cap": (20.0, 0.0), "importance_clip": (2.0, 0.0), "reference_mode": ("urkl", "fkl"),
    "share": (0.2, 1.0, 0.5, 0.01), "turn_weight": (1.0, 0.0, 0.5), "form": ("own", "paper"), "discount": (1.0, 0.5, 0.0),
    "baseline": ("unbiased", "naive"), "fallback": ("combined", "outcome"), "omega": (1.0, 0.0, 0.5),
    "gamma": (0.95, 1.0, 0.5), "turn_rewards": (True, False), "episode_mean": ("steps", "rollouts"),
    "variant": ("paper", "separate", "position", "position_by_turn"), "scope": ("rollout", "batch"),
    "spread": (0.5, 0.0, 2.0), "w_min": (0.5, 0.0, 1.0), "w_max": (5.0, 1.0), "symmetry": ("wrong", "correct", "both"),
    "box": ("all", "reweighted"), "certainty": (0.02, 0.0, 1.0), "success": (0.5, 0.25, 0.8),
    "without_wrong": ("grpo", "rlsd"), "delta": (0.02, 0.0, 0.3), "eta": (1.0, 0.5, 0.0),
    "denominators": ("group", "batch", "one"), "percentile": (0.75, 0.0, 1.0), "bonus": (0.1, 0.0, 1.0),
    "sharpness": (5.0, 0.0, 1.0), "window": (3, 1, 2), "terminal": (2.0, 0.0), "offset": (0.1, 1.0),
    "temperature": (5.0, 1.0), "smoothing": (0.0, 0.5, 1.0), "trace": (0.9, 0.0, 1.0), "decay": (0.99, 1.0, 0.0, 0.5),
    "full_trust": (0.08, 0.02, 1.0), "evidence_scale": (0.4, 0.1, 2.0), "untried": (0.0, 1.0, 0.5),
    "below": (0.9, 0.5, 1.0), "interval": (5, 1, 2), "whiten": (False, True),
}  # fmt: skip
BATCH_DEPENDENT = {
    "checked_hints": ("alpha", 0.0),
    "high_entropy": ("scope", "rollout"),
    "rlcsd": ("denominators", "group"),
    "sc_grpo": ("scope", "group"),
    "spo": ("whiten", False),
}
"""Options under which other groups of the batch matter, and the value without."""

seeds = st.integers(0, 10**9)
_KINDS = ("coarse", "turns", "tokens", "advantages", "unscorable", "truncated")
batches = st.builds(random_batch, seeds, **dict.fromkeys(_KINDS, st.booleans()))
"""Random batches of every kind, for `hypothesis.given`."""


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
        trained=None if all(r.trained for r in batch) else torch.tensor([r.trained for r in batch]),
    )


def random_options(name: str, seed: int) -> dict:
    draw = random.Random(seed)
    names = [f.name for f in fields(METHODS[name].Options)]
    return {n: draw.choice(VALUES[n]) for n in names if draw.random() < 0.6}


def independent_options(name: str, seed: int) -> dict:
    """As `random_options`, but none under which a rollout's credit depends on other groups of the batch."""
    options = random_options(name, seed)
    return {**options, **dict([BATCH_DEPENDENT[name]])} if name in BATCH_DEPENDENT else options


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


DEGENERATE = (
    "no action tokens", "one with none", "one alone in its group with any", "one token", "equal rewards",
    "zero signals", "huge signals", "none could be scored", "one could be scored",
)  # fmt: skip


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
        elif kind == "none could be scored":
            r.reward = math.nan
        elif kind == "one could be scored":
            r.reward = 1.0 if r is next(x for x in batch if x.group == r.group) else math.nan
        elif kind == "zero signals":
            r.signals = {k: [0.0] * T for k in r.signals}
        elif kind == "huge signals":
            r.signals = {k: [1e30 if x >= 0 else -1e30 for x in v] for k, v in r.signals.items()}
    return batch


def assert_alone_as_together(name, options, batch, rng):
    """A group gets the credit it gets in the batch of all, whatever the order of its rollouts (shuffled by `rng`)."""
    together = credit(name, to_rollouts(batch), **options)
    for group in {r.group for r in batch}:
        members = [i for i, r in enumerate(batch) if r.group == group]
        rng.shuffle(members)
        alone = credit(name, to_rollouts([batch[i] for i in members]), **options)
        for field in ("advantages", "weights", "segments", "onsets"):
            assert torch.equal(getattr(alone, field), getattr(together, field)[members])
