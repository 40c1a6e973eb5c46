"""What points of rollouts come to: the policy goes on from each, once, and the task judges the whole."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from gear_rl.chat.templates import Replies, end_tokens
from gear_rl.errors import GearError
from gear_rl.models import context_of
from gear_rl.sampling.own_turns import OwnTurns
from gear_rl.sampling.play import Played, judge_all, play_on
from gear_rl.sampling.rewind import rewind
from gear_rl.tasks.base import Row, Task

AT_ONCE = 256
"""Continuations sampled in one batch."""


class Point(NamedTuple):
    row: Row
    played: Played
    at: int
    """Before this token of the completion."""


def continuations(
    task: Task,
    model: Any,
    tokenizer: Any,
    points: Sequence[Point],
    rngs: Sequence[random.Random],
    replies: Replies,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> tuple[list[float], int]:
    """The reward of one continuation of each point, and how many tokens the policy sampled for all. `rngs`: random numbers of
    each."""
    context = context_of(model.config)
    for point in points:
        if (length := len(point.played.prompt_ids) + point.at) >= context:
            raise GearError(
                f"{point.row.get('id', 'a problem')}: rewound to token {point.at}, its prompt has {length} tokens, and the "
                f"model's context is {context}. Go on with the model that sampled it, or with one of a longer context."
            )
    rewards, tokens = list[float](), 0
    for start in range(0, len(points), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        begun = [rewind(task, p.row, p.played, p.at, tokenizer, replies) for p in points[part]]
        sampler = OwnTurns(model, end_tokens(model, tokenizer), temperature, top_p, rngs=rngs[part])
        play_on(sampler, context, tokenizer, task, begun, replies)
        rewards += [v.reward for v in judge_all(tokenizer, task, [p.row for p in points[part]], begun)]
        tokens += sum(sum(b.action_mask[p.at :]) for b, p in zip(begun, points[part], strict=True))
    return rewards, tokens
