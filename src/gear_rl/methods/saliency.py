"""GRAIL and SHEAR: weights from inside the model, one from gradients, one from hidden states. No teacher."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, every_token
from gear_rl.assignment.weights import normalise, raw_weight
from gear_rl.methods.base import HIDDEN_STATES, Cost, option
from gear_rl.methods.reweighting import Reweighting


class GRAIL(Reweighting):
    """GRAIL: more weight on tokens that the final answer is locally sensitive to, by gradient × activation.

        c_t = min(1, |g_t| / max(Q(|g|), floor));  ρ_t = clip(1 + α c_t, ρ_min, ρ_max);  then (8), (9)

    Only the abstract was readable: that saliency weighs the advantage is its word, this form is GEAR's (3) and (7) and
    so ours. It does not ask whether an influence was good.
    """

    name = "grail"
    summary = "More weight on tokens by gradient times activation with respect to the final answer."
    paper = "GRAIL, arXiv 2606.04889"
    standing = "abstract; ours: the form of the weight"
    needs = ("saliency_act",)
    cost = Cost(1, 1, "one forward and one backward of the final answer's log-probability")

    @dataclass(frozen=True)
    class Options(Reweighting.Options):
        alpha: float = option(2.0, at_least=0.0)
        """α: how strongly saliency moves the weight; 0 is GRPO. Default: GEAR's."""
        quantile: float = option(1.0, above=0.0, at_most=1.0)
        """Q's level; 1 is the rollout's maximum. Default: GEAR's."""
        floor: float = option(1e-8, above=0.0)
        """Smallest divisor: where no token has any saliency, weights stay even. Default: ours; saliency has no natural
        unit, so this is no more than a guard."""
        rho_min: float = option(0.05, above=0.0, at_most=1.0)
        """Smallest raw weight. Default: GEAR's."""
        rho_max: float = option(10.0, at_least=1.0)
        """Largest raw weight. Default: GEAR's."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o, actions = self.options, rollouts.actions
        saliency = normalise(self.signal(rollouts, "saliency_act").abs(), actions, o.quantile, o.floor)
        return raw_weight(saliency, o.alpha, o.rho_min, o.rho_max), every_token(actions)


class SHEAR(Reweighting):
    """SHEAR: the advantage of a span is scaled by how far the hidden states of correct and incorrect rollouts are apart.

        ρ_t = clip(d_t / mean(d), ρ_min, ρ_max);  then (8), (9)

    d_t is the Wasserstein distance of the token's span, between the group's correct and incorrect rollouts. Only the
    abstract was readable: that the distance scales the advantage is its word; dividing by the rollout's mean, clipping
    and (8) are ours. Where no distance is known (a group all right or all wrong) the weights stay even.
    """

    name = "shear"
    summary = "Scales each span by the distance between hidden states of the group's correct and incorrect rollouts."
    paper = "SHEAR, arXiv 2604.23318"
    standing = "abstract; ours: normalisation and clipping"
    needs = ("hidden_distance",)
    cost = HIDDEN_STATES

    @dataclass(frozen=True)
    class Options(Reweighting.Options):
        rho_min: float = option(0.05, above=0.0, at_most=1.0)
        """Smallest raw weight. Default: GEAR's."""
        rho_max: float = option(10.0, at_least=1.0)
        """Largest raw weight. Default: GEAR's."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o, actions = self.options, rollouts.actions
        distance = self.signal(rollouts, "hidden_distance").clamp(min=0)  # (B, L); the filling is 0
        total = distance.sum(1, keepdim=True, dtype=wide(distance))
        mean = (total / actions.counts.clamp(min=1)[:, None]).to(distance.dtype)  # (B, 1)
        ratio = (distance / mean.where(mean > 0, 1.0)).where(mean > 0, 1.0)
        return ratio.clamp(o.rho_min, o.rho_max), every_token(actions)
