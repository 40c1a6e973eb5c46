"""SC-GRPO: GRPO weighted by how far a self that has read a correct sibling disagrees with the student."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import number_in_group, relative_to_group, wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import every_token
from gear_rl.assignment.weights import pooled_quantile
from gear_rl.methods.base import STUDENT_AND_TEACHER, Hint, Schedule, grid, option, to_credit
from gear_rl.methods.outcome import OnOutcome


class SCGRPO(OnOutcome):
    """SC-GRPO: A_{i,t} = f_t A_i, the same for both signs.

        f_t = D_t / (D_t + c)         D_t = KL(teacher ‖ student);  c = max(75th percentile of D, 1e-4)

    n_c rollouts of a group of G are correct. 2 ≤ n_c < G: as above. n_c = 1 or G: plain GRPO. n_c = 0: the teacher reads
    any sibling, s_i is the mean of f over the tokens that both have (the first min of the two lengths), and A_i = 0.1 z(s_i)
    takes the outcome's place.
    """

    name = "sc_grpo"
    summary = "Weights each token by the divergence from a self that has read a correct sibling; all weights below 1."
    paper = "SC-GRPO, arXiv 2606.18810"
    standing = "full text of the method; ours: the percentile of each group"
    needs = ("forward_kl", "sibling_length")
    hint: Hint = "any_sibling"
    schedule = Schedule(teacher="live")
    cost = STUDENT_AND_TEACHER
    mass = "shrinks: weights below 1, and 0.5 only at the 75th percentile"
    strength = grid(percentile=(0.5, 0.75, 0.9, 0.97))

    class Options(OnOutcome.Options):
        percentile: float = option(0.75, at_least=0.0, at_most=1.0)
        """The level of D at which a weight is ½. Default: SC-GRPO's."""
        floor: float = option(1e-4, above=0.0)
        """Smallest c, in nats. Default: SC-GRPO's."""
        scope: str = option("group", choices=("group", "rollout", "batch"))
        """Which tokens the percentile is over. Default: ours; the source's is the micro-batch, in which a rollout's
        credit depends on its neighbours."""
        bonus: float = option(0.1, at_least=0.0)
        """The size of A_i in a group where nobody is correct; 0: no credit there. Default: SC-GRPO's."""
        success: float = option(0.5)
        """A rollout with at least this reward is correct. Default: ours; the source's rewards are 0 and 1."""

    options: Options

    def assign(self, rollouts: Rollouts) -> Credit:
        o, actions = self.options, rollouts.actions
        correct = rollouts.counted & (rollouts.rewards >= o.success)
        n_correct = number_in_group(correct, rollouts.group_ids)  # (B,)
        hinted = (
            rollouts.counted & (n_correct != 1) & (n_correct < number_in_group(rollouts.counted, rollouts.group_ids))
        )
        divergence = self.signal(rollouts, "forward_kl").clamp(min=0)  # (B, L); below 0 is rounding
        pooled = hinted if o.scope == "rollout" else hinted & rollouts.credited  # shared with others: the tokens of the loss
        live = actions.valid & pooled[:, None]
        level = pooled_quantile(divergence, live, self._pools(rollouts), o.percentile)
        f = divergence / (divergence + level.clamp(min=o.floor)[:, None])
        weights = torch.where(hinted[:, None], f, 1.0) * actions.valid

        hopeless = (rollouts.counted & (n_correct == 0)).nonzero().squeeze(1)  # (M,)
        n = self.signal(rollouts, "sibling_length")[:, 0].minimum(actions.counts).clamp(min=1)[:, None]  # (B, 1)
        shared = torch.arange(f.shape[1], device=f.device) < n
        means = (f * shared).sum(1, dtype=wide(f)) / n[:, 0]  # (B,) s_i; the filling has f = 0
        advantage = self.outcome(rollouts).clone()
        z = relative_to_group(means[hopeless], rollouts.group_ids[hopeless])
        advantage[hopeless] = (o.bonus * z).to(advantage.dtype)
        return to_credit(rollouts, advantage[:, None] * weights, weights, every_token(actions))

    def _pools(self, rollouts: Rollouts) -> Tensor:
        """Rollouts with the same number share a percentile → (B,)."""
        if self.options.scope == "group":
            return rollouts.group_ids
        each = torch.arange(len(rollouts.group_ids), device=rollouts.group_ids.device)
        return each if self.options.scope == "rollout" else torch.zeros_like(each)
