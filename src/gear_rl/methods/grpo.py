"""GRPO and Dr.GRPO: every token of a rollout gets the rollout's advantage."""

from __future__ import annotations

from torch import Tensor

from gear_rl.assignment.baselines import group_advantages
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import whole_rollout
from gear_rl.methods.base import Method, to_credit


class GRPO(Method):
    """Group-relative advantage, the same for every token: equation (1), A_{i,t} = A_i.

    It does not clip, regularise, or divide by length: the loss belongs to the engine.
    """

    name = "grpo"
    summary = "The rollout's group advantage on every token; the baseline of all others."
    paper = "DeepSeekMath, arXiv 2402.03300"
    standing = "official code (TRL, verl); ε and the sample std as TRL"
    scale_rewards = True

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """(1) → (B,)."""
        return group_advantages(rollouts, scale=self.scale_rewards)

    def assign(self, rollouts: Rollouts) -> Credit:
        actions = rollouts.actions
        weights = actions.valid.to(rollouts.dtype)  # (B, L)
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * weights, weights, whole_rollout(actions))


class DrGRPO(GRPO):
    """GRPO without the division by the group's standard deviation.

    Dr.GRPO also drops the loss's 1/length, which is the engine's to set (TRL: loss_type="dr_grpo"). Advantages given by
    an engine are used as they are, so there the engine's own setting of the std counts.
    """

    name = "dr_grpo"
    summary = "GRPO without the division by the group's standard deviation."
    paper = "Dr.GRPO, arXiv 2503.20783"
    standing = "official code (TRL, verl)"
    scale_rewards = False
