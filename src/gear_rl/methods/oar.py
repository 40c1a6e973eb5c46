"""OAR: more weight on tokens that the final answer depends on. The two methods differ in how scoring finds these."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, every_token
from gear_rl.assignment.weights import row_quantile
from gear_rl.methods.base import Cost, grid, option
from gear_rl.methods.reweighting import Reweighting


class OutcomeGrounded(Reweighting):
    """OAR's bi-level weights, from a score of each token's importance for the final answer:

        s = minmax(log1p(score)) over the rollout;  τ = quantile(s)
        s < τ:  ρ = max(0.1, s / τ)                 s ≥ τ:  ρ = 1 + β (s − τ) / (1 − τ)

    Then (8), which rescales so that Σ w = n, and (9). Equal scores give GRPO's even weights. It does not ask whether an
    influence was good: the sign of a token's advantage stays the outcome's.
    """

    paper = "OAR, arXiv 2601.07408"
    standing = "official code; ours: all action tokens are weighed"
    needs: tuple[str, ...]
    """One signal, which holds the importance, at least 0."""
    strength = grid(beta=(1.0, 2.0, 4.0, 8.0))

    class Options(Reweighting.Options):
        beta: float = option(1.0, at_least=0.0)
        """β: the most important token weighs 1 + β before rescaling. Default: OAR's README; ports of others use 2.0 and
        1.0."""
        threshold: float = option(0.25, at_least=0.0, at_most=1.0)
        """Level of the quantile τ that divides suppressed from boosted tokens. Default: OAR's README; ports of others
        use 0.4 and 0.7."""
        rho_min: float = option(0.1, above=0.0, at_most=1.0)
        """Smallest raw weight of a suppressed token. Default: OAR's."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o, actions = self.options, rollouts.actions
        score = self.signal(rollouts, self.needs[0]).clamp(min=0).log1p()  # (B, L); below 0 is rounding
        lowest = score.masked_fill(~actions.valid, float("inf")).amin(1, keepdim=True)
        span = (score.amax(1, keepdim=True) - lowest).where(actions.counts[:, None] > 0, 0.0)  # (B, 1)
        s = ((score - lowest) / span.where(span > 0, 1.0)).where(actions.valid & (span > 0), 0.0)  # in [0, 1]
        tau = row_quantile(s, actions, o.threshold)[:, None]  # (B, 1)
        below = s < tau
        suppressed = (s / tau.where(tau > 0, 1.0)).clamp(min=o.rho_min)
        boosted = 1.0 + o.beta * (s - tau) / (1.0 - tau).where(tau < 1, 1.0)
        return torch.where(below, suppressed, boosted), every_token(actions)


class OARP(OutcomeGrounded):
    """OAR-P: a token's importance is how far the final answer's distribution moves when the token is masked."""

    name = "oar_p"
    summary = "More weight on tokens whose masking moves the final answer; one forward per token."
    needs = ("saliency_mask",)
    cost = Cost("n", 0, "one forward per action token, with that token masked")


class OARG(OutcomeGrounded):
    """OAR-G: a token's importance is |∂(answer's divergence under small embedding noise)/∂e · e|, for all tokens in one
    backward pass: the cheap stand-in for OAR-P."""

    name = "oar_g"
    summary = "More weight on tokens whose embedding the final answer is sensitive to; one backward pass."
    needs = ("saliency_grad",)
    cost = Cost(2, 1, "a clean and a noisy forward, and one backward to the embeddings")
