"""The baseline that simple prompting is: a model is asked which turn decided the rollout, and that turn gets more credit."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, every_turn
from gear_rl.methods.base import Cost, grid, option
from gear_rl.methods.reweighting import Reweighting


class PromptedJudge(Reweighting):
    """More weight on the turn that a prompted judge names: the one that went wrong first in a rollout worse than its group,
    the one that did most in a better one.

        ρ_t = 1 + α j_t          j_t (signal "judged_turn"): 1 in the named turn, 0 elsewhere; then (8), (9)

    A rollout in which it names none keeps GRPO's credit to the last bit.
    """

    name = "prompted_judge"
    summary = "More credit to the turn that a prompted model names as decisive; GRPO where its answer cannot be read."
    standing = "ours"
    needs = ("judged_turn",)
    cost = Cost(1, 0, "the judge reads every rollout of groups with different rewards once, and answers with a number")
    strength = grid(alpha=(1.0, 2.0, 4.0, 8.0))

    class Options(Reweighting.Options):
        alpha: float = option(2.0, at_least=0.0)
        """α: how much more the named turn's tokens weigh; 0 is GRPO. Default: GEAR's."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        return 1.0 + self.options.alpha * self.signal(rollouts, "judged_turn"), every_turn(rollouts.actions)
