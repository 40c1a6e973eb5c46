"""GRAIL: more weight on tokens that the boxed answer is sensitive to. No teacher."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import ActionTokens, Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import Cost, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class GRAIL(OnOutcome):
    """GRAIL: A_{i,t} = w_t A_i, where the final answer is sensitive to the token's embedding.

        z_t = z(log(score_t + 1e-8)) over the rollout           score_t = ‖∂ℓ/∂e ⊙ e‖₂, ℓ of the boxed answer
        w_t = clip(1 + 0.5 z_t, 0.5, 5)                         then 5 inside the box, 1 on its marks and after it

    By default only rollouts with A ≤ 0 are reweighted; the others, and those without a box, have w = 1, except that the
    box itself weighs 5 in every rollout, as in the official code. Weights are not rescaled. It does not ask whether an
    influence was good.
    """

    name = "grail"
    summary = (
        "More blame on tokens that a lost rollout's boxed answer is sensitive to; the box itself weighs five times."
    )
    paper = "GRAIL, arXiv 2606.04889"
    standing = "official code"
    needs = ("answer_saliency", "answer_box")
    cost = Cost(1, 1, "one forward and one backward of the boxed answer's log-probability")
    mass = "not kept: about 1 on average where no weight is clipped; each token between 0.5 and 5 of A_i"
    strength = grid(spread=(0.5, 1.0), w_max=(5.0, 20.0))

    class Options(OnOutcome.Options):
        spread: float = option(0.5, at_least=0.0)
        """How far one standard deviation of log saliency moves the weight. Default: GRAIL's configuration."""
        w_min: float = option(0.5, at_least=0.0, at_most=1.0)
        """Smallest weight. Default: GRAIL's configuration; its class has 0.1."""
        w_max: float = option(5.0, at_least=1.0)
        """Largest weight, and that of the tokens inside the box. Default: GRAIL's configuration."""
        symmetry: str = option("wrong", choices=("wrong", "correct", "both"))
        """Which rollouts are reweighted: those with A ≤ 0, with A > 0, or all. Default: GRAIL's configuration; its class
        has "both"."""
        box: str = option("all", choices=("all", "reweighted"))
        """Where the box weighs more: in all rollouts, or in the reweighted ones alone. Default: GRAIL's code."""
        scale_rewards: bool = option(False)
        """Divide by the group's standard deviation in (1). Without effect where an engine gives the advantages. Default:
        GRAIL's, which is built on Dr.GRPO."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        advantage, box = self.outcome(rollouts), self.signal(rollouts, "answer_box")
        score = self.signal(rollouts, "answer_saliency").clamp(min=0)
        chosen = {"wrong": advantage <= 0, "correct": advantage > 0, "both": torch.ones_like(advantage).bool()}
        reweighted = (chosen[o.symmetry] & (box != 0).any(1))[:, None]  # (B, 1)
        salient = (1.0 + o.spread * _z((score + 1e-8).log(), actions)).clamp(o.w_min, o.w_max)
        weights = torch.where(reweighted, salient, 1.0)
        weights = weights.masked_fill(box == 2, 1.0)
        weights = weights.masked_fill((box == 1) & (reweighted if o.box == "reweighted" else actions.valid), o.w_max)
        return to_credit(rollouts, advantage[:, None] * weights, weights, every_token(actions))


def _z(values: Tensor, actions: ActionTokens) -> Tensor:
    """(x − mean) / √(var + 1e-8) over each rollout's action tokens, packed (B, L) → (B, L); population variance."""
    n = actions.counts.clamp(min=1)[:, None]
    spread = values.to(wide(values)).masked_fill(~actions.valid, 0)
    spread = (spread - spread.sum(1, keepdim=True) / n) * actions.valid
    return (spread / (spread.square().sum(1, keepdim=True) / n + 1e-8).sqrt()).to(values.dtype)
