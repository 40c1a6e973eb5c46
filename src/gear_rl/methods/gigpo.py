"""GiGPO: rollouts of one group that came through the same state are compared there as well."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import VERL, advantages_of, refuse_groups_of_one, relative_to_group
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import grid, option, to_credit
from gear_rl.methods.turn_rewards import OnTurnRewards


class GiGPO(OnTurnRewards):
    """A_{i,t} = A_episode + ω A_step of the token's turn.

        A_episode = r_i − mean r                             over all turns of the group: a long rollout counts often
        R_{i,k} = Σ_{l ≥ k} γ^{l − k} r_{i,l}                discounted return of turn k; the outcome is earned in the last
        A_step  = R_{i,k} − mean R                           over all turns of the group that began in the same state

    A turn whose state no other turn of the group began in has A_step = 0. It does not decide when two states are the
    same (the task numbers them), and does not compare states across groups. Advantages that an engine gives are not
    read: they are relative to another mean.
    """

    name = "gigpo"
    summary = "Adds an advantage among the turns of a group that began in the same state of the world."
    paper = "GiGPO, arXiv 2505.10978"
    standing = "official code"
    needs: tuple[str, ...] = ("anchor_state",)
    mass = "not kept: the advantage among equal states is added"
    strength = grid(omega=(0.5, 1.0, 2.0, 4.0))

    class Options(OnTurnRewards.Options):
        omega: float = option(1.0, at_least=0.0)
        """ω, the weight of A_step. Default: GiGPO's."""
        gamma: float = option(0.95, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: GiGPO's."""
        scale_rewards: bool = option(False)
        """Divide both advantages by their standard deviations. Default: GiGPO's code; its scripts for ALFWorld divide."""
        episode_mean: str = option("steps", choices=("steps", "rollouts"))
        """What the mean of A_episode is over: all turns of the group, or its rollouts, each once (as GRPO). Default:
        GiGPO's code."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        refuse_groups_of_one(rollouts.group_ids)
        o, actions = self.options, rollouts.actions
        turns = Turns(actions)
        outcome = rollouts.rewards.to(rollouts.dtype)[:, None]  # (B, 1)
        rewards = self.rewards_of(turns, rollouts)  # (B, K)
        counted = turns.taken & rollouts.counted[:, None]  # (B, K)
        groups = rollouts.group_ids[:, None].expand_as(counted)[counted]  # (M,) all turns that count
        returns = returns_to_go(rewards, o.gamma)[counted]
        states = turns.at_first_tokens(self.signal(rollouts, "anchor_state"))[counted]
        same_state = relative_to_group(returns, _numbered(groups, states), o.scale_rewards, VERL)
        if o.episode_mean == "steps":
            episode = relative_to_group(outcome.expand_as(counted)[counted], groups, o.scale_rewards, VERL)
        else:
            alone = advantages_of(rollouts.rewards, rollouts, o.scale_rewards, VERL)
            episode = alone[:, None].expand_as(counted)[counted]
        table = torch.zeros_like(rewards)
        table[counted] = (episode + o.omega * same_state).to(table.dtype)
        return to_credit(rollouts, turns.spread(table), actions.valid.to(table.dtype), every_turn(actions))


def _numbered(groups: Tensor, states: Tensor) -> Tensor:
    """One number per pair of group and state, (M,) and (M,) → (M,)."""
    _, group = groups.unique(return_inverse=True)
    found, state = states.unique(return_inverse=True)
    return group * len(found) + state
