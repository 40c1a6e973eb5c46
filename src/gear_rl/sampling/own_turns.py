"""Turns sampled by our own decoding: one key-value cache from the first token to the last, all rollouts in one batch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.sampling.decoding import MOST_TOKENS
from gear_rl.sampling.graph_decoding import decoder_for
from gear_rl.sampling.turns import Request, Seeds, Turn, TurnSampler


@dataclass
class _Row:
    """A row of the cache."""

    rollout: int
    rng: random.Random | None
    read: int = 0
    """Tokens of the rollout that the model has been given."""
    pending: list[int] = field(default_factory=list)
    """Tokens that the model has not been given yet."""
    turn: list[int] = field(default_factory=list)
    most: int = 0
    done: bool = False

    @property
    def samples_next(self) -> bool:
        return not self.done and not self.pending


class OwnTurns:
    """Any model that transformers runs, on any device.

    Randomness: `generator`, or else torch's global state, one draw per forward for the whole batch. With `rngs`, a row's
    random numbers do not depend on the batch. `share_openings`: rollouts that begin with the same tokens are read once up to
    their first sampled token."""

    def __init__(
        self,
        model: Any,
        ends: set[int],
        temperature: float,
        top_p: float = 1.0,
        generator: torch.Generator | None = None,
        rngs: Sequence[random.Random] | None = None,
        share_openings: bool = False,
    ) -> None:
        self.ends, self.temperature, self.top_p, self.generator, self.rngs = ends, temperature, top_p, generator, rngs
        self._decoder, self._rows, self._share = decoder_for(model), list[_Row](), share_openings
        self._by_rollout: dict[int, _Row] = {}

    def submit(self, requests: list[Request]) -> None:
        for request in requests:
            row = self._by_rollout.get(request.rollout)
            if row is None:
                row = _Row(request.rollout, self.rngs[request.rollout] if self.rngs else None)
                self._by_rollout[request.rollout] = row
                self._rows.append(row)
            row.pending, row.turn, row.most, row.done = request.context[row.read :], [], request.most, False

    @torch.no_grad()
    def finished(self) -> list[Turn]:
        running = [row for row in self._rows if not row.done]
        opening = all(row.read == 0 for row in self._rows)
        if (self.rngs or self.temperature == 0) and 2 * len(running) <= len(self._rows):
            # Half are done: drop them. Not where one draw serves all rows: it would change the other rows' tokens.
            self._decoder.keep([i for i, row in enumerate(self._rows) if not row.done])
            self._rows = running
        while True:
            ids = self._next(running, whole=opening)
            logits = self._read_shared(ids) if opening and self._share else self._decoder.read(ids)
            if opening and logits.isnan().any():  # on a GPU, sampling from it would end the process
                raise GearError("the model's output is not a number: its weights are damaged.")
            opening = False
            finished = list[Turn]()
            for row, token in zip(self._rows, self._sample(logits), strict=True):
                if not row.samples_next:
                    continue
                row.turn.append(token)
                row.pending = [token]
                ended = token in self.ends
                if ended or len(row.turn) >= row.most:
                    row.done = True
                    finished.append(Turn(row.rollout, row.turn, ended))
            if finished:
                return finished

    def _next(self, running: list[_Row], whole: bool) -> list[list[int]]:
        """What each row reads in the next forward. Rows in step read the environment's reply at once. Out of step, those
        with many tokens to read take a few at a time beside those with one. whole: the prompts, all at once."""
        least, most = (f(len(row.pending) for row in running) for f in (min, max))
        width = most if whole or most == least else min(most, MOST_TOKENS)
        read = [[] if row.done else row.pending[:width] for row in self._rows]
        for row, ids in zip(self._rows, read, strict=True):
            row.read += len(ids)
            if ids:
                del row.pending[:width]
        return read

    def _read_shared(self, ids: list[list[int]]) -> Tensor:
        """As `Decoder.read`, but a row that is equal to an earlier one copies it."""
        places: dict[tuple[int, ...], int] = {}
        copied = [places.setdefault(tuple(row), len(places)) for row in ids]
        logits = self._decoder.read([list(row) for row in places])
        if len(places) == len(ids):
            return logits
        self._decoder.keep(copied)
        return logits[copied]

    def _sample(self, logits: Tensor) -> list[int]:
        """logits (B, V) → one token per row. With `rngs`, a row's generator is advanced only where the row samples next."""
        if self.temperature == 0:
            return logits.argmax(-1).tolist()
        shares = (logits / self.temperature).softmax(-1)
        if self.top_p < 1:
            shares = _nucleus(shares, self.top_p)
        if not self.rngs:
            return torch.multinomial(shares, 1, generator=self.generator).squeeze(1).tolist()
        cumulative = shares.double().cumsum(-1)
        draws = [row.rng.random() if row.rng and row.samples_next else 0.0 for row in self._rows]
        targets = torch.tensor(draws, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, targets, right=True).clamp(max=logits.size(-1) - 1).squeeze(1).tolist()


@contextmanager
def own_turns(
    policy: Any, ends: set[int], temperature: float, rngs: Seeds = None, top_p: float = 1.0
) -> Iterator[TurnSampler]:
    yield OwnTurns(policy, ends, temperature, top_p, rngs=rngs)


def _nucleus(shares: Tensor, top_p: float) -> Tensor:
    """shares (B, V) with all but the likeliest tokens that together reach `top_p` set to 0; the likeliest always stays."""
    ordered, index = shares.sort(-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0.0)
    return torch.zeros_like(shares).scatter(-1, index, ordered)
