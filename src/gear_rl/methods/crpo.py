"""CRPO: the channels of a reward are compared apart, in a group that holds an anchor rollout."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import VERL, advantages_of, refuse_groups_of_one, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import whole_rollout
from gear_rl.errors import GearError
from gear_rl.methods.base import STUDENT, Method, grid, option, to_credit

ANCHOR = "anchor"


class CRPO(Method):
    """A_i = mean over channels c of (r_i^c − mean_g r^c) / (std_g r^c + ε), times (1 − 0.02 H_b(π_i)).

        π_i = e^ℓ_i / (e^ℓ_i + e^ℓ_anchor)        ℓ: mean log-probability of a rollout's tokens; H_b: binary entropy, nats

    The anchor is a rollout of the group that was sampled without the role's instruction. It is marked by a channel
    "anchor" (above 0), enters the statistics and is trained like the others; in a group without one the factor is 1. For
    the source's two channels, task and style, the mean is its 0.5 and 0.5.

    It works on whole rollouts: no token is credited apart. It does not sample anchors, does not normalise style rewards
    by role, and has none of the source's loss. The reward itself and advantages that an engine gives are not read.
    """

    name = "crpo"
    summary = (
        "Normalises each channel of the reward apart and averages; slightly less where an anchor rollout is as likely."
    )
    paper = "CRPO, arXiv 2605.25511"
    standing = "official code, the paper second-hand; ours: more than two channels"
    needs: tuple[str, ...] = ("student_logprob",)
    cost = STUDENT
    fewest_channels = 2
    mass = "not kept: the mean of the channels' advantages, in place of A_i"
    strength = grid(certainty=(0.0, 0.02, 0.1, 0.3))

    class Options(Method.Options):
        certainty: float = option(0.02, at_least=0.0, at_most=1.0)
        """What H_b is multiplied with; 0 leaves the factor out, and log-probabilities are not needed. Default: CRPO's."""
        scale_rewards: bool = option(True)
        """Divide each channel by its standard deviation within the group. Default: CRPO's."""

    options: Options

    def __init__(self, /, **options: object) -> None:
        super().__init__(**options)
        if not self.options.certainty:
            self.needs = ()

    def outcome(self, rollouts: Rollouts) -> Tensor:
        """The combined advantage of each rollout → (B,)."""
        names = sorted(name for name in rollouts.channels if name != ANCHOR)
        if len(names) < self.fewest_channels:
            given = ", ".join(names) or "none"
            raise GearError(
                f"crpo needs at least {self.fewest_channels} named reward channels (Rollouts.channels; a task gives "
                f"them in Verdict.channels) beside {ANCHOR!r}. Channels given: {given}."
            )
        refuse_groups_of_one(rollouts.group_ids)
        total = torch.zeros_like(rollouts.rewards, dtype=rollouts.dtype)
        for name in names:
            rewards = rollouts.channels[name].to(rollouts.dtype)
            total = total + advantages_of(rewards, rollouts, self.options.scale_rewards, VERL)
        if self.options.certainty:
            total = total * self._certainty(rollouts)
        return total / len(names)

    def _certainty(self, rollouts: Rollouts) -> Tensor:
        """1 − 0.02 H_b(π) → (B,); 1 in a group without an anchor. Of several anchors, the mean ℓ counts."""
        logprob, counts = self.signal(rollouts, "student_logprob"), rollouts.actions.counts
        if ANCHOR not in rollouts.channels:
            return torch.ones_like(rollouts.rewards, dtype=rollouts.dtype)
        anchors = (rollouts.channels[ANCHOR] > 0) & rollouts.counted  # NaN > 0 is False
        of_rollout = logprob.sum(1, dtype=wide(logprob)) / counts.clamp(min=1)  # (B,) ℓ
        groups, row = rollouts.group_ids.unique(return_inverse=True)
        sums = of_rollout.new_zeros(len(groups)).index_add_(0, row, of_rollout.where(anchors, 0.0))
        number = torch.zeros_like(sums).index_add_(0, row, anchors.to(sums.dtype))
        gap = of_rollout - (sums / number.clamp(min=1))[row]  # ℓ − ℓ_anchor
        share = 1.0 / (1.0 + (-gap).exp())
        entropy = -torch.xlogy(share, share) - torch.xlogy(1.0 - share, 1.0 - share)
        return torch.where(number[row] > 0, 1.0 - self.options.certainty * entropy, 1.0).to(rollouts.dtype)

    def assign(self, rollouts: Rollouts) -> Credit:
        weights = rollouts.actions.valid.to(rollouts.dtype)  # (B, L)
        return to_credit(rollouts, self.outcome(rollouts)[:, None] * weights, weights, whole_rollout(rollouts.actions))
