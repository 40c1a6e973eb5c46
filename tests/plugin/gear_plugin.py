"""A package that adds a method, a signal and a task to gear-rl by entry points. It touches nothing of gear-rl's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gear_rl.assignment.baselines import group_advantages
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.signals import Signal
from gear_rl.methods.base import Method
from gear_rl.options import option
from gear_rl.tasks import SingleTurn, Verdict
from gear_rl.tasks.workshop import Workshop


def lateness(reading) -> torch.Tensor:
    """0 at the first action token of a rollout, 1 at the last → (B, T)."""
    mask = reading.sampled.action_mask
    place = (mask.cumsum(1) - 1).clamp(min=0).float()
    return place / (mask.sum(1, keepdim=True) - 1).clamp(min=1) * mask


LATENESS = Signal("lateness", "l", "model", "token", "none", "how late in the rollout a token stands", compute=lateness)


class LateCredit(Method):
    """Later tokens earn more: weights 1 + tilt · (lateness − mean)."""

    name = "late_credit"
    summary = "later tokens earn more"
    standing = "ours"
    needs = ("lateness",)

    @dataclass(frozen=True)
    class Options:
        tilt: float = option(1.0, at_least=0, at_most=1)

    def assign(self, rollouts):
        mask = rollouts.action_mask
        late = rollouts.signals["lateness"]
        mean = (late * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        weights = (1 + self.options.tilt * (late - mean)) * mask
        return Credit(group_advantages(rollouts)[:, None] * weights, weights, mask.long(), torch.zeros_like(mask))


@dataclass
class CountUp(SingleTurn):
    """Say the numbers of an order's jobs: a task for the embedded model's vocabulary, judged by its length."""

    name = "count_up"
    summary = "say as little as possible"
    max_turn_tokens: int = 8

    def rows(self, split, count, seed=0):
        return [{**row, "answer": "yes"} for row in Workshop().rows(split, count or 16, seed)]

    def judge(self, row, completion):
        words = len(completion.split())
        return Verdict(1.0 / (1 + words), words == 0)

    def default_model(self):
        return Workshop().default_model()
