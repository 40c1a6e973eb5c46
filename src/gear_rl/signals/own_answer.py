"""Where a rollout gives its final answer, and where a reference answer is read in its place.

A rollout's own answer is what the task marks as "answer_span"; else the first complete `\\boxed{…}` within one turn of the
policy. Boxes are found in decoded text and mapped back to tokens by how the text grows from token to token, so nothing is
tokenised again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gear_rl.scoring.answers import Answer, AnswerReading, turn_starts
from gear_rl.signals.reader import Reading

MARKER = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|\\[{}]|[{}]")  # an escaped brace is text


@dataclass(frozen=True)
class OwnAnswer:
    """Tokens of a completion, half-open ranges."""

    first: int
    stop: int
    """With its marker and closing brace, where it has them."""
    inner_first: int
    inner_stop: int
    """Without them."""


def own_answers(reading: Reading) -> list[OwnAnswer | None]:
    """For each rollout where it gives its answer; None: it gives none."""
    sampled, spans = reading.sampled, reading.from_task.get("answer_span")
    found: list[OwnAnswer | None] = []
    for i, ids in enumerate(sampled.completion_ids):
        if spans is not None and bool((spans[i] > 0).any()):
            marked = (spans[i] > 0).nonzero()[:, 0].tolist()
            found.append(OwnAnswer(marked[0], marked[-1] + 1, marked[0], marked[-1] + 1))
        else:
            found.append(boxed(reading.reader.tokenizer, ids, sampled.action_mask[i]))
    return found


def own_readings(reading: Reading, answers: list[OwnAnswer | None]) -> list[AnswerReading | None]:
    """The rollouts up to the end of their own answers."""
    s = reading.sampled
    return [
        None if a is None else AnswerReading(prompt, ids, a.first, Answer(ids[a.first : a.stop]))
        for prompt, ids, a in zip(s.prompt_ids, s.completion_ids, answers, strict=True)
    ]


def answer_box(answers: list[OwnAnswer | None], action_mask: Tensor) -> Tensor:
    """(B, T): 1 inside the answer, 2 on its marker, its closing brace and everything after, 0 elsewhere."""
    box = torch.zeros(action_mask.shape, device=action_mask.device)
    for i, answer in enumerate(answers):
        if answer is not None:
            box[i, answer.first :] = 2.0
            box[i, answer.inner_first : answer.inner_stop] = 1.0
    return box * action_mask


def answers_in_place(reading: Reading) -> list[AnswerReading | None]:
    """Where each rollout's final answer is read by OAR, None where it has none.

    With the task's "answer_span" the rollout's own answer, in its place, as in OAR's code. Else the reference answer, which
    is ours: every rollout has one, also those of tasks without a box. It stands in place of the last turn, and of a rollout
    of one turn at its end, before the token that ended it.
    """
    reader, sampled, spans = reading.reader, reading.sampled, reading.from_task.get("answer_span")
    end, readings = reader.tokenizer.eos_token_id, list[AnswerReading | None]()
    starts = turn_starts(sampled.action_mask)
    for i, (prompt, ids) in enumerate(zip(sampled.prompt_ids, sampled.completion_ids, strict=True)):
        if spans is not None:
            marked = (spans[i] > 0).nonzero()[:, 0].tolist()
            own = Answer(ids[marked[0] : marked[-1] + 1]) if marked else None
            readings.append(None if own is None else AnswerReading(prompt, ids, marked[0], own))
            continue
        begins = starts[i].nonzero()[:, 0].tolist()
        acted = sampled.action_mask[i].nonzero()[:, 0].tolist()
        if not acted:
            readings.append(None)
            continue
        cut = begins[-1] if len(begins) > 1 else acted[-1] + (ids[acted[-1]] != end)
        readings.append(AnswerReading(prompt, ids, cut, reader.answer(sampled.rows[i], i)))
    return readings


# ------------------------------------------------------------------------------------------------ boxes
def boxed(tokenizer: Any, ids: list[int], actions: Tensor) -> OwnAnswer | None:
    """The first complete box of a completion, within one turn. A token that holds a part of the answer and a part of its
    marker or brace counts as inside. An empty box is no answer."""
    acted = actions[: len(ids)].tolist()
    begin = 0
    while begin < len(ids):
        if not acted[begin]:
            begin += 1
            continue
        stop = begin
        while stop < len(ids) and acted[stop]:
            stop += 1
        turn = ids[begin:stop]
        if "boxed" in tokenizer.decode(turn):
            pieces = token_texts(tokenizer, turn)
            box = first_box("".join(pieces))
            if box is not None:
                return _to_tokens(pieces, box, begin)
        begin = stop
    return None


def first_box(text: str) -> tuple[int, int, int] | None:
    """(start of the marker, start and end of what is inside) of the complete box that begins first."""
    opened: list[tuple[int, int] | None] = []
    complete: list[tuple[int, int, int]] = []
    for found in _BRACES.finditer(text):
        if found.group() == MARKER:
            opened.append((found.start(), found.end()))
        elif found.group() == "{":
            opened.append(None)
        elif found.group() == "}" and opened:
            box = opened.pop()
            if box is not None and found.start() > box[1]:
                complete.append((*box, found.start()))
    return min(complete, default=None)


def token_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """What each token adds to the text. Of a character made of several tokens, all goes to the last of them."""
    pieces, before, read = [], 0, 0
    for k in range(1, len(ids) + 1):
        known, text = tokenizer.decode(ids[before:read]), tokenizer.decode(ids[before:k])
        if text.endswith("\ufffd") and k < len(ids):
            pieces.append("")
            continue
        pieces.append(text[len(known) :])
        before, read = read, k
    return pieces


def _to_tokens(pieces: list[str], box: tuple[int, int, int], offset: int) -> OwnAnswer:
    start, inner, close = box
    ends, place = [], 0
    for piece in pieces:
        place += len(piece)
        ends.append(place)

    def holding(character: int) -> int:
        return next(i for i, end in enumerate(ends) if end > character)

    return OwnAnswer(
        offset + holding(start), offset + holding(close) + 1, offset + holding(inner), offset + holding(close - 1) + 1
    )
