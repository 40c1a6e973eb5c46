"""Play episodes with a local model: batched, multi-turn, one key-value cache from the first token to the last.

Used where no engine samples: evaluation, and as `rollout_func` for tasks with an environment of their own. Token ids are
concatenated, never decoded and tokenised again: what the policy sampled is what is scored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.models import context_of
from gear_rl.sampling.decoding import MOST_TOKENS
from gear_rl.sampling.graph_decoding import decoder_for
from gear_rl.tasks.base import Episode, Row, Task, Transcript, Verdict, tools_of, verdicts

__all__ = ["Played", "Replies", "judge_all", "play", "tokenized_prompts", "transcripts"]


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

    def transcript(self, completion: str) -> Transcript:
        """What a judge reads; `completion` is the text of `completion_ids`."""
        return Transcript(completion, self.turns, self.episode, self.cut_off)


def transcripts(tokenizer: Any, played: list[Played]) -> list[Transcript]:
    """Special tokens are kept: some judges count tokens by them."""
    texts = tokenizer.batch_decode([p.completion_ids for p in played], skip_special_tokens=False)
    return [p.transcript(text) for p, text in zip(played, texts, strict=True)]


def judge_all(tokenizer: Any, task: Task, rows: list[Row], played: list[Played]) -> list[Verdict]:
    told = transcripts(tokenizer, played)
    if task.judge_knows_decisions:
        ids = sorted({token for p in played for token in p.completion_ids})
        text = dict(zip(ids, tokenizer.batch_decode([[token] for token in ids]), strict=True))  # each distinct token once
        for p, transcript in zip(played, told, strict=True):
            transcript.pieces, transcript.action_mask = [text[token] for token in p.completion_ids], p.action_mask
    return verdicts(task, rows, told)


@dataclass
class _Rollout:
    """A rollout under way."""

    played: Played
    episode: Episode
    rng: random.Random | None
    pending: list[int] = field(default_factory=list)
    """Tokens that the model has not read yet."""
    turn: list[int] = field(default_factory=list)
    done: bool = False

    @property
    def samples_next(self) -> bool:
        """Whether the model has read everything, so that the next token is the policy's."""
        return not self.done and not self.pending

    def end(self, cut_off: bool, tokenizer: Any) -> None:
        self.done, self.played.cut_off = True, cut_off
        if self.turn:
            self.played.turns.append(tokenizer.decode(self.turn))


@torch.no_grad()
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
    """One rollout per row. `temperature` 0 is greedy. `prompts` replaces the rows' own (a hinted teacher's, for example).
    `replies` carries tokenised replies from one call to the next. `chat`: settings of the chat template.

    Randomness: `generator`, or else torch's global state, one draw per forward for the whole batch. With `rngs`, one per
    row, a row's random numbers do not depend on the batch. Its logits still do, by rounding: a batch of another shape may run
    another kernel. In float32 that changes a token now and then, in 16 bits many (docs/evaluation.md has counts)."""
    replies = replies or Replies(tokenizer, **(chat or {}))
    tools = [tools_of(task, row) for row in rows]
    opening = tokenized_prompts(tokenizer, prompts or [row["prompt"] for row in rows], tools, **(chat or {}))
    context = context_of(model.config)
    for row, ids in zip(rows, opening, strict=True):
        if len(ids) >= context:
            name = row.get("id", "a row")
            raise GearError(f"{name}: its prompt of {len(ids)} tokens does not fit the model's context of {context}.")
    each: Sequence[random.Random | None] = rngs or [None] * len(rows)
    rollouts = [
        _Rollout(Played(ids), task.episode(row), rng) for ids, row, rng in zip(opening, rows, each, strict=True)
    ]
    for rollout in rollouts:
        rollout.played.episode = rollout.episode
    played, ends, decoder = [r.played for r in rollouts], end_tokens(model, tokenizer), decoder_for(model)
    read = opening
    with ThreadPoolExecutor(task.concurrent_replies) as threads:
        while True:
            logits = decoder.read(read)
            if read is opening and logits.isnan().any():  # on a GPU, sampling from it would end the process
                raise GearError("the model's output is not a number: its weights are damaged.")
            sampled = _sample(logits, temperature, top_p, generator, rollouts if rngs else None)
            asking = [
                r
                for r, token in zip(rollouts, sampled, strict=True)
                if r.samples_next and _append(r, token, ends, tokenizer, task)
            ]
            answers = threads.map(_ask, asking) if task.concurrent_replies > 1 else map(_ask, asking)
            for rollout, reply in zip(asking, answers, strict=True):
                if reply is None or len(rollout.played.turns) >= task.max_turns:
                    rollout.done = True
                    continue
                ids = replies.ids(reply)
                rollout.pending += ids
                rollout.played.completion_ids += ids
                rollout.played.action_mask += [0] * len(ids)
            for rollout in rollouts:
                if not rollout.done and len(rollout.played.prompt_ids) + len(rollout.played.completion_ids) >= context:
                    rollout.end(True, tokenizer)
            running = [rollout for rollout in rollouts if not rollout.done]
            if not running:
                return played
            if (rngs or temperature == 0) and 2 * len(running) <= len(rollouts):
                # Half are done: drop them. Not where one draw serves all rows: it would change the other rows' tokens.
                decoder.keep([i for i, rollout in enumerate(rollouts) if not rollout.done])
                rollouts = running
            # Rows in step read the environment's reply in one forward. Out of step, those with many tokens to read take a
            # few at a time beside those with one.
            least, most = (f(len(rollout.pending) for rollout in running) for f in (min, max))
            width = most if most == least else min(most, MOST_TOKENS)
            read = [[] if rollout.done else rollout.pending[:width] for rollout in rollouts]
            for rollout in running:
                del rollout.pending[:width]


def _sample(
    logits: Tensor, temperature: float, top_p: float, generator: torch.Generator | None, rollouts: list[_Rollout] | None
) -> list[int]:
    """logits (B, V) → one token per row. `rollouts`: each row by its own generator, which is advanced only where the row
    samples next."""
    if temperature == 0:
        return logits.argmax(-1).tolist()
    shares = (logits / temperature).softmax(-1)
    if top_p < 1:
        shares = _nucleus(shares, top_p)
    if rollouts is None:
        return torch.multinomial(shares, 1, generator=generator).squeeze(1).tolist()
    cumulative = shares.double().cumsum(-1)
    draws = [r.rng.random() if r.rng and r.samples_next else 0.0 for r in rollouts]
    targets = torch.tensor(draws, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True).clamp(max=logits.size(-1) - 1).squeeze(1).tolist()


def _nucleus(shares: Tensor, top_p: float) -> Tensor:
    """shares (B, V) with all but the likeliest tokens that together reach `top_p` set to 0; the likeliest always stays."""
    ordered, index = shares.sort(-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0.0)
    return torch.zeros_like(shares).scatter(-1, index, ordered)


def _append(rollout: _Rollout, token: int, ends: set[int], tokenizer: Any, task: Task) -> bool:
    """Add the policy's `token`. Whether it ended the turn, so that the environment replies."""
    rollout.played.completion_ids.append(token)
    rollout.played.action_mask.append(1)
    rollout.pending = [token]
    if token not in ends:
        rollout.turn.append(token)
        if len(rollout.turn) >= task.max_turn_tokens:
            rollout.end(True, tokenizer)  # the judge sees a turn without its end
        return False
    rollout.played.turns.append(tokenizer.decode(rollout.turn))
    rollout.turn = []
    return True


def _ask(rollout: _Rollout) -> Any:
    return rollout.episode.reply(rollout.played.turns[-1])
