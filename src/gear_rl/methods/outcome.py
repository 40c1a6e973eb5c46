"""What all methods share that start from the group advantage of a rollout's outcome: equation (1)."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.baselines import group_advantages
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.methods.base import Method, option


class OnOutcome(Method):
    class Options(Method.Options):
        scale_rewards: bool = option(True)
        """Divide by the group's standard deviation in (1). False: as Dr.GRPO. Without effect where an engine gives the
        advantages. Default: GRPO's."""

    options: Options

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """(1): the advantage of each rollout → (B,)."""
        return group_advantages(rollouts, scale=self.options.scale_rewards)
