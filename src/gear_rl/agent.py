"""Play episodes with a local model: batched, multi-turn, one key-value cache from the first token to the last.

Used where no engine samples for us: evaluation, and as `rollout_func` for tasks that bring their own world. Token ids are
concatenated, never decoded and tokenised again: what the policy sampled is what is scored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from gear_rl.hints import Prompt
from gear_rl.tasks.base import Episode, Row, Task


@dataclass
class Played:
    """One finished rollout."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    action_mask: list[int] = field(default_factory=list)
    """1 where the policy sampled the token, 0 where the environment spoke."""


@dataclass
class _Seat:
    """A rollout under way: `pending` holds tokens the model has not read yet."""

    played: Played
    episode: Episode
    pending: list[int]
    turn: list[int] = field(default_factory=list)
    turns: int = 0
    done: bool = False


class Replies:
    """Token ids that follow the policy's end-of-turn token when the environment answers: its message, the next opening."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._cache = tokenizer, dict[str, list[int]]()

    def ids(self, reply: str) -> list[int]:
        if reply not in self._cache:
            told = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
            before = self._tokenizer.apply_chat_template(told, tokenize=True, return_dict=False)
            after = self._tokenizer.apply_chat_template(
                [*told, {"role": "tool", "content": reply}],
                tokenize=True,
                return_dict=False,
                add_generation_prompt=True,
            )
            ends = [i for i, token in enumerate(before) if token == self._tokenizer.eos_token_id]
            self._cache[reply] = after[(ends[-1] + 1 if ends else len(before)) :]
        return self._cache[reply]


def tokenized_prompts(tokenizer: Any, prompts: list[Prompt]) -> list[list[int]]:
    """Ids up to where the policy begins to speak. A group repeats its prompt; each is tokenised once."""
    known: dict[str, list[int]] = {}
    for prompt in prompts:
        if repr(prompt) not in known:
            known[repr(prompt)] = (
                tokenizer(prompt)["input_ids"]
                if isinstance(prompt, str)
                else tokenizer.apply_chat_template(prompt, tokenize=True, return_dict=False, add_generation_prompt=True)
            )
    return [known[repr(prompt)] for prompt in prompts]


@torch.no_grad()
def play(
    model: Any,
    tokenizer: Any,
    task: Task,
    rows: list[Row],
    *,
    prompts: list[Prompt] | None = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    replies: Replies | None = None,
) -> list[Played]:
    """One rollout per row. `temperature` 0 is greedy. `prompts` replaces the rows' own (a hinted teacher, say).
    `replies` carries tokenised replies from one call to the next."""
    device, replies = model.device, replies or Replies(tokenizer)
    opening = tokenized_prompts(tokenizer, prompts or [row["prompt"] for row in rows])
    seats = [_Seat(Played(ids), task.episode(row), list(ids)) for ids, row in zip(opening, rows, strict=True)]
    longest = max(len(ids) for ids in opening)
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (longest - len(s.pending)) + s.pending for s in seats], device=device)
    mask = torch.tensor([[0] * (longest - len(s.pending)) + [1] * len(s.pending) for s in seats], device=device)
    for seat in seats:
        seat.pending = []
    cache = None
    while True:
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.size(1) :]
        out = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )  # fmt: skip
        cache = out.past_key_values
        sampled = _sample(out.logits[:, -1].float(), temperature, generator)
        for seat, token in zip(seats, sampled, strict=True):
            if not seat.done and not seat.pending:
                _take(seat, token, tokenizer, task, replies)
        busy = [seat for seat in seats if not seat.done]
        if not busy:
            return [seat.played for seat in seats]
        width = min(len(seat.pending) for seat in busy)  # rows in step read the environment's words in one forward
        step = [[pad] * width if seat.done else seat.pending[:width] for seat in seats]
        for seat in busy:
            del seat.pending[:width]
        ids = torch.tensor(step, device=device)
        alive = torch.tensor([[int(not seat.done)] for seat in seats], device=device)
        mask = torch.cat([mask, alive.expand(-1, width)], dim=1)


def _sample(logits: torch.Tensor, temperature: float, generator: torch.Generator | None) -> list[int]:
    """logits (B, V) → one token per row."""
    if temperature == 0:
        return logits.argmax(-1).tolist()
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).squeeze(1).tolist()


def _take(seat: _Seat, token: int, tokenizer: Any, task: Task, replies: Replies) -> None:
    """The policy said `token`: book it, and at the end of a turn let the environment answer."""
    seat.played.completion_ids.append(token)
    seat.played.action_mask.append(1)
    seat.turn.append(token)
    seat.pending = [token]
    if token != tokenizer.eos_token_id:
        seat.done = len(seat.turn) >= task.max_turn_tokens  # cut off: the judge sees a turn without its end
        return
    seat.turns += 1
    reply = seat.episode.reply(tokenizer.decode(seat.turn[:-1]))
    seat.turn = []
    if reply is None or seat.turns >= task.max_turns:
        seat.done = True
        return
    words = replies.ids(reply)
    seat.pending += words
    seat.played.completion_ids += words
    seat.played.action_mask += [0] * len(words)
