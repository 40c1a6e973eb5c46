"""IGPO: a turn is worth what it adds to the policy's own belief in the gold answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gear_rl.assignment.baselines import refuse_groups_of_one, relative_to_group
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import Cost, Method, option, to_credit


class IGPO(Method):
    """Turn rewards from information gain; a token has its turn's return-to-go, minus the mean of the group's turns.

        P_k = exp(mean log-probability of the gold answer after turn k)
        r_k = P_k − P_{k−1}  before the last turn;  the outcome in the last turn
        A_{i,t} = R_{i,k} − mean_g R,   R_{i,k} = Σ_{l ≥ k} γ^{l − k} r_l

    The last turn is the answer itself: its information gain would only ask whether it copies well. It does not divide
    by a standard deviation, and does not use advantages that an engine gives: the outcome is one of its turn rewards.
    """

    name = "igpo"
    summary = "Credits each turn with what it adds to the policy's probability of the gold answer."
    paper = "IGPO, arXiv 2510.14967"
    standing = "seen"
    needs = ("answer_logprob", "answer_logprob_start")
    cost = Cost("k", 0, "one reading of the gold answer before the first turn and after every turn but the last")
    preserves_mass = False

    @dataclass(frozen=True)
    class Options(Method.Options):
        gamma: float = option(1.0, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: ours; with 1 the information gains of later turns add up exactly."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        refuse_groups_of_one(rollouts.group_ids)
        actions = rollouts.actions
        turns = Turns(actions)
        # A log-probability above 0 is rounding.
        after = turns.at_last_tokens(self.signal(rollouts, "answer_logprob")).clamp(max=0).exp()  # (B, K) P_k
        start = self.signal(rollouts, "answer_logprob_start")[:, :1].clamp(max=0).exp()  # (B, 1) P_0
        gain = after - torch.cat([start, after[:, :-1]], dim=1)
        outcome = rollouts.rewards.to(rollouts.dtype)[:, None].expand_as(gain)
        rewards = torch.where(turns.last, outcome, gain).masked_fill_(~turns.taken, 0)
        returns = returns_to_go(rewards, self.options.gamma)[turns.taken]  # (M,)
        groups = rollouts.group_ids[:, None].expand_as(turns.taken)[turns.taken]
        table = torch.zeros_like(rewards)
        table[turns.taken] = relative_to_group(returns, groups, scale=False).to(table.dtype)
        return to_credit(rollouts, turns.spread(table), actions.valid.to(table.dtype), every_turn(actions))
