"""The signal "values" without a critic: from the start of every turn the policy goes on some more times."""

from __future__ import annotations

import random
from statistics import mean
from typing import Any

from gear_rl.chat.templates import Replies
from gear_rl.methods import Method
from gear_rl.sampling.continuations import Point, continuations
from gear_rl.sampling.play import Played
from gear_rl.sampling.rewind import turns_of
from gear_rl.signals.from_verdicts import VerdictKnowledge, at_turns, signal_of
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row, Task
from gear_rl.training.rollouts import TaskSampler

VALUES = "values"


class MeasuredValues(VerdictKnowledge):
    """What verdicts know, and the value before each turn: the mean reward of `count` continuations by the policy that has
    sampled the batch. Random numbers depend on seed, step and place alone, so that a resumed run measures the same."""

    def __init__(self, task: Task, row: Row, method: Method, tokenizer: Any, sampler: TaskSampler, count: int) -> None:
        super().__init__(task, row, method, tokenizer)
        self._from_verdicts = self.signals
        self.signals = self.signals | {VALUES}
        self._sampler, self._count, self._replies = sampler, count, Replies(tokenizer)

    def token_signals(self, sampled: Sampled) -> dict[str, list[list[float]]]:
        known = {name: signal_of(name, sampled) for name in sorted(self._from_verdicts)}
        return known | {VALUES: self._values(sampled)}

    def _values(self, sampled: Sampled) -> list[list[float]]:
        """For each rollout a number per token of its completion: on all tokens of a turn the value before it."""
        sampler = self._sampler
        masks = [
            row[: len(ids)].int().tolist() for row, ids in zip(sampled.action_mask, sampled.completion_ids, strict=True)
        ]
        points, places = list[Point](), list[str]()
        for i, mask in enumerate(masks):
            played = Played(sampled.prompt_ids[i], list(sampled.completion_ids[i]), mask)
            for turn in turns_of(mask):
                points += [Point(sampled.rows[i], played, turn.start)] * self._count
                places += [f"{sampler.seed}-{sampler.step}-value-{i}-{turn.start}-{k}" for k in range(self._count)]
        rewards, _ = continuations(
            self._task, sampler.model, self._tokenizer, points, [random.Random(place) for place in places], self._replies,
            sampler.temperature,
        )  # fmt: skip
        means = iter(mean(rewards[k : k + self._count]) for k in range(0, len(rewards), self._count))
        return [at_turns(mask, [next(means) for _ in turns_of(mask)], last_only=False) for mask in masks]
