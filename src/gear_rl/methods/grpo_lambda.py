"""GRPO with a trace over tokens: the simplified form of GRPO-λ that is in circulation."""

from __future__ import annotations

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.assignment.turns import powers
from gear_rl.methods.base import grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class GRPOLambda(OnOutcome):
    """A_{i,t} = A_i λ^{n − 1 − t}: the last of a rollout's n action tokens has A_i, earlier ones less.

    **This is not the paper's method.** GRPO-λ puts its trace on the probability *ratio*, inside the loss, and clamps
    negative advantages at −0.1; that is no function of advantages, and is not here.
    """

    name = "grpo_lambda"
    summary = "GRPO with credit that decays towards the beginning of a rollout; a simplification, not the paper's."
    paper = "GRPO-λ, arXiv 2510.00194 (simplified)"
    standing = "second-hand; a simplification in circulation, not the paper's method"
    mass = "shrinks: (1 − λⁿ) / (1 − λ) tokens' worth of n"
    strength = grid(decay=(0.8, 0.9, 0.95, 0.99))

    class Options(OnOutcome.Options):
        decay: float = option(0.99, at_least=0.0, at_most=1.0)
        """λ; 1 is GRPO. Default: that of a port."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        actions = rollouts.actions
        ranks = torch.arange(actions.valid.shape[1], device=actions.valid.device)
        left = (actions.counts[:, None] - 1 - ranks).clamp(min=0)  # (B, L) tokens that follow
        weights = powers(self.options.decay, left).to(rollouts.dtype) * actions.valid
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * weights, weights, every_token(actions))
