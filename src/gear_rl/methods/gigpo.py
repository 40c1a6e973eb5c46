"""GiGPO: rollouts of one group that came through the same state are compared there as well."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gear_rl.assignment.baselines import group_advantages, relative_to_group
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import Method, option, to_credit


class GiGPO(Method):
    """A_{i,t} = A_episode + ω A_step of the token's turn.

        R_{i,k} = Σ_{l ≥ k} γ^{l − k} r_{i,l}                discounted return of turn k; the outcome is earned in the last
        A_step  = (R_{i,k} − mean R) / (std R + ε)           over all turns of the group that began in the same state

    A turn whose state no other turn of the group began in has A_step = 0. It does not decide when two states are the
    same (the task numbers them), and does not compare states across groups.
    """

    name = "gigpo"
    summary = "Adds an advantage among the turns of a group that began in the same state of the world."
    paper = "GiGPO, arXiv 2505.10978"
    standing = "seen"
    needs: tuple[str, ...] = ("anchor_state",)
    preserves_mass = False

    @dataclass(frozen=True)
    class Options(Method.Options):
        omega: float = option(1.0, at_least=0.0)
        """ω, the weight of A_step; 0 is GRPO. Default: GiGPO's code, as recalled."""
        gamma: float = option(0.95, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: GiGPO's."""
        turn_rewards: bool = option(False)
        """Add the turns' own rewards (signal "turn_reward") to the returns; else the outcome alone, in the last turn, is
        discounted. Default: ours, for tasks whose turn rewards are part of the outcome already."""
        scale_rewards: bool = option(True)
        """Divide both advantages by their standard deviations; GiGPO knows both ways. Without effect on A_episode where
        an engine gives the advantages. Default: GRPO's."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if self.options.turn_rewards:
            self.needs = (*self.needs, "turn_reward")

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """A_episode, (1) → (B,)."""
        return group_advantages(rollouts, scale=self.options.scale_rewards)

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turns = Turns(actions)
        rewards = turns.last * rollouts.rewards.to(rollouts.dtype)[:, None]  # (B, K)
        if o.turn_rewards:
            rewards = rewards + turns.at_last_tokens(self.signal(rollouts, "turn_reward"))
        returns = returns_to_go(rewards, o.gamma)[turns.taken]  # (M,) all turns of the batch
        states = turns.at_first_tokens(self.signal(rollouts, "anchor_state"))[turns.taken]  # (M,)
        groups = rollouts.group_ids[:, None].expand_as(turns.taken)[turns.taken]  # (M,)
        steps = torch.zeros_like(rewards)
        steps[turns.taken] = relative_to_group(returns, _numbered(groups, states), o.scale_rewards).to(steps.dtype)
        advantages = (self.outcome(rollouts)[:, None] + o.omega * turns.spread(steps)) * actions.valid
        return to_credit(rollouts, advantages, actions.valid.to(advantages.dtype), every_turn(actions))


def _numbered(groups: Tensor, states: Tensor) -> Tensor:
    """One number per pair of group and state, (M,) and (M,) → (M,)."""
    _, group = groups.unique(return_inverse=True)
    found, state = states.unique(return_inverse=True)
    return group * len(found) + state
