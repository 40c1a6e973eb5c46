"""IGPO: a turn is worth what it adds to the policy's own belief in the reference answer."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import Std, refuse_groups_of_one, relative_to_group, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, returns_to_go
from gear_rl.methods.base import ANSWER_READINGS, Method, grid, option, to_credit

_STD = Std(population=True, added=0.0, inside=1e-8)  # of the later repository


class IGPO(Method):
    """Turn rewards from information gain, normalised within the group and added up to the end.

        P_k = exp(mean log-probability of the reference answer after turn k)
        r_k = P_k − P_{k−1}  before the last turn;  the outcome in the last turn
        z_k = (r_k − mean_g r) / std_g r                      all turns of the group, gains and outcomes in one pool
        A_{i,t} = Σ_{l ≥ k} γ^{l − k} z_l

    The last turn is the answer itself: its information gain would only ask whether it copies well. Two other variants
    are known (`variant`). Advantages that an engine gives are not read: the outcome is one of the turn rewards.
    """

    name = "igpo"
    summary = "Credits each turn with what it adds to the policy's probability of the reference answer."
    paper = "IGPO, arXiv 2510.14967"
    standing = "official code; the paper second-hand"
    needs = ("answer_logprob", "answer_logprob_start")
    cost = ANSWER_READINGS
    mass = "not kept: returns of normalised turn rewards, in place of A_i"
    strength = grid(gamma=(1.0, 0.9, 0.8, 0.5))

    class Options(Method.Options):
        gamma: float = option(1.0, at_least=0.0, at_most=1.0)
        """γ, the discount per turn. Default: IGPO's."""
        variant: str = option("paper", choices=("paper", "separate", "position", "position_by_turn"))
        """"paper": one pool. "separate": gains and outcomes are normalised apart, as the later repository's script does.
        "position": the first repository's: the plain return minus the group's mean at the same token position, no std.
        "position_by_turn": the same where its multi-turn flag cuts the return off at the end of each turn. Default: the
        paper's; the last two compare unrelated tokens."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        refuse_groups_of_one(rollouts.group_ids)
        o, actions = self.options, rollouts.actions
        turns = Turns(actions)
        counted = turns.taken & rollouts.counted[:, None]  # (B, K)
        rewards = self._turn_rewards(rollouts, turns).masked_fill_(~counted, 0)
        if o.variant in ("paper", "separate"):
            groups = rollouts.group_ids.unique(return_inverse=True)[1][:, None]
            pools = 2 * groups + turns.last.long() if o.variant == "separate" else groups.expand_as(counted)
            table = torch.zeros_like(rewards)
            table[counted] = relative_to_group(rewards[counted], pools[counted], std=_STD).to(table.dtype)
            advantages = turns.spread(returns_to_go(table, o.gamma))
        else:
            if o.variant == "position":
                rewards = returns_to_go(rewards, o.gamma)
            advantages = actions.pack(self._minus_mean_at_position(rewards, turns, rollouts))
        return to_credit(rollouts, advantages, actions.valid.to(advantages.dtype), every_turn(actions))

    def _turn_rewards(self, rollouts: Rollouts, turns: Turns) -> Tensor:
        """r_k → (B, K)."""
        # A log-probability above 0 is rounding.
        after = turns.at_last_tokens(self.signal(rollouts, "answer_logprob")).clamp(max=0).exp()  # (B, K) P_k
        start = self.signal(rollouts, "answer_logprob_start")[:, :1].clamp(max=0).exp()  # (B, 1) P_0
        gain = after - torch.cat([start, after[:, :-1]], dim=1)
        return torch.where(turns.last, rollouts.rewards.to(gain.dtype)[:, None], gain)

    def _minus_mean_at_position(self, of_turn: Tensor, turns: Turns, rollouts: Rollouts) -> Tensor:
        """Each token's return minus the mean of its group's returns at the same position → (B, T).

        Positions are those of the tensor, tool outputs included. A rollout that has ended counts as 0; tokens of the
        environment count as the turn that follows where the return runs on over them, and as 0 where it is cut off.
        """
        actions = rollouts.actions
        values = actions.unpack(turns.spread(of_turn)).to(wide(of_turn))  # (B, T)
        if self.options.variant == "position":
            turn = actions.mask.flip(1).cumsum(1).flip(1)  # action tokens from here on; 0: ended
            rank = (actions.counts[:, None] - turn).clamp(max=actions.valid.shape[1] - 1)
            packed = turns.spread(of_turn).to(values.dtype)
            values = packed.gather(1, rank).masked_fill_(turn == 0, 0)
        groups, row = rollouts.group_ids.unique(return_inverse=True)
        values.masked_fill_(~rollouts.scorable[:, None], 0)
        sums = values.new_zeros(len(groups), values.shape[1]).index_add_(0, row, values)
        sizes = torch.zeros_like(groups).index_add_(0, row, rollouts.scorable.to(groups.dtype)).clamp(min=1)
        return (values - (sums / sizes[:, None])[row]).to(of_turn.dtype)
