"""Play episodes with a local model: batched, multi-turn, one key-value cache from the first token to the last.

Used where no engine samples for us: evaluation, and as `rollout_func` for tasks that bring their own world. Token ids are
concatenated, never decoded and tokenised again: what the policy sampled is what is scored.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.sampling.decoding import MOST_WORDS
from gear_rl.sampling.graph_decoding import decoder_for
from gear_rl.tasks.base import Episode, Row, Task, Transcript, tools_of

__all__ = ["Played", "Replies", "play", "tokenized_prompts", "transcripts"]


@dataclass
class Played:
    """One finished rollout."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    action_mask: list[int] = field(default_factory=list)
    """1 where the policy sampled the token, 0 where the environment spoke."""
    turns: list[str] = field(default_factory=list)
    """The policy's turns as the environment reads them; the last may be cut off."""
    cut_off: bool = False
    """The last turn ran into a limit: the task's, or the end of the model's context."""
    episode: Episode | None = None

    def transcript(self, completion: str) -> Transcript:
        """What a judge reads of it; `completion` is the text of `completion_ids`."""
        return Transcript(completion, self.turns, self.episode, self.cut_off)


def transcripts(tokenizer: Any, played: list[Played]) -> list[Transcript]:
    """Special tokens kept: some judges count tokens by them."""
    texts = tokenizer.batch_decode([p.completion_ids for p in played], skip_special_tokens=False)
    return [p.transcript(text) for p, text in zip(played, texts, strict=True)]


@dataclass
class _Seat:
    """A rollout under way: `pending` holds tokens the model has not read yet."""

    played: Played
    episode: Episode
    dice: random.Random | None
    pending: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    done: bool = False

    @property
    def speaks(self) -> bool:
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
    dice: list[random.Random] | None = None,
    replies: Replies | None = None,
    chat: dict[str, Any] | None = None,
) -> list[Played]:
    """One rollout per row. `temperature` 0 is greedy. `prompts` replaces the rows' own (a hinted teacher, say). `replies`
    carries tokenised replies from one call to the next. `chat`: settings of the chat template.

    Randomness: `generator`, else torch's global state, one draw per forward for the whole batch. With `dice`, one per row,
    a rollout does not depend on the batch it is in, so that an evaluation may be cut into batches anew when it resumes."""
    replies = replies or Replies(tokenizer, **(chat or {}))
    tools = [tools_of(task, row) for row in rows]
    opening = tokenized_prompts(tokenizer, prompts or [row["prompt"] for row in rows], tools, **(chat or {}))
    room = getattr(model.config, "max_position_embeddings", None) or 2**62
    for row, ids in zip(rows, opening, strict=True):
        if len(ids) >= room:
            name = row.get("id", "a row")
            raise GearError(f"{name}: its prompt of {len(ids)} tokens does not fit the model's context of {room}.")
    dealt: list[random.Random | None] = list(dice) if dice else [None] * len(rows)
    seats = [_Seat(Played(ids), task.episode(row), d) for ids, row, d in zip(opening, rows, dealt, strict=True)]
    for seat in seats:
        seat.played.episode = seat.episode
    played, ends, decoder = [seat.played for seat in seats], end_tokens(model, tokenizer), decoder_for(model)
    read = opening
    with ThreadPoolExecutor(task.concurrent_replies) as threads:
        while True:
            logits = decoder.read(read)
            if read is opening and logits.isnan().any():  # on a GPU, drawing from it would end the process
                raise GearError("the model's output is not a number: its weights are damaged.")
            sampled = _sample(logits, temperature, top_p, generator, seats if dice else None)
            asking = [
                s
                for s, token in zip(seats, sampled, strict=True)
                if s.speaks and _take(s, token, ends, tokenizer, task)
            ]
            answers = threads.map(_ask, asking) if task.concurrent_replies > 1 else map(_ask, asking)
            for seat, reply in zip(asking, answers, strict=True):
                if reply is None or len(seat.played.turns) >= task.max_turns:
                    seat.done = True
                    continue
                words = replies.ids(reply)
                seat.pending += words
                seat.played.completion_ids += words
                seat.played.action_mask += [0] * len(words)
            for seat in seats:
                if not seat.done and len(seat.played.prompt_ids) + len(seat.played.completion_ids) >= room:
                    seat.end(True, tokenizer)
            busy = [seat for seat in seats if not seat.done]
            if not busy:
                return played
            if (dice or temperature == 0) and 2 * len(busy) <= len(seats):
                # Half are done: go on with the rest. Not where one draw serves all rows: it would change what they say.
                decoder.keep([i for i, seat in enumerate(seats) if not seat.done])
                seats = busy
            # Rows in step read the environment's words in one forward. Out of step, those with many words to read take a
            # few at a time beside those with one.
            least, most = (f(len(seat.pending) for seat in busy) for f in (min, max))
            width = most if most == least else min(most, MOST_WORDS)
            read = [[] if seat.done else seat.pending[:width] for seat in seats]
            for seat in busy:
                del seat.pending[:width]


def _sample(
    logits: Tensor, temperature: float, top_p: float, generator: torch.Generator | None, seats: list[_Seat] | None
) -> list[int]:
    """logits (B, V) → one token per row. `seats`: each row by its own dice, and only where it is its turn to speak."""
    if temperature == 0:
        return logits.argmax(-1).tolist()
    shares = (logits / temperature).softmax(-1)
    if top_p < 1:
        shares = _nucleus(shares, top_p)
    if seats is None:
        return torch.multinomial(shares, 1, generator=generator).squeeze(1).tolist()
    heights = shares.double().cumsum(-1)
    throws = [seat.dice.random() if seat.dice and seat.speaks else 0.0 for seat in seats]
    aims = torch.tensor(throws, dtype=torch.float64, device=logits.device)[:, None] * heights[:, -1:]
    return torch.searchsorted(heights, aims, right=True).clamp(max=logits.size(-1) - 1).squeeze(1).tolist()


def _nucleus(shares: Tensor, top_p: float) -> Tensor:
    """shares (B, V) with all but the likeliest tokens that together reach `top_p` set to 0; the likeliest always stays."""
    ordered, index = shares.sort(-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0.0)
    return torch.zeros_like(shares).scatter(-1, index, ordered)


def _take(seat: _Seat, token: int, ends: set[int], tokenizer: Any, task: Task) -> bool:
    """The policy said `token`: book it. Whether that ended its turn, and the environment is to answer."""
    seat.played.completion_ids.append(token)
    seat.played.action_mask.append(1)
    seat.pending = [token]
    if token not in ends:
        seat.turn.append(token)
        if len(seat.turn) >= task.max_turn_tokens:
            seat.end(True, tokenizer)  # the judge sees a turn without its end
        return False
    seat.played.turns.append(tokenizer.decode(seat.turn))
    seat.turn = []
    return True


def _ask(seat: _Seat) -> Any:
    return seat.episode.reply(seat.played.turns[-1])
