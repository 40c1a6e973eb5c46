"""CREST: turn-level advantages, weighted within the turn by a hinted self that agrees with the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.methods.base import option
from gear_rl.methods.mt_grpo import turn_level_advantages
from gear_rl.methods.rlsd import RLSD, evidence


class CREST(RLSD):
    """CREST: turn-level advantages, times RLSD's weight where outcome and teacher agree, times a factor for surprise.

        w_t = clip(exp(sign(A_t) Δ_t / 2), 1 ± 0.28) · 1[sign(A_t) Δ_t > 0] · (1 + 0.5 (2 σ(z_t) − 1))

    A_t is MT-GRPO's advantage of the token's turn, with its unbiased baseline; z_t the surprisal −log p_t(y_t),
    standardised over the rollout. Tokens that the gate shuts keep (1 − λ) of their advantage. It does not preserve mass.
    """

    name = "crest"
    summary = "Turn-level advantage, weighted by the hinted self where it agrees with the outcome, and by surprise."
    paper = "CREST, 2026"
    standing = "seen: the product and its constants; ours: turn baseline, z over the rollout"
    needs = ("student_logprob", "teacher_logprob", "turn_reward")

    @dataclass(frozen=True)
    class Options(RLSD.Options):
        mix: float = option(0.3, at_least=0.0, at_most=1.0)
        """λ: 0 is turn-level credit alone, 1 the full weights. Default: CREST's."""
        clip: float = option(0.28, above=0.0, at_most=1.0)
        """How far RLSD's factor may be from 1, either way. Default: CREST's."""
        sharpness: float = option(0.5, above=0.0)
        """What Δ_t is multiplied with before the exponential. Default: CREST's, which halves it."""
        surprise: float = option(0.5, at_least=0.0, at_most=1.0)
        """How much of a factor surprise makes: between 1 − this and 1 + this. Default: CREST's."""

    options: Options

    def advantage(self, rollouts: Rollouts) -> Tensor:
        turn_reward = self.signal(rollouts, "turn_reward")
        return turn_level_advantages(rollouts, self.outcome(rollouts), turn_reward, weight=1.0, baseline="unbiased")

    def weights(self, rollouts: Rollouts, advantage: Tensor) -> Tensor:
        o, gap = self.options, self.gap(rollouts)
        z = standardised(-self.signal(rollouts, "student_logprob"), rollouts)
        # Not torch's sigmoid: it rounds a number by where it stands in the tensor, and the batch must not matter.
        factor = 1.0 + o.surprise * (2.0 / (1.0 + (-z).exp()) - 1.0)
        agrees = advantage.sign() * gap > 0
        return evidence(advantage, gap * o.sharpness, o.clip) * agrees * factor


def standardised(values: Tensor, rollouts: Rollouts) -> Tensor:
    """(x − mean) / (std + 1e-4) over each rollout's action tokens, packed (B, L) → (B, L); one token: 0."""
    actions = rollouts.actions
    n = actions.counts.clamp(min=1)[:, None]
    spread = values.to(wide(values))
    spread = (spread - spread.sum(1, keepdim=True) / n) * actions.valid  # the filling of `values` is 0
    std = (spread.square().sum(1, keepdim=True) / n).sqrt()
    return (spread / (std + 1e-4)).to(values.dtype)
