"""On-policy distillation from the hinted self, without any reward."""

from __future__ import annotations

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.methods.base import STUDENT_AND_TEACHER, Method, grid, option, to_credit


class OPD(Method):
    """A_t = clamp(log q_t(y_t) − log p_t(y_t), ±clip): tokens the hinted self finds likelier rise, the others fall.

    Rewards are not read at all, but a rollout that could not be scored gets 0 here too. What a credit method gains over
    this is what the outcome adds to the hint.
    """

    name = "opd"
    summary = "On-policy distillation from the hinted self, without reward."
    standing = "ours"
    needs = ("student_logprob", "teacher_logprob")
    hint = "own"
    cost = STUDENT_AND_TEACHER
    reads_outcomes = False
    mass = "none of the outcome's: a token's advantage is the teacher's, within ±clip"
    strength = grid(clip=(0.5, 1.0, 2.0, 4.0))

    class Options(Method.Options):
        clip: float = option(2.0, above=0.0)
        """Largest advantage of a token, in nats, either way. Default: ours, of a small prototype."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        clip, actions = self.options.clip, rollouts.actions
        gap = self.signal(rollouts, "teacher_logprob") - self.signal(rollouts, "student_logprob")  # (B, L)
        return to_credit(rollouts, gap.clamp(-clip, clip), actions.valid.to(gap.dtype), every_token(actions))
