"""GEAR: granularity-adaptive advantage reweighting by self-distillation.

    (1) group advantage   A_i = (r_i − mean_g r) / (std_g r + ε)                                    known (GRPO)
    (2) signals           D_t = KL(p_t ‖ q_t), H_t = entropy of p_t; p student, q hinted teacher    known
    (3) normalise         d_t = min(1, D_t / max(Q(D), floor_kl)); h_t of H_t likewise              known that, ours how
    (4) onset             o_t: d_t ≥ τ_kl, d_t > d_prev, d_t ≥ d_next, within its turn              known that, ours how
    (5) boundary          b_t: o_t, or h_t ≥ τ_h, or first token of a turn                          known that, ours how
    (6) local credit      c_t = d of the segment's first token if that is an onset, else d_t        known
    (7) raw weight        ρ_t = clip(1 + α σ_i c_t, ρ_min, ρ_max)                                   ours
    (8) weight            w_t = ρ_t / mean(ρ)                                                       known aim, ours form
    (9) token advantage   A_{i,t} = A_i ((1 − λ) + λ w_t)                                           ours

Known: in the paper's own words. Ours: our choice where the paper's text was not at hand. Everything is over action
tokens only; Q and mean are over one rollout. (2) is scoring's work, and comes with the rollouts.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from gear_rl.assignment import segments as cut
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.weights import agreeing, normalise, raw_weight
from gear_rl.methods.base import STUDENT_AND_TEACHER, Hint, grid, option
from gear_rl.methods.reweighting import Reweighting


class DivergenceWeighting(Reweighting):
    """Weights from the divergence between student and teacher: (3), (6), (7). How a rollout is cut into segments, (4)
    and (5), is for each method to say."""

    hint: Hint = "own"
    cost = STUDENT_AND_TEACHER
    needs: tuple[str, ...] = ("reverse_kl", "student_logprob", "teacher_logprob")
    strength = grid(alpha=(1.0, 2.0, 4.0, 8.0))

    class Options(Reweighting.Options):
        alpha: float = option(2.0, at_least=0.0)
        """α of (7): how strongly local credit moves the weight; 0 is GRPO. Larger values suit hints one can trust.
        Default: ours, the careful value of a small prototype."""
        direction: str = option("consistent", choices=("consistent", "outcome", "teacher"))
        """Reading of (7), the most consequential unknown of the paper. All three and the default are ours.
        "consistent": σ = +1, and D counts only where outcome and teacher agree about the sampled token.
        "outcome": σ = +1; the outcome gives the sign, the divergence alone the magnitude.
        "teacher": σ = −sign(A); a departure earns less when it won, and more blame when it lost."""
        quantile: float = option(1.0, above=0.0, at_most=1.0)
        """Q's level in (3); 1 is the rollout's maximum. Default: ours."""
        floor_kl: float = option(0.1, above=0.0)
        """Smallest divisor of D in (3), in nats. Default: ours."""
        rho_min: float = option(0.05, above=0.0, at_most=1.0)
        """Smallest raw weight in (7). Default: ours."""
        rho_max: float = option(10.0, at_least=1.0)
        """Largest raw weight in (7). Default: ours."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if self.options.direction != "consistent":  # the only reading that asks about the sampled token
            self.needs = tuple(n for n in self.needs if n not in ("student_logprob", "teacher_logprob"))

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o = self.options
        d = self.divergence(rollouts, advantage)
        segments = self.segments(rollouts, d)
        local_credit = self.local_credit(d, segments)
        return raw_weight(local_credit, self.signed_alpha(advantage), o.rho_min, o.rho_max), segments

    def signed_alpha(self, advantage: Tensor) -> float | Tensor:
        """α σ_i of (7): a number, or (B, 1)."""
        o = self.options
        return -o.alpha * advantage.sign()[:, None] if o.direction == "teacher" else o.alpha

    def divergence(self, rollouts: Rollouts, advantage: Tensor) -> Tensor:
        """d_t of (3), in [0, 1] → (B, L)."""
        o = self.options
        divergence = self.signal(rollouts, "reverse_kl")
        if o.direction == "consistent":
            teacher, student = self.signal(rollouts, "teacher_logprob"), self.signal(rollouts, "student_logprob")
            divergence = agreeing(divergence, advantage, teacher - student)
        return normalise(divergence, rollouts.actions, o.quantile, o.floor_kl)

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        """(4), (5)."""
        raise NotImplementedError

    def local_credit(self, d: Tensor, segments: Segments) -> Tensor:
        """(6) → (B, L)."""
        return cut.departure_credit(d, segments)


class Gear(DivergenceWeighting):
    """GEAR: token resolution where student and teacher agree, one adaptive segment per departure where they part."""

    name = "gear"
    summary = "Spreads the advantage by the divergence from a hinted self, adaptively by token and segment."
    paper: ClassVar[str | None] = "GEAR, arXiv 2605.11853"
    standing = "known: (2), (6), peaks as onsets, entropy as boundary; ours: exact (3)–(5), (7), form of (8), (9)"
    needs = ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")

    class Options(DivergenceWeighting.Options):
        tau_kl: float = option(0.5, at_least=0.0)
        """τ_kl of (4): a peak of d at least this high opens an adaptive segment; above 1, none does. Default: ours."""
        tau_h: float = option(0.5, at_least=0.0)
        """τ_h of (5): normalised entropy from here on begins a new segment; above 1, none does. Default: ours."""
        floor_h: float = option(0.3, above=0.0)
        """Smallest divisor of H in (3), in nats. Default: ours."""

    options: Options

    def segments(self, rollouts: Rollouts, d: Tensor) -> Segments:
        o = self.options
        h = normalise(self.signal(rollouts, "entropy"), rollouts.actions, o.quantile, o.floor_h)
        return cut.adaptive(d, h, rollouts.actions, o.tau_kl, o.tau_h)
