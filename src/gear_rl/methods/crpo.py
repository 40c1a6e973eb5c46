"""CRPO: the channels of a reward are compared apart, and generic responses count as the worst of their group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gear_rl.assignment.baselines import advantages_of, refuse_groups_of_one
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import whole_rollout
from gear_rl.errors import GearError
from gear_rl.methods.base import Method, option, to_credit

GENERIC = "generic"


class CRPO(Method):
    """A_i = mean over channels c of (r_i^c − mean_g r^c) / (std_g r^c + ε): no channel drowns another by its scale.

    Where there is a channel "generic" (above 0: the response is one that anybody could have given), such a response
    counts as the group's lowest in every channel, before mean and std are taken: a negative baseline for the others.

    Only the abstract was readable. Decoupled channels and generic responses as negative baseline are its words; this
    form of both is ours. Its third part, a constraint adapted to complexity, is *not* here: it belongs to the loss. The
    reward itself and advantages that an engine gives are not read: the channels are what they were made of.
    """

    name = "crpo"
    summary = "Normalises each channel of the reward apart, then combines them; generic responses count as worst."
    paper = "CRPO, arXiv 2605.25511"
    standing = "abstract; ours: the form of both parts"
    fewest_channels = 2
    preserves_mass = False

    @dataclass(frozen=True)
    class Options(Method.Options):
        scale_rewards: bool = option(True)
        """Divide each channel by its standard deviation within the group. Default: ours; without it channels with
        larger numbers count for more."""

    options: Options

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """The combined advantage of each rollout → (B,)."""
        names = sorted(name for name in rollouts.channels if name != GENERIC)
        if len(names) < self.fewest_channels:
            given = ", ".join(names) or "none"
            raise GearError(
                f"crpo needs at least {self.fewest_channels} named reward channels (Rollouts.channels; a task gives "
                f"them in Verdict.channels) beside {GENERIC!r}. Channels given: {given}."
            )
        refuse_groups_of_one(rollouts.group_ids)
        generic = rollouts.channels.get(GENERIC)
        total = torch.zeros_like(rollouts.rewards, dtype=rollouts.dtype)
        for name in names:
            rewards = rollouts.channels[name].to(rollouts.dtype)
            if generic is not None:
                rewards = torch.where(generic > 0, self._lowest(rewards, rollouts), rewards)
            total = total + advantages_of(rewards, rollouts, self.options.scale_rewards)
        return total / len(names)

    def _lowest(self, rewards: Tensor, rollouts: Rollouts) -> Tensor:
        """The smallest of each rollout's group (B,) → (B,), among rollouts that have action tokens."""
        live = rollouts.actions.counts > 0
        _, group = rollouts.group_ids.unique(return_inverse=True)
        infinite = torch.full_like(rewards, float("inf"))
        return infinite.scatter_reduce(0, group, torch.where(live, rewards, infinite), "amin")[group]

    def assign(self, rollouts: Rollouts) -> Credit:
        weights = rollouts.actions.valid.to(rollouts.dtype)  # (B, L)
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * weights, weights, whole_rollout(rollouts.actions))
