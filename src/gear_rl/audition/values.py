"""The value of a point of a rollout, measured: go on from there again and again, and see what it comes to.

    V(point)       mean reward of the continuations that the policy samples from it
    advantage      of turn k: V(after its last token) − V(before its first). The whole rollout's advantages add up to its
                   reward less V(start): nothing is lost, and nothing counted twice.

A turn is measured until its verdict is clear, that is until the interval of its advantage leaves 0 outside or is narrow, or
until the budget is spent. The value of a finished rollout is its reward, and the value of a prompt takes the rewards of the
whole group as well. Monte Carlo values of prefixes are VinePPO's (arXiv 2410.01679); the adaptive budget is ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gear_rl.audition.groups import Groups
from gear_rl.chat.templates import Replies
from gear_rl.sampling.continuations import Point, continuations

FIRST = 8
"""Continuations of every point before anything is decided."""
NARROW = 0.1
"""An interval of the advantage that reaches no further than this from its middle is clear enough, in shares of the reward's
range."""


@dataclass
class Value:
    """Rewards seen from one point. Two imagined ones, the lowest and the highest there are, keep the spread of a few equal
    rewards from being 0 (Agresti and Caffo 2000, for any bounded reward)."""

    low: float
    high: float
    rewards: list[float] = field(default_factory=list)
    exact: bool = False
    """The rollout is over here: its reward is its value."""

    @property
    def mean(self) -> float:
        return sum(self.rewards) / max(1, len(self.rewards))

    @property
    def variance(self) -> float:
        """Of `mean`."""
        if self.exact:
            return 0.0
        values = [*self.rewards, self.low, self.high]
        middle = sum(values) / len(values)
        return sum((v - middle) ** 2 for v in values) / len(values) ** 2


@dataclass(frozen=True)
class TurnValue:
    """What one turn (or token, `Groups.points`) did to the outcome."""

    rollout: int
    turn: int
    before: Value
    after: Value

    @property
    def advantage(self) -> float:
        return self.after.mean - self.before.mean

    @property
    def half_width(self) -> float:
        """Of the 95 % interval."""
        return 1.96 * math.sqrt(self.before.variance + self.after.variance)

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, within what the rewards allow."""
        most = self.before.high - self.before.low
        return max(-most, self.advantage - self.half_width), min(most, self.advantage + self.half_width)

    @property
    def clear(self) -> bool:
        return abs(self.advantage) > self.half_width or self.half_width < NARROW * (self.before.high - self.before.low)


class Interventions:
    """Measures turns of `groups` (or tokens: whatever `Groups.spans` has), with at most `most` continuations of each point."""

    def __init__(self, groups: Groups, most: int = 64) -> None:
        self.groups, self.most, self.continuations = groups, most, 0
        self.tokens = 0
        """That the policy sampled for it."""
        rewards = groups.rewards
        self._bounds = min(rewards), max(rewards)
        self._values: dict[tuple[int, int], Value] = {}
        self._replies = Replies(groups.tokenizer)

    def turns(self, rollouts: Sequence[int]) -> list[TurnValue]:
        """All turns of these rollouts."""
        return self.measure([(i, t) for i in rollouts for t in range(len(self.groups.spans(i)))])

    def measure(self, turns: Sequence[tuple[int, int]]) -> list[TurnValue]:
        """These turns, each given as rollout and number."""
        asked = [TurnValue(i, t, self._value(i, t), self._value(i, t + 1)) for i, t in turns]
        points = {p for i, t in turns for p in ((i, t), (i, t + 1))}
        self._sample({p for p in points if len(self._value(*p).rewards) < FIRST}, FIRST)
        count = FIRST
        while count < self.most:
            unclear = [turn for turn in asked if not turn.clear]
            wanted = {(turn.rollout, t) for turn in unclear for t in (turn.turn, turn.turn + 1)}
            wanted = {p for p in wanted if not self._value(*p).exact and len(self._value(*p).rewards) <= count}
            if not wanted:
                break
            self._sample(wanted, min(count, self.most - count))
            count *= 2
        return asked

    def _value(self, rollout: int, turn: int) -> Value:
        """The point before turn number `turn`, or the rollout's end."""
        groups, low_high = self.groups, self._bounds
        last = len(groups.spans(rollout))
        # All rollouts of a group begin at the same point.
        key = (-1 - int(groups.group_of[rollout]), 0) if turn == 0 else (rollout, turn)
        if key not in self._values:
            known: list[float] = []
            if turn == last:
                known = [groups.rewards[rollout]]
            elif turn == 0:
                known = [groups.rewards[i] for i in groups.siblings(rollout)]
            self._values[key] = Value(*low_high, known, exact=turn == last)
        return self._values[key]

    def average(self, turn: TurnValue) -> float:
        """The mean advantage of all turns of the rollout that `turn` is from: (reward − V(start)) / turns. No turn of it needs
        to be measured for that."""
        start, end = self._value(turn.rollout, 0), self.groups.rewards[turn.rollout]
        return (end - start.mean) / len(self.groups.spans(turn.rollout))

    def _sample(self, points: set[tuple[int, int]], count: int) -> None:
        """`count` more continuations of each point."""
        groups = self.groups
        ordered = sorted(p for p in points if not self._value(*p).exact)
        work = [point for point in ordered for _ in range(count)]
        starts = [Point(groups.rows[i], groups.played[i], self._at(i, t)) for i, t in work]
        rngs = [random.Random(f"{groups.seed}-{self.continuations + k}") for k in range(len(work))]
        rewards, tokens = continuations(
            groups.task, groups.model, groups.tokenizer, starts, rngs, self._replies, groups.temperature
        )
        for point, reward in zip(work, rewards, strict=True):
            self._value(*point).rewards.append(reward)
        self.continuations += len(work)
        self.tokens += tokens

    def _at(self, rollout: int, turn: int) -> int:
        return self.groups.spans(rollout)[turn].start
