"""Play episodes: batched, multi-turn, by any sampler of turns.

Used where no engine samples: evaluation, and as `rollout_func` for tasks with an environment of their own. Token ids are
concatenated, never decoded and tokenised again: what the policy sampled is what is scored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.limits import in_order
from gear_rl.models import context_of
from gear_rl.sampling.own_turns import OwnTurns
from gear_rl.sampling.turns import Request, Turn, TurnSampler
from gear_rl.tasks.base import Episode, Row, Task, Transcript, Verdict, reply_of, tools_of, verdicts

__all__ = ["Played", "Replies", "judge_all", "play", "play_on", "play_with", "tokenized_prompts", "transcripts"]


@dataclass
class Played:
    """One finished rollout."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    action_mask: list[int] = field(default_factory=list)
    """1 where the policy sampled the token, 0 where it came from the environment."""
    turns: list[str] = field(default_factory=list)
    """The policy's turns as the environment reads them; the last may be cut off."""
    cut_off: bool = False
    """The last turn reached a limit: the task's, or the end of the model's context."""
    episode: Episode | None = None
    logprobs: list[float] | None = None
    """The sampler's own log-probabilities of `completion_ids`, 0 for the environment's; None where it gives none."""
    begun: list[int] = field(default_factory=list)
    """The first tokens of a turn that is still to be sampled to its end, also in `completion_ids` (`sampling.rewind`)."""

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    def transcript(self, completion: str) -> Transcript:
        """What a judge reads; `completion` is the text of `completion_ids`."""
        return Transcript(completion, self.turns, self.episode, self.cut_off)


def transcripts(tokenizer: Any, played: list[Played]) -> list[Transcript]:
    """Special tokens are kept: some judges count tokens by them."""
    texts = tokenizer.batch_decode([p.completion_ids for p in played], skip_special_tokens=False)
    return [p.transcript(text) for p, text in zip(played, texts, strict=True)]


def judge_all(tokenizer: Any, task: Task, rows: list[Row], played: list[Played]) -> list[Verdict]:
    seen = transcripts(tokenizer, played)
    if task.judge_knows_decisions:
        ids = sorted({token for p in played for token in p.completion_ids})
        text = dict(zip(ids, tokenizer.batch_decode([[token] for token in ids]), strict=True))  # each distinct token once
        for p, transcript in zip(played, seen, strict=True):
            transcript.pieces, transcript.action_mask = [text[token] for token in p.completion_ids], p.action_mask
    return verdicts(task, rows, seen)


def play(
    model: Any,
    tokenizer: Any,
    task: Task,
    rows: list[Row],
    *,
    prompts: list[Prompt] | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    rngs: Sequence[random.Random] | None = None,
    replies: Replies | None = None,
    chat: dict[str, Any] | None = None,
) -> list[Played]:
    """One rollout per row, by our own decoding. `temperature` 0 is greedy. `prompts` replaces the rows' own (a hinted
    teacher's, for example). `replies` carries tokenised replies from one call to the next. `chat`: settings of the template.

    Randomness: `generator`, or else torch's global state, one draw per forward for the whole batch. With `rngs`, one per
    row, a row's random numbers do not depend on the batch. Its logits still do, by rounding: a batch of another shape may run
    another kernel. In float32 that changes a token now and then, in 16 bits many (docs/evaluation.md has counts)."""
    sampler = OwnTurns(model, end_tokens(model, tokenizer), temperature, top_p, generator, rngs)
    return play_with(sampler, model.config, tokenizer, task, rows, prompts=prompts, replies=replies, chat=chat)


def play_with(
    sampler: TurnSampler,
    model_config: Any,
    tokenizer: Any,
    task: Task,
    rows: list[Row],
    *,
    prompts: list[Prompt] | None = None,
    replies: Replies | None = None,
    chat: dict[str, Any] | None = None,
) -> list[Played]:
    """One rollout per row, its turns sampled by `sampler`; see `play`."""
    replies = replies or Replies(tokenizer, **(chat or {}))
    tools = [tools_of(task, row) for row in rows]
    opening = tokenized_prompts(tokenizer, prompts or [row["prompt"] for row in rows], tools, **(chat or {}))
    context = context_of(model_config)
    for row, ids in zip(rows, opening, strict=True):
        if len(ids) >= context:
            name = row.get("id", "a row")
            raise GearError(f"{name}: its prompt of {len(ids)} tokens does not fit the model's context of {context}.")
    played = [Played(ids, episode=task.episode(row)) for ids, row in zip(opening, rows, strict=True)]
    play_on(sampler, context, tokenizer, task, played, replies)
    return played


def play_on(
    sampler: TurnSampler, context: int, tokenizer: Any, task: Task, played: list[Played], replies: Replies
) -> None:
    """Play rollouts, in each of which it is the policy's turn, to their ends. `context`: how many tokens the model reads."""

    def submit(rollouts: Sequence[int]) -> None:
        requests = [(i, played[i].ids, task.max_turn_tokens - len(played[i].begun)) for i in rollouts]
        sampler.submit([Request(i, ids, min(most, context - len(ids))) for i, ids, most in requests])

    def ask(one: Played) -> Any:
        return reply_of(task, one.episode, one.turns[-1])

    submit(range(len(played)))
    running = len(played)
    while running:
        finished = sampler.finished()
        for turn in finished:
            _append(played[turn.rollout], turn, tokenizer)
        asking = [turn.rollout for turn in finished if turn.ended]
        running -= len(finished) - len(asking)
        answers = in_order(ask, [played[i] for i in asking], task.concurrent_replies)
        going_on = []
        for i, reply in zip(asking, answers, strict=True):
            if reply is None or len(played[i].turns) >= task.max_turns:
                continue
            ids = replies.ids(reply)
            played[i].cut_off = len(played[i].ids) + len(ids) >= context
            if not played[i].cut_off:  # else it is left out: no turn follows it, and training would read beyond the context
                _reply(played[i], ids)
                going_on.append(i)
        running -= len(asking) - len(going_on)
        if going_on:
            submit(going_on)


def _append(played: Played, turn: Turn, tokenizer: Any) -> None:
    """The policy's turn, cut off or not. The judge sees a turn that was cut off without its end."""
    played.completion_ids += turn.tokens
    played.action_mask += [1] * len(turn.tokens)
    whole = played.begun + turn.tokens
    played.turns.append(tokenizer.decode(whole[:-1] if turn.ended else whole))
    played.begun = []
    played.cut_off = not turn.ended
    if turn.logprobs is not None:
        played.logprobs = (played.logprobs or []) + turn.logprobs


def _reply(played: Played, ids: list[int]) -> None:
    """The environment's answer."""
    played.completion_ids += ids
    played.action_mask += [0] * len(ids)
    if played.logprobs is not None:
        played.logprobs += [0.0] * len(ids)
