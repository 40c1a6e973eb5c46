"""Values without a critic: from points of a rollout the policy goes on some more times.

signal "values"          at the start of every turn (vine_ppo, turn_ppo)
signal "prefix_value"    at the start of every segment that the method cuts, inside turns too (spo)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.templates import Replies
from gear_rl.methods import Method
from gear_rl.methods.spo import PREFIX_VALUE, SPO
from gear_rl.sampling.continuations import Point, continuations
from gear_rl.sampling.play import Played
from gear_rl.sampling.rewind import turns_of
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.from_verdicts import VerdictKnowledge, signal_of
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row, Task
from gear_rl.training.rollouts import TaskSampler

MEASURED = ("values", PREFIX_VALUE)
"""Signals that are measured here."""
CUT_BY = "student_logprob"


class MeasuredValues(VerdictKnowledge):
    """What verdicts know, and the value of points of each rollout: the mean reward of `count` continuations by the policy
    that has sampled the batch. Random numbers depend on seed, step and place alone, so that a resumed run measures the same."""

    def __init__(self, task: Task, row: Row, method: Method, tokenizer: Any, sampler: TaskSampler, count: int) -> None:
        super().__init__(task, row, method, tokenizer)
        self._from_verdicts = self.signals
        self._cuts = method if isinstance(method, SPO) else None
        self.signals = self.signals | ({CUT_BY, PREFIX_VALUE} if self._cuts else {"values"})
        self._sampler, self._count, self._replies = sampler, count, Replies(tokenizer)

    def token_signals(self, sampled: Sampled) -> dict[str, list[list[float]]]:
        known = {name: signal_of(name, sampled) for name in sorted(self._from_verdicts)}
        if self._cuts is None:
            starts = [[turn.start for turn in turns_of(mask)] for mask in _masks(sampled)]
            return known | {"values": self._values(sampled, starts)}
        logprobs, starts = self._segments(sampled, self._cuts)
        return known | {CUT_BY: logprobs, PREFIX_VALUE: self._values(sampled, starts)}

    def _segments(self, sampled: Sampled, method: SPO) -> tuple[list[list[float]], list[list[int]]]:
        """For each rollout the log-probabilities of its tokens, and where its segments begin. The method reads the same
        numbers, and so finds the same segments."""
        model, mask = self._sampler.model, sampled.action_mask
        prompts, ids = sampled.prompt_ids, sampled.token_ids
        scorer, teacher = Scorer(model, self._sampler.temperature), Teacher(model, "live")
        logprob = scorer.score(prompts, prompts, ids, mask, teacher, (CUT_BY,), sampled.known)[CUT_BY]
        rollouts = Rollouts(mask, sampled.rewards, sampled.group_ids, signals={CUT_BY: logprob})
        firsts = rollouts.actions.unpack(method.segments(rollouts).firsts)  # (B, T)
        firsts &= logprob.exp() < method.options.below  # what precedes the first cut point needs no value
        lengths = [len(completion) for completion in sampled.completion_ids]
        rows = [row[:n].tolist() for row, n in zip(logprob, lengths, strict=True)]
        return rows, [row.nonzero().flatten().tolist() for row in firsts]

    def _values(self, sampled: Sampled, starts: Sequence[Sequence[int]]) -> list[list[float]]:
        """For each rollout a number per token of its completion: the value before the last of its `starts`."""
        sampler, masks = self._sampler, _masks(sampled)
        points, places = list[Point](), list[str]()
        for i, mask in enumerate(masks):
            played = Played(sampled.prompt_ids[i], list(sampled.completion_ids[i]), mask)
            for start in starts[i]:
                points += [Point(sampled.rows[i], played, start)] * self._count
                places += [f"{sampler.seed}-{sampler.step}-value-{i}-{start}-{k}" for k in range(self._count)]
        rewards, _ = continuations(
            self._task, sampler.model, self._tokenizer, points, [random.Random(place) for place in places], self._replies,
            sampler.temperature, sampler.top_p,
        )  # fmt: skip
        means = iter(mean(rewards[k : k + self._count]) for k in range(0, len(rewards), self._count))
        return [_held(mask, own, [next(means) for _ in own]) for mask, own in zip(masks, starts, strict=True)]


def _masks(sampled: Sampled) -> list[list[int]]:
    both = zip(sampled.action_mask, sampled.completion_ids, strict=True)
    return [row[: len(ids)].int().tolist() for row, ids in both]


def _held(mask: Sequence[int], starts: Sequence[int], values: Sequence[float]) -> list[float]:
    """Each of `values` from its start to the next, on the policy's tokens; 0 elsewhere."""
    row = [0.0] * len(mask)
    for (start, end), value in zip(pairwise([*starts, len(mask)]), values, strict=True):
        for t in range(start, end):
            row[t] = value * bool(mask[t])
    return row
