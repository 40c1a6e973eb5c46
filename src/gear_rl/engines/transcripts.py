"""Credit for transcripts recorded elsewhere: tokenised by the model's own template, scored where the method asks for it,
credited group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.assistant_tokens import Conversation, ConversationTokens
from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.templates import end_tokens
from gear_rl.engines.offline import Completions, other_hints, score
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.models import room_of
from gear_rl.records.transcripts import Transcript, groups_of, problem_of, refuse_groups_of_one
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

AT_ONCE = 64
"""Rollouts scored and written together; groups stay whole."""


@dataclass(frozen=True)
class Batch:
    """Credited rollouts, with what a record keeps beside the tensors."""

    rollouts: Rollouts
    credit: Credit
    rows: list[Transcript]
    prompts: list[str]
    hinted: list[str] | None
    token_texts: list[list[str]]


def check(rows: Sequence[Transcript], method: Method, from_rewards: bool) -> None:
    """Everything that can be refused before a model is loaded."""
    unknown = [name for name in method.needs if name not in SIGNALS]
    if unknown:
        raise GearError(f"{method.name} needs {', '.join(unknown)}, which is not made from transcripts.")
    if method.hint not in (None, "own", "other"):
        raise GearError(f"{method.name}'s teacher reads {method.hint}, which is not made from transcripts.")
    if method.fewest_channels:
        raise GearError(f"{method.name} needs the channels that a reward is made of; a transcript has its sum alone.")
    if from_rewards or rows[0].advantage is None:
        refuse_groups_of_one(rows, groups_of(rows))
    if method.hint is None:
        return
    for row in rows:
        if row.truth is None:
            raise GearError(f"{row.where}: no hint, ground_truth or answer, which the teacher of {method.name} reads.")
    if method.hint == "other":
        other_hints([problem_of(row) for row in rows], [row.truth or "" for row in rows])


def credited(
    rows: Sequence[Transcript],
    method: Method,
    model: Any,
    tokenizer: Any,
    *,
    name: str,
    hint_template: str,
    temperature: float = 1.0,
    from_rewards: bool = False,
    chat: dict[str, Any] | None = None,
    say: Callable[[int], None] = lambda done: None,
) -> Iterator[Batch]:
    """Batches of whole groups. `model` may be None where the method needs no signals; `say` hears how many are done."""
    tokens = ConversationTokens(tokenizer, end_tokens(model, tokenizer), name, chat)
    room = 2**62 if model is None else room_of(model.config)
    conversations = [tokens.split(row.messages, row.tools, row.where) for row in rows]
    hinted = _hinted(rows, method, tokens, hint_template) if method.hint else None
    for i, row in enumerate(rows):
        before = max(len(conversations[i].prompt_ids), len(hinted[i]) if hinted else 0)
        if before + len(conversations[i].completion_ids) > room:
            raise GearError(f"{row.where}: longer than the context of {name}, {room} tokens.")
    scorer = None if model is None else Scorer(model, temperature)
    teacher = None if model is None else Teacher(model, "live")
    checked, done = False, 0
    for members, group_ids in _batches(groups_of(rows)):
        picked = [conversations[i] for i in members]
        prompts, hints = [c.prompt_ids for c in picked], [hinted[i] for i in members] if hinted else None
        completions = Completions.of(
            [c.completion_ids for c in picked],
            [c.action_mask for c in picked],
            "cpu" if model is None else model.device,
        )
        signals = {}
        if scorer is not None and teacher is not None:
            if not checked:
                few = slice(0, 4)
                some = completions.ids[few], completions.action_mask[few]
                scorer.self_check(prompts[few], (hints or prompts)[few], *some, teacher)
                checked = True
            signals = score(scorer, prompts, hints, completions, teacher, method.needs)
        rollouts = Rollouts(
            action_mask=completions.action_mask.cpu(),
            rewards=torch.tensor([rows[i].reward for i in members], dtype=torch.float32),
            group_ids=torch.tensor(group_ids),
            advantages=_advantages([rows[i] for i in members], from_rewards),
            token_ids=completions.token_ids.cpu(),
            signals={key: signal.cpu() for key, signal in signals.items()},
        )
        yield Batch(
            rollouts,
            method.assign(rollouts),
            [rows[i] for i in members],
            tokenizer.batch_decode(prompts),
            None if hints is None else tokenizer.batch_decode(hints),
            [_texts(tokenizer, c) for c in picked],
        )
        done += len(members)
        say(done)


def _hinted(rows: Sequence[Transcript], method: Method, tokens: ConversationTokens, template: str) -> list[list[int]]:
    """The teacher's prompt of each row, by the same template as the student's."""
    truths = [row.truth or "" for row in rows]
    if method.hint == "other":
        truths = other_hints([problem_of(row) for row in rows], truths)
    prompts = []
    for row, truth in zip(rows, truths, strict=True):
        try:
            asked = hinted_prompt(row.prompt, truth, template)
        except GearError as error:
            raise GearError(f"{row.where}: {error}") from None
        assert isinstance(asked, list)
        prompts.append(tokens.prompt_ids(asked, row.tools, row.where))
    return prompts


def _batches(groups: list[list[int]]) -> Iterator[tuple[list[int], list[int]]]:
    """(rows, their group's number) of some groups at a time."""
    members: list[int] = []
    numbers: list[int] = []
    for group in groups:
        if members and len(members) + len(group) > AT_ONCE:
            yield members, numbers
            members, numbers = [], []
        number = numbers[-1] + 1 if numbers else 0
        members += group
        numbers += [number] * len(group)
    yield members, numbers


def _advantages(rows: list[Transcript], from_rewards: bool) -> torch.Tensor | None:
    given = [row.advantage for row in rows if row.advantage is not None]
    return torch.tensor(given, dtype=torch.float32) if given and not from_rewards else None


def _texts(tokenizer: Any, conversation: Conversation) -> list[str]:
    return tokenizer.batch_decode([[token] for token in conversation.completion_ids])
