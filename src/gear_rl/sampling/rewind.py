"""Back to an earlier point of a rollout: the same tokens up to there, and a world that has seen the same turns.

A world cannot be copied, but it can be played again: a fresh episode is given the policy's recorded turns, one by one. What
it replies must be what it replied then, token by token. A world that answers differently (one that draws random numbers, or a
user behind an endpoint) cannot be rewound, and that is an error which says where.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gear_rl.chat.templates import Replies
from gear_rl.errors import GearError
from gear_rl.sampling.play import Played
from gear_rl.tasks.base import Row, Task, reply_of


class NotReplayable(GearError):
    """The world answered differently when the same turns were played again."""


class Span(NamedTuple):
    """Tokens start … end − 1 of a completion."""

    start: int
    end: int


def turns_of(action_mask: Sequence[int]) -> list[Span]:
    """The policy's turns. Between two of them is what the environment said."""
    return [span for by_policy, span in _runs(action_mask) if by_policy]


def _runs(action_mask: Sequence[int]) -> Iterator[tuple[bool, Span]]:
    start = 0
    for by_policy, run in groupby(action_mask, key=bool):
        end = start + len(list(run))
        yield by_policy, Span(start, end)
        start = end


def rewind(task: Task, row: Row, played: Played, at: int, tokenizer: Any, replies: Replies) -> Played:
    """A rollout with the first `at` tokens of `played`'s completion, ready to go on (`play_on`). `at` is the start of one of
    the policy's turns, or lies inside one."""
    turns = turns_of(played.action_mask)
    index = next((i for i, turn in enumerate(turns) if turn.start <= at < turn.end), None)
    if index is None:
        raise GearError(f"a rollout can be rewound to a token of the policy's; token {at} is not one.")
    start = turns[index].start
    again = _answered(task, row, played, turns[:index], start, tokenizer, replies)
    again.begun = played.completion_ids[start:at]
    again.completion_ids, again.action_mask = played.completion_ids[:at], played.action_mask[:at]
    return again


def replay(task: Task, row: Row, played: Played, tokenizer: Any, replies: Replies, ends: Container[int]) -> Played:
    """The whole of `played` in a fresh world that has seen the same turns, ready to be judged. `ends`: the end tokens."""
    ids, turns = played.completion_ids, turns_of(played.action_mask)
    replied = bool(turns) and turns[-1].end < len(ids)  # by another engine: the context was full before the policy could answer
    answered, until = (turns, len(ids)) if replied or not turns else (turns[:-1], turns[-1].start)
    again = _answered(task, row, played, answered, until, tokenizer, replies)
    again.completion_ids, again.action_mask, again.cut_off = list(ids), list(played.action_mask), replied
    if turns and not replied:
        ended = ids[-1] in ends
        again.turns.append(tokenizer.decode(ids[turns[-1].start : len(ids) - ended]))
        again.cut_off = not ended
        if ended:  # the world hears the last turn, too; what it answers is not in the rollout
            assert again.episode is not None
            reply = reply_of(task, again.episode, again.turns[-1])
            again.cut_off = reply is not None and len(turns) < task.max_turns  # the answer did not fit the context
    return again


def _answered(
    task: Task, row: Row, played: Played, turns: Sequence[Span], until: int, tokenizer: Any, replies: Replies
) -> Played:
    """A fresh world that has been given `turns`, the first of `played`, and has answered each as it did then. `until`: the
    token at which the last answer ends."""
    again = Played(played.prompt_ids, episode=task.episode(row))
    assert again.episode is not None
    ends = [*(turn.start for turn in turns[1:]), until]
    for i, (turn, end) in enumerate(zip(turns, ends, strict=False)):
        said = tokenizer.decode(played.completion_ids[turn.start : turn.end - 1])  # the last is the end token
        reply = reply_of(task, again.episode, said)
        recorded = played.completion_ids[turn.end : end]
        if reply is None or replies.ids(reply) != recorded:
            now = "ended the episode" if reply is None else f"replied {str(reply)[:80]!r}"
            then = tokenizer.decode(recorded)[:80]
            raise NotReplayable(
                f"{row.get('id', 'a problem')}: after turn {i + 1} the world {now}; when it was played it replied {then!r}. "
                f"Task {task.name} cannot be rewound, because it does not answer the same turns the same way."
            )
        again.turns.append(said)
    return again
