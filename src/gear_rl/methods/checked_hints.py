"""Hints that outcomes check: the hinted self is followed only as far as following it goes with winning.

    (1)–(9)           as GEAR, "consistent" (`gear_rl.methods.gear`), but for (7)
    (T1)–(T3)         evidence e_{G,k} of each turn, trust T with its lower bound T₋ (`gear_rl.assignment.trust`)
    (C1) turn weight  u_{G,k} = clamp((T₋ / t₀)² (1 + e_{G,k} / s), 0, 1); times `untried` where nobody in the group followed
    (C2) raw weight   ρ_t = clip(1 + α u c_t, ρ_min, ρ_max), in place of (7)
    (C3) loss         the policy's with these advantages, + coefficient · mean over action tokens of u JSD(student, teacher)

All of (C) is ours. The teacher has the starting weights. With right hints this is close to distillation, which is faster than
any credit; with hints of another problem it is GRPO; in between each turn is decided by its own evidence.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments
from gear_rl.assignment.trust import TrustMemory, trust_of
from gear_rl.assignment.turns import Turns
from gear_rl.assignment.weights import raw_weight
from gear_rl.methods.base import Schedule, grid, option
from gear_rl.methods.distillation import Distillation
from gear_rl.methods.gear import Gear


class CheckedHints(Gear):
    """GEAR and distillation from the hinted self, both as far as the outcomes confirm the hints."""

    name = "checked_hints"
    summary = "Follows the hinted self, by credit and by a loss, as far as following it goes with winning."
    paper = None
    standing = "ours"
    schedule = Schedule(teacher="base")
    strength = grid(coefficient=(10.0, 30.0), full_trust=(0.05, 0.08))
    mass = "kept in the policy gradient; a loss is added"

    class Options(Gear.Options):
        coefficient: float = option(10.0, at_least=0.0)
        """Of the distillation loss in (C3). Default: ours."""
        full_trust: float = option(0.08, above=0.0)
        """t₀ of (C1): the lower bound of trust from which a turn without evidence of its own counts in full. Default: ours, of
        a small prototype."""
        evidence_scale: float = option(0.4, above=0.0)
        """s of (C1): a turn whose evidence is minus this has weight 0. Default: ours, the spread of a correlation of eight."""
        untried: float = option(0.0, at_least=0.0, at_most=1.0)
        """Of (C1): what a turn keeps of its weight where nobody in the group followed the hint, so that no outcome speaks for
        or against it. Default: ours."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        self.needs = Gear.needs  # (T1) reads the sampled token in every direction
        self.distillation = Distillation("jsd", self.options.coefficient) if self.options.coefficient else None

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        o = self.options
        d = self.divergence(rollouts, advantage)
        segments = self.segments(rollouts, d)
        local_credit = self.turn_weights(rollouts) * self.local_credit(d, segments)
        return raw_weight(local_credit, self.signed_alpha(advantage), o.rho_min, o.rho_max), segments

    def assign(self, rollouts: Rollouts) -> Credit:
        return replace(super().assign(rollouts), distillation=rollouts.actions.unpack(self.turn_weights(rollouts)))

    def turn_weights(self, rollouts: Rollouts) -> Tensor:
        """(C1) → (B, L)."""
        o = self.options
        for name in ("student_logprob", "teacher_logprob"):
            self.signal(rollouts, name)  # says what is missing
        trust = trust_of(rollouts)
        assert trust is not None
        overall = rollouts.hint_trust
        if overall is None:
            memory = TrustMemory()
            memory.add(trust)
            overall = memory.at_least
        table = ((overall / o.full_trust) ** 2 * (1 + trust.evidence / o.evidence_scale)).clamp(0.0, 1.0)
        return Turns(rollouts.actions).spread(table * torch.where(trust.tried, 1.0, o.untried))
