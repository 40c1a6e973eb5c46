"""Credit for transcripts recorded elsewhere: tokenised by the model's own template, then the step of every engine, group by
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from gear_rl.chat.assistant_tokens import Conversation, ConversationTokens
from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import end_tokens
from gear_rl.engines.step import CreditStep, Scored
from gear_rl.errors import GearError, shown
from gear_rl.methods import Method
from gear_rl.models import context_of
from gear_rl.records.transcripts import Transcript, groups_of, refuse_groups_of_one
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hint_texts import other_hints
from gear_rl.signals.providers import ANSWER_READERS, Reader, missing_source
from gear_rl.signals.sampled import Ids, Sampled
from gear_rl.signals.sources import Sources
from gear_rl.tasks.base import Row

MOST_UNKNOWN = 0.01
"""Share of tokens that the tokenizer may not know."""
AT_ONCE = 64
"""Rollouts scored and written together; groups stay whole."""
SOURCES = Sources(hint="hint", wrong_hint="wrong_hint", answer="answer")
"""The columns of `row_of`."""


def check(rows: Sequence[Transcript], method: Method, from_rewards: bool) -> None:
    """Everything that can be said before a model is loaded."""
    check_method(method, "transcripts")
    if method.fewest_channels:
        raise GearError(f"{method.name} needs the channels that a reward is made of; a transcript has its sum alone.")
    if from_rewards or rows[0].advantage is None:
        refuse_groups_of_one(rows, groups_of(rows))
    for row in rows:
        check_truth(method, row.truth, row.answer, row.where)
    if method.hint == "other":
        other_hints([row.truth or "" for row in rows])


def check_method(method: Method, of: str) -> None:
    for need in method.needs:
        if missing_source(need, SOURCES):
            raise GearError(f"{method.name} needs {need}, which is not made from {of}.")
    if method.hint == "feedback":
        raise GearError(f"{method.name}'s teacher reads {method.hint}, which is not made from {of}.")


def check_truth(method: Method, truth: str | None, answer: str | None, where: str) -> None:
    if method.hint in ("own", "other") and truth is None:
        raise GearError(f"{where}: no hint, ground_truth or answer, which the teacher of {method.name} reads.")
    if set(method.needs) & set(ANSWER_READERS) and answer is None:
        raise GearError(f"{where}: no answer, which {method.name} reads.")


def reader_of(
    method: Method, model: Any, tokenizer: Any, tokens: ConversationTokens, hint_template: str, temperature: float
) -> Reader:
    """Reads a method's signals of conversations that were recorded elsewhere; their rows are those of `row_of`."""

    def tokenize(prompts: Sequence[Prompt], of: Sequence[Row]) -> Ids:
        return [tokens.prompt_ids(p, r["tools"], r["where"]) for p, r in zip(prompts, of, strict=True)]  # type: ignore[arg-type]

    wrong = SOURCES.wrong_hint if method.hint == "other" else None  # else: wrong rollouts of the group
    sources = replace(SOURCES, hint_template=hint_template, wrong_hint=wrong)
    scorer, teacher = Scorer(model, temperature), Teacher(model, "live")
    return Reader(scorer, teacher, tokenizer, sources, tokenize, method.name, method.success_at)


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
) -> Iterator[tuple[Scored, list[Transcript]]]:
    """Scored batches of whole groups with the transcripts they are made of. `model` may be None where the method needs no
    signals; `say` hears how many are done."""
    tokens = ConversationTokens(tokenizer, end_tokens(model, tokenizer), name, chat)
    conversations = [tokens.split(row.messages, row.tools, row.where) for row in rows]
    _refuse_unknown_tokens(rows, conversations, tokenizer, tokens.ends, name)
    data = _rows(rows, method)
    for row, one, conversation in zip(rows, data, conversations, strict=True):
        before = max(len(conversation.prompt_ids), _hinted_length(row, one, method, tokens, hint_template))
        context = 2**62 if model is None else context_of(model.config)
        if before + len(conversation.completion_ids) > context:
            raise GearError(f"{row.where}: longer than the context of {name}, {context} tokens.")

    reader, device = None, "cpu"
    if model is not None:
        reader, device = reader_of(method, model, tokenizer, tokens, hint_template, temperature), model.device
    step, done = CreditStep(method, reader), 0
    for members, group_ids in batches(groups_of(rows)):
        picked = [conversations[i] for i in members]
        sampled = Sampled(
            rows=[data[i] for i in members],
            prompts=[rows[i].prompt for i in members],
            prompt_ids=[c.prompt_ids for c in picked],
            completion_ids=[c.completion_ids for c in picked],
            token_ids=padded([c.completion_ids for c in picked], torch.long).to(device),
            action_mask=padded([c.action_mask for c in picked], torch.bool).to(device),
            rewards=torch.tensor([rows[i].reward for i in members], dtype=torch.float32, device=device),
            group_ids=torch.tensor(group_ids, device=device),
            advantages=_advantages([rows[i] for i in members], from_rewards, device),
        )
        yield step(sampled), [rows[i] for i in members]
        done += len(members)
        say(done)


def _refuse_unknown_tokens(
    rows: Sequence[Transcript], conversations: Sequence[Conversation], tokenizer: Any, ends: set[int], name: str
) -> None:
    """A tokenizer that does not know the words writes `<unk>` for them, and credit for `<unk>` is credit for nothing."""
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown in ends | {tokenizer.bos_token_id, tokenizer.pad_token_id}:
        return  # byte-level ones know everything, and some (GPT-2's) name their end mark here
    total = sum(len(c.prompt_ids) + len(c.completion_ids) for c in conversations)
    counts = [c.prompt_ids.count(unknown) + c.completion_ids.count(unknown) for c in conversations]
    if sum(counts) <= MOST_UNKNOWN * total:
        return
    worst = max(range(len(rows)), key=counts.__getitem__)
    words = [w for w in dict.fromkeys(conversations[worst].text.split()[:1000]) if unknown in tokenizer.encode(w)][:5]
    raise GearError(
        f"{rows[worst].where}: the tokenizer of {name} does not know these words: {', '.join(map(shown, words))}, … In all, "
        f"{sum(counts) / total:.0%} of the tokens ({sum(counts)} of {total}) are {tokenizer.unk_token!r}; at most "
        f"{MOST_UNKNOWN:.0%} may be. Give the model that the transcripts are from."
    )


def _rows(rows: Sequence[Transcript], method: Method) -> list[Row]:
    """Transcripts as the rows of `SOURCES`. A wrong hint is chosen among all of them, not within a batch."""
    truths = [row.truth or "" for row in rows]
    wrong = other_hints(truths) if method.hint == "other" else [""] * len(rows)
    return [
        row_of(truth, other, row.answer, row.tools, row.where)
        for row, truth, other in zip(rows, truths, wrong, strict=True)
    ]


def row_of(hint: str, wrong_hint: str, answer: str | None, tools: Any, where: str) -> Row:
    """The columns that `SOURCES` names, and what tokenising needs."""
    return {"hint": hint, "wrong_hint": wrong_hint, "answer": answer, "tools": tools, "where": where}


def _hinted_length(row: Transcript, one: Row, method: Method, tokens: ConversationTokens, template: str) -> int:
    """Tokens of the teacher's prompt where its hint is known beforehand; 0 where it is not."""
    if method.hint not in ("own", "other"):
        return 0
    try:
        asked = hinted_prompt(row.prompt, one["hint" if method.hint == "own" else "wrong_hint"], template)
    except GearError as error:
        raise GearError(f"{row.where}: {error}") from None
    assert isinstance(asked, list)
    return len(tokens.prompt_ids(asked, row.tools, row.where))


def batches(groups: list[list[int]]) -> Iterator[tuple[list[int], list[int]]]:
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


def _advantages(rows: list[Transcript], from_rewards: bool, device: Any) -> torch.Tensor | None:
    given = [row.advantage for row in rows if row.advantage is not None]
    return torch.tensor(given, dtype=torch.float32, device=device) if given and not from_rewards else None
