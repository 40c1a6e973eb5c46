"""80/20: learning from the most uncertain fifth of the tokens alone."""

from __future__ import annotations

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.assignment.weights import pooled_quantile, row_quantile
from gear_rl.methods.base import STUDENT, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class HighEntropy(OnOutcome):
    """A_{i,t} = A_i · 1[H_t ≥ τ], τ the entropy that a fifth of the tokens reach. The others get no gradient.

    A hard mask: weights are 1 or 0. It does not rescale the loss for the tokens left out. In TRL τ is over all tokens of
    the batch (`scope=batch`), so that a rollout may keep all or none of its tokens by what else was sampled.
    """

    name = "high_entropy"
    summary = "GRPO on the 20 % most uncertain tokens, nothing on the others."
    paper = "80/20, arXiv 2506.01939"
    standing = "official code (TRL); ours: the quantile of each rollout"
    needs = ("entropy",)
    cost = STUDENT
    mass = "shrinks: a fifth of the tokens keep A_i, the others have 0"
    strength = grid(share=(0.6, 0.4, 0.2, 0.1))

    class Options(OnOutcome.Options):
        share: float = option(0.2, above=0.0, at_most=1.0)
        """Share of the tokens that are kept; 1 is GRPO. Default: the paper's."""
        scope: str = option("rollout", choices=("rollout", "batch"))
        """Which tokens τ is taken over: those of each rollout, or all of the batch as TRL does. Default: ours, since
        over the batch a rollout's credit would depend on what it was scored with."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        actions, level = rollouts.actions, 1.0 - self.options.share
        entropy = self.signal(rollouts, "entropy")
        if self.options.scope == "rollout":
            threshold = row_quantile(entropy, actions, level)  # (B,)
        else:
            included = actions.valid & rollouts.credited[:, None]  # TRL's are those of its loss
            threshold = pooled_quantile(entropy, included, torch.zeros_like(rollouts.group_ids), level)
        kept = ((entropy >= threshold[:, None]) & actions.valid).to(entropy.dtype)  # (B, L)
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * kept, kept, every_token(actions))
