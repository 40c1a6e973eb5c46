"""What all methods share that spread a rollout's advantage over its tokens: equations (1), (8) and (9)."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.weights import preserve_mass, token_advantages
from gear_rl.methods.base import option, to_credit
from gear_rl.methods.outcome import OnOutcome


class Reweighting(OnOutcome):
    """A rollout's advantage (1), spread by the raw weights ρ that a method gives, its mass preserved: (8), (9)."""

    class Options(OnOutcome.Options):
        mix: float = option(1.0, at_least=0.0, at_most=1.0)
        """λ of (9): 0 is GRPO, 1 the full weights. To decay it over training, pass each step its own. Default: ours."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        """ρ_t > 0, packed (B, L), given each rollout's advantage (B,); and the segments behind it."""
        raise NotImplementedError

    def assign(self, rollouts: Rollouts) -> Credit:
        advantage = self.outcome(rollouts)  # (B,)
        rho, segments = self.raw_weights(rollouts, advantage)
        weights = preserve_mass(rho, rollouts.actions)
        return to_credit(rollouts, token_advantages(advantage, weights, self.options.mix), weights, segments)
