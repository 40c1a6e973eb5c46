"""Signals for rollouts that no engine is sampling just now: ids to padded tensors, hints, teachers, scores.

What `gear credit` (transcripts) and `gear localize` share. Shapes: B rollouts, T tokens in the longest completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.models import load_model
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

Ids = list[list[int]]


@dataclass(frozen=True)
class Completions:
    """Completions side by side, padded on the right with 0."""

    ids: Ids
    token_ids: Tensor
    """(B, T) integer."""
    action_mask: Tensor
    """(B, T) bool."""

    @staticmethod
    def of(ids: Ids, masks: Sequence[Sequence[int]], device: Any = "cpu") -> Completions:
        return Completions(ids, padded(ids, torch.long).to(device), padded(masks, torch.bool).to(device))


def padded(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Lists of unequal length → (B, T), 0 after their ends."""
    longest = max([1, *map(len, rows)])
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=dtype)


def score(
    scorer: Scorer, prompts: Ids, hinted: Ids | None, completions: Completions, teacher: Teacher, needs: Iterable[str]
) -> dict[str, Tensor]:
    """Those of `needs` that a model can give, each (B, T)."""
    wanted = [name for name in needs if name in SIGNALS]
    if not wanted:
        return {}
    return scorer.score(prompts, hinted or prompts, completions.ids, completions.action_mask, teacher, wanted)


def other_hints(problems: Sequence[str], hints: Sequence[str]) -> list[str]:
    """For each rollout the hint of the next problem that has another one: a real hint, for something else."""
    order = list(dict.fromkeys(problems))
    own = dict(zip(problems, hints, strict=True))
    other: dict[str, str] = {}
    for i, problem in enumerate(order):
        rest = [own[p] for p in (*order[i + 1 :], *order[:i]) if own[p] != own[problem]][:1]
        if not rest:
            raise GearError("a wrong hint is another problem's, but all problems here have the same ground truth.")
        other[problem] = rest[0]
    return [other[problem] for problem in problems]


def frozen_teacher(model: Any, path: str, device: str) -> Teacher:
    """A teacher with the weights of the model in `path`, which must be of the same architecture as `model`."""
    weights = {name: p.detach() for name, p in load_model(path, device)[0].named_parameters()}
    teacher = Teacher(model, "base")
    try:
        teacher.load_state({name: weights[name] for name in teacher.state()})
    except (KeyError, RuntimeError):
        raise GearError(
            f"the teacher {path} is another architecture than the student; it must have the same weights' names and shapes."
        ) from None
    return teacher
