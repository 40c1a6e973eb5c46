"""How far a span's hidden states lie from those of the rollouts that ended otherwise (SHEAR).

Within a group, a rollout is *correct* if its reward is above the group's mean. For a span S of rollout i,

    d = W₁( states of S,  states of the same span in the group's rollouts of the other outcome )

and every token of S gets d. W₁ is the Wasserstein distance *sliced*: the mean over fixed random directions of the exact
distance between the two sets of projections. A state is the last hidden state once the token has been read.

Only SHEAR's abstract was readable, so the reading is ours: a span is a turn, and a turn of more than 64 tokens is cut into
runs of that many; "the same span" is the one of the same number; where no such rollout has it, all their states are taken.
Where all rollouts of a group ended alike there is nothing to compare, and d = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.scoring.answers import turn_starts
from gear_rl.scoring.body import Ids
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.states import states_after

SPAN = 64
DIRECTIONS = 32
"""Ours. The error of a sliced distance falls with their root; 32 leave it at a few per cent."""
_MOST_NUMBERS = 1 << 22  # owners × points × directions looked at together


def hidden_distance(
    scorer: Scorer, prompts: Ids, completions: Ids, action_mask: Tensor, rewards: Tensor, group_ids: Tensor
) -> Tensor:
    """(B, T), at least 0, and 0 where masked. rewards, group_ids (B,)."""
    states = states_after(scorer, prompts, completions, action_mask)  # (N, D)
    projected = states.float() @ directions(states.shape[1]).to(states.device)  # (N, P)
    rollout = action_mask.nonzero()[:, 0]  # (N,)
    span = spans(action_mask)[action_mask]  # (N,)
    distance = torch.zeros(len(rollout), device=action_mask.device)
    for group in group_ids.unique().tolist():
        members = group_ids == group
        correct = members & (rewards > rewards[members].mean())
        for won in (correct, members & ~correct):
            here, others = won[rollout], (members & ~won)[rollout]  # (N,) tokens of one outcome, and of the other
            if not others.any():
                continue
            for number in span[here].unique().tolist():
                against = others & (span == number)
                against = against if against.any() else others
                own = here & (span == number)
                distance[own] = _to_pool(projected[own], rollout[own], projected[against])
    out = torch.zeros(action_mask.shape, device=action_mask.device)
    out[action_mask] = distance
    return out


def directions(width: int) -> Tensor:
    """(D, P) unit vectors, the same ones always: distances of different steps can be compared."""
    drawn = torch.randn(width, DIRECTIONS, generator=torch.Generator().manual_seed(0))
    return drawn / drawn.norm(dim=0)


def spans(action_mask: Tensor) -> Tensor:
    """(B, T): a number per span. Turn k, run r of it; equal numbers in two rollouts are the same span."""
    starts = turn_starts(action_mask)
    turn = starts.cumsum(1)
    rank = action_mask.cumsum(1)
    begun = torch.where(starts, rank, 0).cummax(1).values
    return turn * action_mask.shape[1] + (rank - begun) // SPAN


def _to_pool(values: Tensor, owner: Tensor, pool: Tensor) -> Tensor:
    """W₁ between each owner's values and the pool, as the area between the two distribution functions.

    values (n, P) of owners (n,); pool (m, P) → (n,): the distance of each value's owner.
    """
    owners, index, counts = owner.unique(return_inverse=True, return_counts=True)
    everything = torch.cat([values, pool])  # (n + m, P)
    ascending, order = everything.sort(dim=0)
    steps = ascending[1:] - ascending[:-1]  # (n + m − 1, P)
    mass = torch.zeros(len(owners), len(everything), device=values.device)  # what each point adds to F − G
    mass[index, torch.arange(len(values), device=values.device)] = 1.0 / counts[index]
    mass[:, len(values) :] = -1.0 / len(pool)
    total = torch.zeros(len(owners), device=values.device)
    at_once = max(1, _MOST_NUMBERS // mass.numel())
    for some in range(0, values.shape[1], at_once):
        gap = mass[:, order[:, some : some + at_once]].cumsum(1)[:, :-1].abs()  # (owners, n + m − 1, directions)
        total += (gap * steps[:, some : some + at_once]).sum((1, 2))
    return (total / values.shape[1])[index]
