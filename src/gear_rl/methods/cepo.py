"""CEPO: the outcome gives the direction, two hinted selves, one shown a wrong answer, the size of a token's update."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.baselines import number_in_group
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.methods.base import Cost, Schedule, grid, option
from gear_rl.methods.rlsd import RLSD


class CEPO(RLSD):
    """CEPO: RLSD's weights from the contrast of two teachers; what a right and a wrong hint share cancels.

        Δ_t = log q⁺_t(y_t) − log q⁻_t(y_t)           q⁺ has read the reference answer, q⁻ a wrong one of the same group
        w_t = clip(exp(sign(A_i) Δ_t), 1 ± 0.5)       A_{i,t} = A_i ((1 − λ) + λ w_t)

    The student drops out. It does not pick the wrong answer: scoring does, and gives its teacher's log-probabilities. In
    a group without a wrong rollout there is no q⁻ (`without_wrong`).
    """

    name = "cepo"
    summary = (
        "Weights each token by how much likelier a self shown the right answer finds it than one shown a wrong one."
    )
    paper = "CEPO, arXiv 2605.19436"
    standing = "official code; the paper second-hand"
    needs: tuple[str, ...] = ("teacher_logprob", "wrong_teacher_logprob")
    schedule = Schedule(mix_steps=25, teacher="live")
    cost = Cost(2, 0, "one forward of each teacher, with the right hint and with a wrong one")
    mass = "not kept: each token between 1 − λ·clip and 1 + λ·clip of A_i (0.75 to 1.25)"
    strength = grid(mix=(0.5, 1.0), clip=(0.5, 1.0))

    class Options(RLSD.Options):
        mix: float = option(0.5, at_least=0.0, at_most=1.0)
        """λ: 0 is GRPO, 1 the full weights. Default: where CEPO starts; it falls to 0 over 25 of 50 steps."""
        clip: float = option(0.5, above=0.0, at_most=1.0)
        """How far a weight may be from 1, either way. Default: the paper's and README's; the script has 0.2."""
        success: float = option(0.5)
        """A rollout with a reward below this is wrong. Default: CEPO's code."""
        without_wrong: str = option("grpo", choices=("grpo", "rlsd"))
        """In a group where nobody is wrong: w = 1, or RLSD's weight, the student in the place of q⁻. Default: the
        code's; the paper has the other. With binary rewards A is 0 there anyway."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if self.options.without_wrong == "rlsd":
            self.needs = (*self.needs, "student_logprob")

    def gap(self, rollouts: Rollouts) -> Tensor:
        teacher = self.signal(rollouts, "teacher_logprob")
        other = self.signal(rollouts, "wrong_teacher_logprob")
        wrong = rollouts.counted & (rollouts.rewards < self.options.success)
        contrasted = (number_in_group(wrong, rollouts.group_ids) > 0)[:, None]  # (B, 1)
        instead = self.signal(rollouts, "student_logprob") if self.options.without_wrong == "rlsd" else teacher
        return teacher - other.where(contrasted, instead)
