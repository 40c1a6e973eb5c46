"""HCAPO: a turn is worth more of the outcome where the policy, shown how it all ended, finds it likelier than other turns."""

from __future__ import annotations

import torch

from gear_rl.assignment.baselines import relative_to_group
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_turn
from gear_rl.assignment.turns import Turns, powers
from gear_rl.methods.base import Cost, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class HCAPO(OnOutcome):
    """HCAPO: A_{i,t} = A_i + ω (Q_k − mean_g Q) / std_g Q of the token's turn.

        π_k = exp(mean log-probability of the turn's tokens with the final state in context / 5)
        ρ_k = clip(π_k / mean of π over the rollout's turns, 0.8, 1.2)         Q_k = ρ_k γ^{K−k} R_i

    Mean and std of Q are over all turns of the group. In successful rollouts a negative second part counts as 0. It does
    not read what the final state was: scoring puts it into the context.
    """

    name = "hcapo"
    summary = "Adds to the outcome's advantage that of turns which the policy finds likely in hindsight."
    paper = "HCAPO, arXiv 2603.08754"
    standing = "second-hand, a transcription of its equations"
    needs = ("hindsight_logprob",)
    cost = Cost(1, 0, "one forward of the policy with the final state in context")
    mass = "not kept: the hindsight advantage is added, and never lowers a successful rollout's"
    strength = grid(omega=(0.5, 1.0, 2.0, 4.0))

    class Options(OnOutcome.Options):
        omega: float = option(1.0, at_least=0.0)
        """ω, the weight of the hindsight advantage; 0 is GRPO. Default: HCAPO's."""
        temperature: float = option(5.0, above=0.0)
        """What mean log-probabilities are divided by. Default: HCAPO's."""
        clip: float = option(0.2, above=0.0, at_most=1.0)
        """How far ρ may be from 1, either way. Default: HCAPO's."""
        gamma: float = option(0.95, at_least=0.0, at_most=1.0)
        """γ, the discount per turn from the end. Default: HCAPO's."""
        smoothing: float = option(0.0, at_least=0.0, at_most=1.0)
        """Share of the next turn's Q in a turn's own. Default: none; the source offers 0.5."""
        success: float = option(0.5)
        """A rollout with at least this reward is successful. Default: ours, for rewards of 0 and 1; the source's success
        is 10."""
        scale_rewards: bool = option(True)
        """Divide both advantages by their standard deviations. Without effect on A_i where an engine gives the
        advantages. Default: HCAPO's."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        turns, counted = Turns(actions), rollouts.counted[:, None]
        likely = turns.means(self.signal(rollouts, "hindsight_logprob")) / o.temperature  # (B, K) log π
        likely = likely.masked_fill(~turns.taken, -torch.inf)
        pi = (likely - likely.amax(1, keepdim=True).where(turns.counts[:, None] > 0, 0.0)).exp()  # the ratio is all
        mean = pi.sum(1, keepdim=True) / turns.counts.clamp(min=1)[:, None]
        rho = (pi / mean.where(mean > 0, 1.0)).clamp(1.0 - o.clip, 1.0 + o.clip)
        left = (turns.counts[:, None] - 1 - torch.arange(rho.shape[1], device=rho.device)).clamp(min=0)
        q = rho * powers(o.gamma, left).to(rho.dtype) * rollouts.rewards.to(rho.dtype)[:, None]  # (B, K)
        following = torch.where(turns.last, q, q.roll(-1, 1))
        q = (1.0 - o.smoothing) * q + o.smoothing * following
        table = torch.zeros_like(q)
        taken = turns.taken & counted
        groups = rollouts.group_ids[:, None].expand_as(taken)[taken]
        table[taken] = relative_to_group(q[taken], groups, o.scale_rewards).to(table.dtype)
        won = (rollouts.rewards >= o.success)[:, None]
        table = torch.where(won, table.clamp(min=0), table)
        advantages = (self.outcome(rollouts)[:, None] + o.omega * turns.spread(table)) * actions.valid
        return to_credit(rollouts, advantages, actions.valid.to(advantages.dtype), every_turn(actions))
