"""What goes wrong when a policy learns from a teacher that has seen the answer, and when to say so.

    leak        the policy copies the hint: share of action tokens inside n-grams it shares with its hint, in rollouts short of
                the best reward so far. Where the hint is the answer, one that is right has to say it
    entropy     collapses when the policy copies one sure path
    drift       the policy leaves its start and gains nothing: KL to the starting policy, while the reward has not risen
    length      runs away, or to nothing
    focus       concentration of the weights: (Σ w)² / (n Σ w²); 1 is uniform, 1/n is all credit on one token
    tokens      focus × n: how many tokens of a rollout share its credit, for rollouts of ten tokens or more
    trust       the most that hints can be trusted by the evidence so far (`assignment.trust`): 0 is a wrong hint
    stuck       steps in a row in which no group had rewards to compare, and the mean reward was no better than at the start

Each is logged every step; leak only where enough rollouts are short of the best reward, trust where it is measured. An alarm
compares with the run's own first steps, since no absolute value fits every task; drift is measured from the start anyway, and
can ring during them. The thresholds are ours and meant to be rare.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from statistics import fmean, median

from torch import Tensor

log = logging.getLogger("gear_rl")

NGRAM = 8
FIRST_STEPS = 10
RECENT_STEPS = 10
"""Steps whose mean reward is compared with the first ones'."""
DRIFT_STEPS = 5
"""Steps whose median is the drift: the estimate of the KL has outliers, and one step may not ring."""
HELD_STEPS = 3
"""Steps in a row of which the least drift counts: a reward that dips once is no alarm."""
MOST_DRIFT = 0.15
"""In nats per token. Chosen on 244 runs of the embedded task with a KL term, then held against others; on 476 of them, in all
methods, rates from 3e-4 to 2.4e-3, right and wrong hints: of 36 that lost more than half of their success 29 rang, 21 before
that. Of those that gained at the default rate or below, 2 of 225 with right hints rang, and 7 of 116 with others. Without
`HELD_STEPS` it is 24 in time, and 5 and 8 false. Falling rewards, tried on the first 244, rang in time in at most 1 of 21."""
LEAST_SHARE = 0.25
"""Of the batch: fewer rollouts short of the best reward say nothing about leak. Late in a run they are a few near misses.
Not tuned."""
LEAST_TRUST = 0.03
"""The evidence must exclude more than this (`TrustMemory.at_most`), so that little evidence never rings. In three worlds of
the embedded task, none of 30 runs with right hints of two forms rang (least 0.067), one of 24 where 30 % of a hint is noise,
and 24 of 24 with another problem's hints did, after 16 to 108 steps. How large trust can be depends on the task:
where turns decide little of the outcome, right hints may ring too."""
STUCK = 20
LEAST_TOKENS = 10
"""In shorter rollouts it is no wonder that few tokens share the credit."""
RESIDUE = 1e-5
"""Rewards of a group that differ by less differ by rounding."""
ALARMS = {
    "leak": ("the policy copies its hint", lambda now, start: now > start + 0.2),
    "entropy": ("entropy has collapsed", lambda now, start: now < 0.1 * start),
    "drift": (
        "the policy moves far from its start and gains no reward: is the learning rate too high?",
        lambda now, start: now > MOST_DRIFT,
    ),
    "length": ("completions run away or vanish", lambda now, start: now > 3 * start or now < start / 3),
    "focus": ("nearly all credit sits on very few tokens", lambda now, start: now < 0.02),
    "tokens": ("nearly all credit sits on one token of a rollout", lambda now, start: now < 2),
    "trust": (
        "following the hints does not go with winning: are they right, and more than the final answer?",
        lambda now, start: now < LEAST_TRUST,
    ),
    "stuck": ("every group's rollouts get the same reward: nothing to learn from", lambda now, start: now >= STUCK),
}
AT_ONCE = ("drift",)
"""These may ring during the first steps."""


def ringing(values: dict[str, float], start: dict[str, float], seen: int) -> list[str]:
    """The guards in alarm. values, start: by name, now and over the first steps; seen: steps before this one."""
    names = ALARMS if seen >= FIRST_STEPS else AT_ONCE
    return [name for name in names if name in values and ALARMS[name][1](values[name], start.get(name, 0.0))]


def copied_tokens(
    completions: list[list[int]], hints: list[list[int]], action_mask: Tensor, n: int = NGRAM
) -> list[tuple[int, int]]:
    """Of each rollout: action tokens that lie inside an n-gram which its hint has too, and all of them. Hints shorter than n
    are compared whole."""
    found = []
    for completion, hint, mask in zip(completions, hints, action_mask.tolist(), strict=True):
        width = min(n, len(hint))
        spoken = [token for token, m in zip(completion, mask, strict=False) if m]
        grams = {tuple(hint[i : i + width]) for i in range(len(hint) - width + 1)}
        inside = [False] * len(spoken)
        for i in range(len(spoken) - width + 1 if width else 0):
            if tuple(spoken[i : i + width]) in grams:
                inside[i : i + width] = [True] * width
        found.append((sum(inside), len(spoken)))
    return found


def share_of(counts: list[tuple[int, int]]) -> float:
    """Of what `copied_tokens` counts, over all of these rollouts."""
    return sum(copied for copied, _ in counts) / max(1, sum(spoken for _, spoken in counts))


def focus(weights: Tensor, action_mask: Tensor) -> float:
    """Mean over rollouts of (Σ w)² / (n Σ w²). weights, action_mask (B, T)."""
    n = action_mask.sum(1)
    share = weights.sum(1).square() / (n * weights.square().sum(1)).clamp(min=1e-12)
    return float(share[n > 0].mean()) if bool((n > 0).any()) else 1.0


def has_contrast(rewards: Tensor, group_ids: Tensor) -> bool:
    """Whether the rewards of any group differ by more than rounding. Both (B,); NaN is not scored."""
    scored = ~rewards.isnan()
    _, group = group_ids[scored].unique(return_inverse=True)
    if not len(group):
        return False
    values = rewards[scored].double()
    empty = values.new_zeros(int(group.max()) + 1)
    highest, lowest = (empty.scatter_reduce(0, group, values, how, include_self=False) for how in ("amax", "amin"))
    return bool((highest - lowest > RESIDUE * highest.abs().clamp(min=1)).any())


@dataclass
class Guards:
    """Remembers how the run began, and warns once per kind."""

    start: dict[str, float] = field(default_factory=dict)
    """Means over the first steps."""
    counts: dict[str, int] = field(default_factory=dict)
    """Of how many values each is the mean."""
    seen: int = 0
    raised: list[str] = field(default_factory=list)
    stuck: int = 0
    rewards: list[float] = field(default_factory=list)
    """The mean rewards of the last steps."""
    kls: list[float] = field(default_factory=list)
    """KL to the starting policy at the last steps."""
    drifts: list[float] = field(default_factory=list)
    """That median at the last steps, 0 where the reward had risen."""
    entropy: float | None = None
    """Of the last step's loss."""
    best: float | None = None
    """The highest reward of any rollout so far."""

    def short_of_best(self, rewards: Tensor) -> list[bool]:
        """rewards (B,) → whether each is below the highest of the run so far, these included; NaN is not scored."""
        seen = rewards[~rewards.isnan()].tolist() + ([] if self.best is None else [self.best])
        self.best = max(seen, default=None)
        if self.best is None:
            return [False] * len(rewards)
        bound = self.best - RESIDUE * max(1.0, abs(self.best))
        return [reward < bound for reward in rewards.tolist()]

    def after_loss(self, entropy: float | None, kl: float | None) -> None:
        """What the engine's loss knows of the policy, in nats per token; None: not computed. The next step's guards use it."""
        self.entropy = entropy if entropy is not None and math.isfinite(entropy) else None
        if kl is not None and math.isfinite(kl):
            self.kls = [*self.kls, float(kl)][-DRIFT_STEPS:]

    def after_rewards(self, contrast: bool, reward: float) -> dict[str, float]:
        """`stuck`, and `drift` where the KL is known. contrast: whether a group had rewards to compare. reward: their mean."""
        self.rewards = [*self.rewards, reward][-RECENT_STEPS:]
        if self.seen < FIRST_STEPS:
            self._begin("reward", reward)
        start = self.start.get("reward", 0.0) + RESIDUE
        self.stuck = 0 if contrast or reward > start else self.stuck + 1
        found = {"stuck": float(self.stuck)}
        if len(self.kls) == DRIFT_STEPS:
            self.drifts = [*self.drifts, 0.0 if fmean(self.rewards) > start else median(self.kls)][-HELD_STEPS:]
            found["drift"] = min(self.drifts) if len(self.drifts) == HELD_STEPS else 0.0
        return found

    def watch(self, values: dict[str, float]) -> dict[str, float]:
        """Values by name → the same, plus `alarm`: how many kinds are in alarm now."""
        rang = ringing(values, self.start, self.seen)
        if self.seen < FIRST_STEPS:
            for name, value in values.items():
                self._begin(name, value)
            self.seen += 1
        for name in rang:
            if name not in self.raised:
                self.raised.append(name)
                log.warning(
                    "guard: %s (%s is %.3g, was %.3g)", ALARMS[name][0], name, values[name], self.start.get(name, 0.0)
                )
        return {**values, "alarm": float(len(rang))}

    def _begin(self, name: str, value: float) -> None:
        n = self.counts.get(name, 0)
        self.start[name], self.counts[name] = (self.start.get(name, 0.0) * n + value) / (n + 1), n + 1
