"""80/20: learning from the most uncertain fifth of the tokens alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gear_rl.assignment.baselines import group_advantages, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import ActionTokens, Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.assignment.weights import row_quantile
from gear_rl.methods.base import STUDENT, Method, option, to_credit


class HighEntropy(Method):
    """A_{i,t} = A_i · 1[H_t ≥ τ], τ the entropy that a fifth of the tokens reach. The others get no gradient.

    A hard mask: weights are 1 or 0, and a rollout's advantage is *not* preserved. Over the batch, τ depends on what else
    was sampled, and a rollout may keep all or none of its tokens. It does not rescale the loss for the tokens left out.
    """

    name = "high_entropy"
    summary = "GRPO on the 20 % most uncertain tokens, nothing on the others."
    paper = "80/20, arXiv 2506.01939"
    standing = "recalled"
    needs = ("entropy",)
    cost = STUDENT
    preserves_mass = False

    @dataclass(frozen=True)
    class Options(Method.Options):
        share: float = option(0.2, above=0.0, at_most=1.0)
        """Share of the tokens that are kept; 1 is GRPO. Default: the paper's."""
        scope: str = option("batch", choices=("batch", "rollout"))
        """Which tokens τ is taken over: all of the batch, or those of each rollout. Default: the paper's, as recalled."""
        scale_rewards: bool = option(True)
        """Divide by the group's standard deviation in (1). Without effect where an engine gives the advantages.
        Default: GRPO's."""

    options: Options

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """(1) → (B,)."""
        return group_advantages(rollouts, scale=self.options.scale_rewards)

    def assign(self, rollouts: Rollouts) -> Credit:
        actions = rollouts.actions
        entropy = self.signal(rollouts, "entropy")
        level = 1.0 - self.options.share
        if self.options.scope == "rollout":
            threshold = row_quantile(entropy, actions, level)[:, None]  # (B, 1)
        else:
            threshold = batch_quantile(entropy, actions, level)
        kept = ((entropy >= threshold) & actions.valid).to(entropy.dtype)  # (B, L)
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * kept, kept, every_token(actions))


def batch_quantile(values: Tensor, actions: ActionTokens, quantile: float) -> Tensor:
    """Quantile over all action tokens of the batch, linear between neighbours; 0 where there are none → ()."""
    ascending = values[actions.valid].sort().values
    if ascending.numel() == 0:
        return values.new_zeros(())
    place = actions.counts.new_tensor(ascending.numel() - 1, dtype=wide(values)) * quantile
    low, high = ascending[place.floor().long()], ascending[place.ceil().long()]
    return low + (high - low) * (place - place.floor()).to(values.dtype)
