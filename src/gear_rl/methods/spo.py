"""SPO: the advantage of a segment between uncertain tokens, measured by sampling on from its start and its end."""

from __future__ import annotations

import torch
from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.segments import Segments, at_cut_points
from gear_rl.methods.base import Cost, Method, option, to_credit

PREFIX_VALUE = "prefix_value"


class SPO(Method):
    """Segment Policy Optimization, its chain form. A cut point is a token that the policy gave a probability below `below`.

        segment k   begins at cut points number 1, m + 1, 2m + 1, … of the rollout; m is `interval`
        V_k         mean reward of fresh continuations from before the segment's first token (signal "prefix_value")
        A_k         V_{k+1} − V_k; the last segment's is the reward − V_K
        A_t         A_k at the cut points of segment k, 0 at all other tokens

    Tokens before the first cut point have no cut point among them, and so 0. A segment may run over the end of a turn. It
    compares nothing within a group, and advantages that an engine gives are not read.
    """

    name = "spo"
    summary = "Measured advantages of segments that end inside turns, given to the tokens that could have been others."
    paper = "SPO, arXiv 2505.23564 (SPO-chain)"
    standing = "official code: cut points, values, mask; ours: segments over several turns, no whitening by default"
    needs = ("student_logprob", PREFIX_VALUE)
    cost = Cost(
        1, 0, "one forward of the student; and the values cost 9 further rollouts from the start of every segment "
        "(`train.value_continuations`)",
    )  # fmt: skip
    mass = "another quantity: measured advantages at cut points, in place of A_i"

    class Options(Method.Options):
        below: float = option(0.9, above=0.0, at_most=1.0)
        """Probability under which a token is a cut point. Default: SPO's."""
        interval: int = option(5, at_least=1)
        """m: cut points in a segment. More of them need fewer values. Default: SPO's, for its short answers."""
        whiten: bool = option(False)
        """Bring the advantages of the batch's cut points to mean 0 and standard deviation 1, as SPO's code does. Default:
        ours, since a rollout's credit would depend on what it was scored with."""

    options: Options

    def segments(self, rollouts: Rollouts) -> Segments:
        """Where values are needed: at the first token of each segment whose first token is a cut point."""
        o, logprob = self.options, self.signal(rollouts, "student_logprob")
        return at_cut_points(logprob.exp() < o.below, rollouts.actions, o.interval)

    def assign(self, rollouts: Rollouts) -> Credit:
        actions, segments = rollouts.actions, self.segments(rollouts)
        values = self.signal(rollouts, PREFIX_VALUE)  # (B, L)
        cut = (self.signal(rollouts, "student_logprob").exp() < self.options.below) & actions.valid
        reward = rollouts.rewards.to(values.dtype)[:, None]
        # Column k: the value before segment k, and behind the last segment the reward.
        table = reward.repeat(1, values.shape[1] + 2)
        places = torch.where(segments.firsts, segments.index, 0)
        table = table.scatter(1, places, values.where(segments.firsts, 0.0))  # column 0 is read by nobody
        advantages = table.gather(1, segments.index + 1) - table.gather(1, segments.index)
        advantages = advantages.masked_fill(~cut, 0.0)
        if self.options.whiten:
            advantages = _whitened(advantages, cut & rollouts.credited[:, None])
        return to_credit(rollouts, advantages, cut.to(values.dtype), segments)


def _whitened(advantages: Tensor, included: Tensor) -> Tensor:
    """(x − mean) / √(variance + 1e-8) over the tokens in `included`, both (B, L); 0 elsewhere. As they are where there are
    fewer than two."""
    some = advantages[included].to(wide(advantages))
    if some.numel() < 2:
        return advantages
    whitened = (advantages - some.mean()) / (some.var() + 1e-8).sqrt()
    return whitened.to(advantages.dtype).masked_fill(~included, 0.0)
