"""The final answer of a rollout, and where it is read: behind everything that led to it.

prompt + completion[:cut] + answer        the first `unscored` tokens of the answer only lead up to it

"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.models import context_of
from gear_rl.scoring.batching import FEWEST_TOKENS, padded_batches, token_budget
from gear_rl.scoring.body import Ids
from gear_rl.scoring.weights import Weights


@dataclass(frozen=True)
class Answer:
    """What is read, as token ids."""

    ids: list[int]
    unscored: int = 0
    """so many of the first ids are said before the answer ("The answer is"), and are no part of it"""

    def __post_init__(self) -> None:
        if not 0 <= self.unscored < len(self.ids):
            raise GearError("an answer without any token cannot be read.")

    @property
    def tokens(self) -> list[int]:
        return self.ids[self.unscored :]


@dataclass(frozen=True)
class AnswerReading:
    """One rollout's answer, in its place."""

    prompt: list[int]
    completion: list[int]
    cut: int
    """tokens of the completion that are read before the answer"""
    answer: Answer

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.completion[: self.cut], *self.answer.ids]

    @property
    def before_answer(self) -> range:
        """Positions in `ids` whose states predict the answer's tokens."""
        end = len(self.prompt) + self.cut + len(self.answer.ids)
        return range(end - len(self.answer.tokens) - 1, end - 1)


def mean_states(states: Tensor, members: list[AnswerReading]) -> Tensor:
    """States before the answers' tokens, member after member (N, D) → their mean for each member (n, D), at least float32.

    A head is affine up to its soft cap, so the head of the mean state is the mean of the logits over the answer. For a
    soft-capped head it is the cap of that mean (ours; the source knows no such head).
    """
    exact = states.to(torch.promote_types(states.dtype, torch.float32))
    return torch.stack([part.mean(0) for part in exact.split([len(m.answer.tokens) for m in members])])


def turn_starts(action_mask: Tensor) -> Tensor:
    """(B, T) bool: the first token of each run of action tokens."""
    before = torch.cat([torch.zeros_like(action_mask[:, :1]), action_mask[:, :-1]], dim=1)
    return action_mask & ~before


def refuse_beyond_context(model: Any, rows: Ids, what: str) -> None:
    limit = context_of(model.config)
    longest = max(map(len, rows), default=0)
    if longest > limit:
        raise GearError(f"{what}: {longest} tokens exceed the model's context of {limit}. Shorten the answer.")


def batches_of(weights: Weights, rows: Ids, with_gradients: bool = False) -> Iterator[list[int]]:
    """Which rows go through the model together; with gradients, every layer's states stay alive until they are used.
    No rows: a pass for the sake of the other processes (`gear_rl.scoring.weights`)."""
    model = weights.model
    weight = next(model.parameters())
    budget = token_budget(model.config, weight.device, weight.dtype)
    if with_gradients:
        budget = max(FEWEST_TOKENS, budget // max(1, getattr(model.config, "num_hidden_layers", 1)))
    budget = weights.part_of(budget)
    batches = [batch.rows for batch in padded_batches([[rows]], [0] * len(rows), budget)]
    yield from batches
    yield from [[]] * (weights.most(len(batches)) - len(batches))


def over_actions(
    readings: list[AnswerReading | None], action_mask: Tensor, scores: Callable[[int, AnswerReading], Tensor]
) -> Tensor:
    """`scores(i, reading)`: one per token of completion i before its cut. → (B, T), 0 where masked.

    The answer's own tokens, and what follows them, get the largest score of their rollout: nothing decides the answer
    more than the words it is given in. Ours; the sources say nothing about them.
    """
    out = torch.zeros(action_mask.shape, device=action_mask.device)
    for i, reading in enumerate(readings):
        if reading is not None and action_mask[i, : reading.cut].any():
            found = scores(i, reading) * action_mask[i, : reading.cut]
            out[i, : reading.cut] = found
            out[i, reading.cut :] = found.max()
    return out * action_mask
