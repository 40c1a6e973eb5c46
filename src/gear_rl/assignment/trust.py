"""How far a hint can be trusted, measured without labels: does following the hinted self go with winning?

    (T1) follow    g_{i,k} = clip(log q(y) − log p(y), ±2) at the token of turn k where D = KL(p ‖ q) is largest
    (T2) evidence  e_{G,k} = Pearson correlation of g_{i,k} and r_i over the rollouts i of group G that have a turn k
    (T3) trust     T = mean of e over all groups and turns where both vary and there was a choice, over the batches so far,
                   that of a group of n rollouts with the weight (n − 1) / 7

There was a choice where the mean of −log p(y) at those tokens, an estimate of the student's entropy, is above 0.02 nats. A
token that was certain says nothing about following, however well it goes with the outcome: with the answer alone as the hint,
the turn that states the answer has e = 1.

All three are ours. Right hints have T above 0, hints that have nothing to do with the problem 0. An answer key that is wrong
about some facts lies between, with evidence below 0 at the turns it is wrong about. How large T can be depends on the task: a
turn that decides little of the outcome correlates little with it, however right its hint.

Packed tensors are (B, L), K is the largest number of turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gear_rl.assignment.baselines import wide
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.assignment.turns import Turns

TRUST_READS = ("student_logprob", "teacher_logprob")
"""Signals."""
TRUST_EVERY = 4
"""Steps between measurements where they take a pass of their own: for methods that read the teacher in the loss only (OPSD),
or not the student. A pass costs a fifth to two fifths of a GRPO step. Not tuned. In one run of OPSD
with wrong hints success was gone before any guard may ring, and the one for drift rang first (docs/experiments.md)."""
CLIP = 2.0
"""Of (T1), in nats."""
LEAST_ENTROPY = 0.02
"""In nats, of (T3). Measured at turns that state the outcome: below 0.001; at decisions 0.6 to 0.9."""
USUAL_GROUP = 8
_LEAST_SPREAD = 1e-4  # less is rounding, which must not be correlated


@dataclass(frozen=True)
class Trust:
    """What the outcomes of one batch say about its hints."""

    evidence: Tensor
    """(B, K) e of each turn's group; 0 where it is not defined."""
    tried: Tensor
    """(B, K) bool. There was a choice at this turn, and somebody in the group followed the hinted self: g > 0."""
    mean: float
    """Of e over the turns of all groups that have it, each counted by how much it says; 0 without any."""
    count: float
    """How many turns of groups have evidence, in turns of groups of eight: that of a group of n says (n − 1) / 7 as much, since
    the variance of a correlation by chance is 1 / (n − 1)."""


def takes_a_pass(method_needs: Iterable[str]) -> bool:
    """Whether `TRUST_READS` take a pass of their own. Not where a method reads student and teacher at every step."""
    needs = set(method_needs)
    return not ({"reverse_kl", "forward_kl"} & needs or set(TRUST_READS) <= needs)


def trust_of(rollouts: Rollouts) -> Trust | None:
    """(T1), (T2). None: the signals it takes are not there. Without D the largest |log q − log p| marks the token."""
    signals = rollouts.signals
    if not set(TRUST_READS) <= signals.keys():
        return None
    pack, actions = rollouts.actions.pack, rollouts.actions
    student = signals["student_logprob"].to(rollouts.dtype)
    gap = pack(signals["teacher_logprob"].to(rollouts.dtype) - student)
    height = pack(signals["reverse_kl"].to(rollouts.dtype)) if "reverse_kl" in signals else gap.abs()
    turns = Turns(actions)
    at_peaks = _peaks(height, turns, actions.valid)
    follow, surprise = (v.gather(1, at_peaks).masked_fill(~turns.taken, 0) for v in (gap.clamp(-CLIP, CLIP), -pack(student)))

    taken = turns.taken & rollouts.counted[:, None]  # (B, K)
    _, group = rollouts.group_ids.unique(return_inverse=True)
    places = group[:, None] * taken.shape[1] + torch.arange(taken.shape[1], device=group.device)
    cell, cells = places[taken], (int(group.max()) + 1) * taken.shape[1]  # (M,) one cell for each turn of a group

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(cells).index_add_(0, cell, values)

    x = follow[taken].to(wide(follow))  # (M,)
    y = rollouts.rewards[:, None].expand_as(follow)[taken].to(x.dtype)
    n = total(torch.ones_like(x)).clamp(min=1)
    x, y = x - (total(x) / n)[cell], y - (total(y) / n)[cell]
    spread_x, spread_y = ((total(v.square()) / n).sqrt() for v in (x, y))
    choice = total(surprise[taken].to(x.dtype)) / n > LEAST_ENTROPY  # (cells,)
    varies = (spread_x > _LEAST_SPREAD) & (spread_y > _LEAST_SPREAD) & choice
    found = torch.where(varies, total(x * y) / n / (spread_x * spread_y).clamp(min=_LEAST_SPREAD**2), 0.0)
    followed = choice & (total((follow[taken] > 0).to(x.dtype)) > 0)
    says = torch.where(varies, (n - 1) / (USUAL_GROUP - 1), 0.0)
    count = float(says.sum())
    return Trust(
        evidence=torch.zeros_like(follow).masked_scatter_(taken, found[cell].to(follow.dtype)),
        tried=torch.zeros_like(taken).masked_scatter_(taken, followed[cell]),
        mean=float((found * says).sum()) / count if count else 0.0,
        count=count,
    )


@dataclass
class TrustMemory:
    """(T3) as an exponential mean over batches, and how sure it is. It begins with a prior in favour of the hints, because
    where they are right waiting for proof costs many steps. All numbers are ours."""

    RATE: ClassVar[float] = 0.05
    """The share that is forgotten at each measured batch."""
    PRIOR: ClassVar[tuple[float, float]] = 0.1, 100.0
    """T before any evidence, and for how many turns it counts."""
    SPREAD: ClassVar[float] = 0.4
    """Standard deviation of e where following and outcome have nothing to do with each other, in groups of eight."""

    total: float = PRIOR[0] * PRIOR[1]
    weight: float = PRIOR[1]

    def add(self, trust: Trust) -> None:
        self.total = (1 - self.RATE) * self.total + trust.mean * trust.count
        self.weight = (1 - self.RATE) * self.weight + trust.count

    @property
    def mean(self) -> float:
        return self.total / max(self.weight, 1.0)

    @property
    def at_least(self) -> float:
        """T less one standard error, and never below 0."""
        return max(0.0, self.mean - self._error)

    @property
    def at_most(self) -> float:
        """T and one standard error."""
        return self.mean + self._error

    @property
    def _error(self) -> float:
        return self.SPREAD / max(self.weight, 1.0) ** 0.5


def _peaks(height: Tensor, turns: Turns, valid: Tensor) -> Tensor:
    """(B, L) heights → (B, K) the first token of each turn where they are largest; any token without such a turn."""
    shape, last = turns.taken.shape, height.shape[1]
    lowest = height.new_full(shape, -torch.inf)
    top = lowest.scatter_reduce_(1, turns.index, height.masked_fill(~valid, -torch.inf), "amax")
    is_top = valid & (height == top.gather(1, turns.index))
    places = torch.arange(last, device=height.device).expand_as(height).masked_fill(~is_top, last)
    first = torch.full_like(turns.taken, last, dtype=torch.long).scatter_reduce_(1, turns.index, places, "amin")
    return first.clamp(max=last - 1)
