"""Weight on surprising tokens, without any teacher."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, every_token
from gear_rl.assignment.weights import normalise, raw_weight
from gear_rl.methods.base import STUDENT, grid, option
from gear_rl.methods.reweighting import Reweighting


class LowProbability(Reweighting):
    """GEAR's weights with 1 − p(y_t), how surprised the student was by its own token, in place of the divergence:

    c_t = min(1, (1 − p(y_t)) / max(Q(1 − p), floor)), as (3); then (7) with σ = +1, (8), (9). No segments.
    If GEAR does not beat it, a teacher is not worth its forward pass.
    """

    name = "low_probability"
    summary = "Teacher-free: more weight on tokens the student found unlikely."
    standing = "ours"
    needs = ("student_logprob",)
    cost = STUDENT
    strength = grid(alpha=(1.0, 2.0, 4.0, 8.0))

    class Options(Reweighting.Options):
        alpha: float = option(2.0, at_least=0.0)
        """α of (7): how strongly surprise moves the weight; 0 is GRPO. Default: GEAR's."""
        quantile: float = option(1.0, above=0.0, at_most=1.0)
        """Q's level; 1 is the rollout's maximum. Default: GEAR's."""
        floor: float = option(0.1, above=0.0)
        """Smallest divisor, a probability: a rollout the student was sure of throughout stays even. Default: ours."""
        rho_min: float = option(0.05, above=0.0, at_most=1.0)
        """Smallest raw weight in (7). Default: GEAR's."""
        rho_max: float = option(10.0, at_least=1.0)
        """Largest raw weight in (7). Default: GEAR's."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o, actions = self.options, rollouts.actions
        surprise = -self.signal(rollouts, "student_logprob").expm1()  # (B, L)  1 − p, exact for p near 1; filling 0
        local_credit = normalise(surprise, actions, o.quantile, o.floor)
        return raw_weight(local_credit, o.alpha, o.rho_min, o.rho_max), every_token(actions)
