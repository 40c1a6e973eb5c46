"""OPSD, SDPO and SDPG: the hinted self is a teacher to imitate, by a loss of its own rather than by weights."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import whole_rollout
from gear_rl.methods.base import Cost, Hint, Method, Schedule, grid, option, to_credit
from gear_rl.methods.distillation import Distillation, divergence_kind
from gear_rl.methods.grpo import GRPO

DISTILLING = Cost(1, 0, "one forward of the teacher; the student's pass is the loss's own")


_LIMITS = ("top_k", "entry_clip", "token_cap", "importance_clip")


class DistillationAlone(Method):
    """No policy gradient: every advantage is 0, and all learning comes from `distillation`, whose options are the method's:
    `beta` and `coefficient`, and of the rest those it has; 0 leaves one out."""

    cost = DISTILLING
    reads_outcomes = False
    mass = "none: advantages are 0, all learning is the loss's"

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        given: dict[str, Any] = asdict(self.options)
        limits: dict[str, Any] = {name: given[name] or None for name in _LIMITS if name in given}  # 0 is none
        beta = given["beta"]
        self.distillation = Distillation(divergence_kind(beta), given["coefficient"], beta=beta, **limits)

    def assign(self, rollouts: Rollouts) -> Credit:
        weights = rollouts.actions.valid.to(rollouts.dtype)  # (B, L)
        return to_credit(rollouts, torch.zeros_like(weights), weights, whole_rollout(rollouts.actions))


class OPSD(DistillationAlone):
    """OPSD: on its own rollouts the student learns the distribution of its starting self, which has read the reference.

    loss = Σ_v min(q(v) log(q(v)/p(v)), 0.05) per token, over the full vocabulary; the teacher keeps the weights of step
    0. It does not read rewards at all. Past one or two hundred steps it tends to collapse.
    """

    name = "opsd"
    summary = "Loss, not weights: imitates the starting self that has read the reference solution; no reward."
    paper = "OPSD, arXiv 2601.18734"
    standing = "official code, in two states"
    hint: Hint = "own"
    schedule = Schedule(teacher="base")
    strength = (*grid(coefficient=(1.0, 10.0)), *grid(beta=(0.5,), entry_clip=(0.0,), coefficient=(1.0, 10.0)))

    class Options(Method.Options):
        beta: float = option(0.0, at_least=0.0, at_most=1.0)
        """0: forward KL(q ‖ p); between 0 and 1: the Jensen–Shannon divergence with the teacher's share β; 1: KL(p ‖ q).
        Default: the repository's later state; its first was 0.5 without a clip."""
        entry_clip: float = option(0.05, at_least=0.0)
        """Each vocabulary entry is clamped from above at this before the sum; 0: no clip. Default: the repository's
        later state; its first had none."""
        token_cap: float = option(0.0, at_least=0.0)
        """A token's divergence is clamped from above at this; 0: no cap. Default: none in the repository; CREST's
        baseline uses 0.2 in place of the entry clip."""
        coefficient: float = option(1.0, above=0.0)
        """What the loss is multiplied with. Default: OPSD's; it is the only loss."""

    options: Options


class SDPO(DistillationAlone):
    """SDPO: the teacher has read a successful rollout of the same group or, where there is none, the environment's feedback.

    loss = JSD(student, teacher) per token, over the student's 100 likeliest tokens and one bucket for the rest, times a
    clipped importance ratio. A rollout without a successful sibling and without feedback gives no gradient. There is no
    reward term: rewards only tell which siblings were successful.
    """

    name = "sdpo"
    summary = "Loss, not weights: imitates the self that has read a successful sibling and the feedback."
    paper = "SDPO, arXiv 2601.20802"
    standing = "official code"
    hint: Hint = "sibling_or_feedback"
    schedule = Schedule(teacher="ema", teacher_decay=0.05)
    strength = grid(coefficient=(0.3, 1.0, 3.0, 10.0))

    class Options(Method.Options):
        beta: float = option(0.5, at_least=0.0, at_most=1.0)
        """The source's α. 0: KL(q ‖ p); between: the Jensen–Shannon divergence with the teacher's share β; 1: KL(p ‖ q).
        Default: SDPO's generalisation runs; its runs with rich feedback use 1."""
        top_k: int = option(100, at_least=0)
        """How many of the student's likeliest tokens are compared one by one; 0: the full vocabulary. Default: SDPO's
        generalisation runs; its runs with rich feedback use 20."""
        importance_clip: float = option(2.0, at_least=0.0)
        """Upper bound of the importance ratio that multiplies each token's loss; 0: no ratio. Default: SDPO's."""
        success: float = option(0.5)
        """A sibling with at least this reward is successful. Default: SDPO's scripts; its configuration class has 1."""
        success_by: str = option("reward", choices=("reward", "group_mean"))
        """"group_mean": a sibling above its group's mean reward is successful, whatever `success`; for rewards that are no
        matter of right and wrong. Default: SDPO's."""
        coefficient: float = option(1.0, above=0.0)
        """What the loss is multiplied with. Default: SDPO's; it is the only loss."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if self.options.success_by == "group_mean":
            self.success_at = None


class SDPG(GRPO):
    """SDPG: GRPO, plus β KL(student ‖ hinted self) over the full vocabulary, plus a term towards the starting policy.

    The hinted self has the live weights. The second term is (α/2)(log p − log π_ref)² on the sampled token. Advantages
    are GRPO's, with the std: the teacher is no weight, so a token's blame or praise is the rollout's.
    """

    name = "sdpg"
    summary = "GRPO plus a small loss towards the hinted self and another towards the starting policy."
    paper = "SDPG, arXiv 2606.04036"
    standing = "official code"
    hint: Hint = "own"
    schedule = Schedule(teacher="live")
    cost = Cost(2, 0, "forwards of teacher and starting policy; the student's pass is the loss's own")
    mass = "kept in the policy gradient; two losses are added"
    strength = grid(coefficient=(0.001, 0.01, 0.1, 1.0))

    class Options(Method.Options):
        coefficient: float = option(0.001, at_least=0.0)
        """β, of KL(student ‖ teacher). Default: SDPG's scripts."""
        token_cap: float = option(20.0, at_least=0.0)
        """A token's KL is clamped from above at this; 0: no cap. Default: SDPG's code."""
        reference: float = option(0.001, at_least=0.0)
        """α, of the term towards the starting policy. Default: SDPG's scripts."""
        reference_mode: str = option("urkl", choices=("urkl", "fkl"))
        """"urkl": (α/2)(log p − log π_ref)² on the sampled token; "fkl": α π_ref/p there. Default: SDPG's scripts; its
        configuration class has the other."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        o = self.options
        self.distillation = Distillation(
            "reverse_kl", o.coefficient, token_cap=o.token_cap or None, temper_teacher=False,
            reference_coefficient=o.reference, reference="squared" if o.reference_mode == "urkl" else "ratio",
        )  # fmt: skip
