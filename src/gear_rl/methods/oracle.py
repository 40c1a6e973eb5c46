"""The ceiling: credit by someone who knows which decisions were right."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, every_token
from gear_rl.methods.base import option
from gear_rl.methods.reweighting import Reweighting


class Oracle(Reweighting):
    """Weights the right decisions of rollouts better than their group, and the wrong decisions of worse ones.

    ρ_t = 1 where sign(A_i) decision_t > 0, else ρ_min; then (8), (9). A rollout where nothing qualifies keeps GRPO's
    uniform weights. For tasks that can tell; it says how much there is to gain there, and is no method for real data.
    """

    name = "oracle"
    summary = "Weights the decisions that truly were right (won) or wrong (lost): the ceiling, where a task knows them."
    standing = "ours"
    needs = ("decision",)

    class Options(Reweighting.Options):
        rho_min: float = option(0.05, above=0.0, at_most=1.0)
        """Raw weight of every other token; 1 is GRPO. Default: ours, GEAR's smallest raw weight."""

    options: Options

    def raw_weights(self, rollouts: Rollouts, advantage: Tensor) -> tuple[Tensor, Segments]:
        deserves = advantage.sign()[:, None] * self.signal(rollouts, "decision") > 0  # (B, L)
        spared = ~deserves & deserves.any(1, keepdim=True)
        rho = torch.ones_like(spared, dtype=rollouts.dtype).masked_fill_(spared, self.options.rho_min)
        return rho, every_token(rollouts.actions)
