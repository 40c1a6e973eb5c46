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
    each. A point that is named several times is read once, and points that are equally far are sampled together, so that few
    rollouts of a batch wait for its longest."""
    context = context_of(model.config)
    for point in points:
        if (length := len(point.played.prompt_ids) + point.at) >= context:
            raise GearError(
                f"{point.row.get('id', 'a problem')}: rewound to token {point.at}, its prompt has {length} tokens, and the "
                f"model's context is {context}. Go on with the model that sampled it, or with one of a longer context."
            )
    rewards, tokens = [0.0] * len(points), 0
    order = sorted(range(len(points)), key=lambda i: points[i].at)
    for start in range(0, len(points), AT_ONCE):
        part = order[start : start + AT_ONCE]
        begun = [rewind(task, p.row, p.played, p.at, tokenizer, replies) for p in (points[i] for i in part)]
        own = [rngs[i] for i in part]
        sampler = OwnTurns(model, end_tokens(model, tokenizer), temperature, top_p, rngs=own, share_openings=True)
        play_on(sampler, context, tokenizer, task, begun, replies)
        verdicts = judge_all(tokenizer, task, [points[i].row for i in part], begun)
        for i, verdict, played in zip(part, verdicts, begun, strict=True):
            rewards[i] = verdict.reward
            tokens += sum(played.action_mask[points[i].at :])
    return rewards, tokens
