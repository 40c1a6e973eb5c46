"""From rewards to advantages within a group: of whole rollouts, of their turns, of anything else that has peers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError

EPSILON = 1e-4  # of (1), as TRL


@dataclass(frozen=True)
class Std:
    """What a centred value is divided by: √(Σ (x − mean)² / n + inside) + added, with n − 1 for the sample std."""

    population: bool = False
    added: float = EPSILON
    inside: float = 0.0


TRL = Std()
VERL = Std(added=1e-6)
"""Sources that are built on verl use a smaller ε than TRL."""
POPULATION = Std(population=True)


def group_advantages(rollouts: Rollouts, scale: bool = True, std: Std = TRL) -> Tensor:
    """Equation (1), known (GRPO): A_i = (r_i − mean_g r) / (std_g r + ε) → (B,).

    Advantages that an engine has given are returned as they are. `scale=False` leaves the division out (Dr.GRPO).
    Unscorable rollouts are left out of mean and std, and get 0; so does a whole group of equal rewards. As in TRL, the reward
    of a rollout without action tokens counts, and so does that of one that is not trained on.
    """
    if rollouts.advantages is not None:
        return rollouts.advantages.to(rollouts.dtype).masked_fill(~rollouts.scorable, 0)
    refuse_groups_of_one(rollouts.group_ids)
    return advantages_of(rollouts.rewards, rollouts, scale, std)


def advantages_of(rewards: Tensor, rollouts: Rollouts, scale: bool = True, std: Std = TRL) -> Tensor:
    """(1) for any number per rollout (B,), such as one channel of the reward → (B,). NaN is left out, and gets 0."""
    live = (rollouts.scorable & ~rewards.isnan()).nonzero().squeeze(1)  # (M,)
    result = torch.zeros_like(rewards, dtype=rollouts.dtype)
    result[live] = relative_to_group(rewards[live], rollouts.group_ids[live], scale, std).to(result.dtype)
    return result


def relative_to_group(values: Tensor, groups: Tensor, scale: bool = True, std: Std = TRL) -> Tensor:
    """(x − mean_g x) / (std_g x + ε), of values (M,) in groups (M,) → (M,), in the type that sums are wide enough in.

    A group of one, and a group of equal values, gets exactly 0. `scale=False` leaves the division out.
    """
    values = values.to(wide(values))
    if values.numel() == 0:
        return values
    # One row per group. Members stand in the order of their rewards: sums do not depend on their order in the batch.
    order = sort_within_groups(groups, values)  # (M,)
    _, row, sizes = groups[order].unique_consecutive(return_inverse=True, return_counts=True)  # (G,) sizes
    present = torch.arange(int(sizes.max()), device=sizes.device) < sizes[:, None]  # (G, N)
    table = values.new_zeros(present.shape).masked_scatter_(present, values[order])  # (G, N)

    mean = table.sum(1) / sizes  # (G,)
    centred = (table - mean[:, None]) * present  # (G, N)
    equal = (table == table[:, :1]).logical_or_(~present).all(1)  # (G,) exactly 0, whatever the mean rounds to
    centred.masked_fill_(equal[:, None], 0)
    if scale:
        n = sizes if std.population else (sizes - 1).clamp(min=1)
        centred = centred / ((centred.square().sum(1) / n + std.inside).sqrt() + std.added)[:, None]
    rank = torch.arange(len(order), device=row.device) - (sizes.cumsum(0) - sizes)[row]  # (M,) place within the group
    result = torch.empty_like(values)
    result[order] = centred[row, rank]
    return result


def relative_to_others(values: Tensor, groups: Tensor) -> Tensor:
    """x_i − mean of the *other* members of its group, of values (M,) in groups (M,) → (M,); 0 for a group of one.

    The leave-one-out baseline: it does not depend on what is measured with it, so subtracting it biases no gradient.
    """
    _, row, sizes = groups.unique(return_inverse=True, return_counts=True)
    n = sizes[row].to(wide(values))  # (M,)
    return relative_to_group(values, groups, scale=False) * (n / (n - 1).clamp(min=1))


def number_in_group(flags: Tensor, group_ids: Tensor) -> Tensor:
    """How many of each rollout's group have the flag (B,) bool, itself included → (B,) integer."""
    groups, row = group_ids.unique(return_inverse=True)
    return torch.zeros_like(groups, dtype=torch.long).index_add_(0, row, flags.long())[row]


def givers_within_groups(rollouts: Rollouts, keys: tuple[Tensor, Tensor]) -> Tensor:
    """A permutation inside each group, among the rollouts that count: from whom each rollout receives → (B,) indices.

    `keys` are two random numbers per rollout, each (B,): the k-th member of a group by the first receives from the k-th
    member by the second. Every permutation is equally likely, and none depends on the order of the batch. All other
    rollouts receive from themselves.
    """
    live = rollouts.counted.nonzero().squeeze(1)  # (M,)
    groups = rollouts.group_ids[live]
    to, source = (live[sort_within_groups(groups, key[live])] for key in keys)
    givers = torch.arange(len(rollouts.group_ids), device=live.device)
    givers[to] = source
    return givers


def sort_within_groups(groups: Tensor, keys: Tensor) -> Tensor:
    """The order that puts groups (M,) one after the other and the members of each by their keys (M,) → (M,) indices."""
    by_key = keys.argsort(stable=True)
    return by_key[groups[by_key].argsort(stable=True)]


def wide(like: Tensor) -> torch.dtype:
    """The float type to add up in. Float64 makes sums of float32 exact, so they are equal on every device and in any
    order; Apple's devices have no float64."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def refuse_groups_of_one(group_ids: Tensor) -> None:
    groups, sizes = group_ids.unique(return_counts=True)
    if (sizes == 1).any():
        group = groups[sizes == 1][0].item()
        rollout = (group_ids == group).nonzero()[0].item()
        raise GearError(
            f"group {group} has a single rollout (rollout {rollout}), so there is nothing to compare its reward with. "
            "Sample at least two completions per prompt, or pass advantages=."
        )
