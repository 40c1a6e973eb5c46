"""OPSD, SDPO and SDPG: the hinted self is a teacher to imitate, by a loss of its own rather than by weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import whole_rollout
from gear_rl.methods.base import Cost, Hint, Method, option, to_credit
from gear_rl.methods.distillation import Distillation
from gear_rl.methods.grpo import GRPO

DISTILLING = Cost(1, 0, "one forward of the teacher; the student's pass is the loss's own")


class DistillationAlone(Method):
    """No policy gradient: every advantage is 0, and all learning comes from `distillation`."""

    cost = DISTILLING
    reads_outcomes = False
    preserves_mass = False

    def assign(self, rollouts: Rollouts) -> Credit:
        weights = rollouts.actions.valid.to(rollouts.dtype)  # (B, L)
        return to_credit(rollouts, torch.zeros_like(weights), weights, whole_rollout(rollouts.actions))


class OPSD(DistillationAlone):
    """OPSD: on its own rollouts the student learns the distribution of its starting self, which has read the reference.

    loss = JSD_β(student, teacher), per token, over the full vocabulary; β = ½; the teacher keeps the weights of step 0.
    It does not read rewards at all. Past one or two hundred steps it tends to collapse.
    """

    name = "opsd"
    summary = "Loss, not weights: imitates the starting self that has read the reference solution; no reward."
    paper = "OPSD, arXiv 2601.18734"
    standing = "seen"
    hint: Hint = "own"

    @dataclass(frozen=True)
    class Options(Method.Options):
        beta: float = option(0.5, above=0.0, at_most=0.999)
        """β of the Jensen–Shannon divergence: the teacher's share of the mixture. Default: OPSD's."""
        coefficient: float = option(1.0, above=0.0)
        """What the loss is multiplied with. Default: OPSD's; it is the only loss."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        o = self.options
        self.distillation = Distillation("jsd", o.coefficient, beta=o.beta, teacher="base")


class SDPO(DistillationAlone):
    """SDPO: the teacher has read a successful rollout of the same group and the environment's feedback.

    loss = JSD(student, teacher), per token, over the student's 100 likeliest tokens and one bucket for the rest; the
    teacher's weights follow by an exponential moving average. A rollout without a successful sibling and without
    feedback has nothing to learn from. It does not read rewards except to tell which siblings were successful.
    """

    name = "sdpo"
    summary = "Loss, not weights: imitates the self that has read a successful sibling and the feedback."
    paper = "SDPO, arXiv 2601.20802"
    standing = "seen; ours: the symmetric β, the student's top k"
    hint: Hint = "sibling"

    @dataclass(frozen=True)
    class Options(Method.Options):
        beta: float = option(0.5, above=0.0, at_most=0.999)
        """β of the Jensen–Shannon divergence: the teacher's share of the mixture. Default: ours, the symmetric one."""
        top_k: int = option(100, at_least=0)
        """How many of the student's likeliest tokens are compared one by one; 0: the full vocabulary. Default: SDPO's."""
        coefficient: float = option(1.0, above=0.0)
        """What the loss is multiplied with. Default: SDPO's; it is the only loss."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        o = self.options
        self.distillation = Distillation("jsd", o.coefficient, beta=o.beta, top_k=o.top_k or None, teacher="ema")


class SDPG(GRPO):
    """SDPG: GRPO, plus β KL(student ‖ hinted self) over the full vocabulary, plus α KL(student ‖ starting policy).

    Its advantages are GRPO's. It does not use the teacher as a weight, so a token's blame or praise is the rollout's.
    """

    name = "sdpg"
    summary = "GRPO plus a small loss towards the hinted self and another towards the starting policy."
    paper = "SDPG, arXiv 2606.04036"
    standing = "seen"
    hint: Hint = "own"
    cost = Cost(2, 0, "forwards of teacher and starting policy; the student's pass is the loss's own")

    @dataclass(frozen=True)
    class Options(Method.Options):
        coefficient: float = option(0.001, at_least=0.0)
        """β, of KL(student ‖ teacher). Default: SDPG's."""
        reference: float = option(0.001, at_least=0.0)
        """α, of KL(student ‖ starting policy). Default: SDPG's."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        o = self.options
        self.distillation = Distillation("reverse_kl", o.coefficient, reference_coefficient=o.reference)
