"""SDAR: GRPO, and a small push towards the tokens that the hinted self finds likelier."""

from __future__ import annotations

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import STUDENT_AND_TEACHER, Hint, Schedule, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class SDAR(OnOutcome):
    """SDAR: A_{i,t} = A_i + c g_t,   g_t = σ(5 Δ_t),   Δ_t = log q_t(y_t) − log p_t(y_t).

    The source adds a loss c · mean g_t (log q − log p) with g_t held constant. Its gradient is that of c g_t as an
    advantage, so on-policy and under the same aggregation this is the same; where a ratio is clipped it is not. The push
    only ever raises sampled tokens and does not ask about the outcome. The source's hint is a retrieved skill; here the
    task's. Of its gates only the gap's is here.
    """

    name = "sdar"
    summary = "Adds a small push, the same for won and lost rollouts, to tokens that the hinted self finds likelier."
    paper = "SDAR, arXiv 2605.15155"
    standing = "official code, the paper second-hand; ours: the loss as an advantage"
    needs = ("student_logprob", "teacher_logprob")
    hint: Hint = "own"
    schedule = Schedule(teacher="live")
    cost = STUDENT_AND_TEACHER
    mass = "grows: between 0 and c (0.01) is added to every token"
    strength = grid(coefficient=(0.01, 0.03, 0.1, 0.3))

    class Options(OnOutcome.Options):
        coefficient: float = option(0.01, at_least=0.0)
        """c: the largest push; 0 is GRPO. Default: the paper's; the code has 0.1."""
        sharpness: float = option(5.0, at_least=0.0)
        """What Δ_t is multiplied with in the gate; 0 is the ungated baseline, g = ½. Default: SDAR's."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, valid = self.options, rollouts.actions.valid
        gap = self.signal(rollouts, "teacher_logprob") - self.signal(rollouts, "student_logprob")
        gate = 1.0 / (1.0 + (-o.sharpness * gap).exp())  # not torch's sigmoid: its rounding depends on the batch
        advantages = (self.outcome(rollouts)[:, None] + o.coefficient * gate) * valid
        return to_credit(rollouts, advantages, valid.to(advantages.dtype), every_token(rollouts.actions))
