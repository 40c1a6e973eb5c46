"""Who reads signals (`Reader`), and one batch about to be read (`Reading`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.scoring.answers import Answer
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hinted import Hinted, HintReader, Tokenize
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources, text_of

MOST_ANSWERS = 100_000
"""Tokenised answers that are remembered."""


@dataclass
class Reader:
    """Everything that can compute signals: the policy, its teacher, and where the ground truth is."""

    scorer: Scorer
    teacher: Teacher
    tokenizer: Any
    sources: Sources
    tokenize: Tokenize
    method: str
    """Who asks, for messages."""
    success: float | None = None
    """`gear_rl.methods.Method.success_at`."""
    _answers: dict[str, Answer] = field(default_factory=dict)

    @cached_property
    def hints(self) -> HintReader:
        config = self.scorer.model.config
        return HintReader(self.sources, self.tokenizer, self.tokenize, config, self.method, self.success)

    @cached_property
    def frozen(self) -> Teacher:
        """The weights as they are when this is first asked for. A step that trains asks before its first update."""
        return self.teacher if self.teacher.kind == "base" else Teacher(self.scorer.weights, "base")

    def answer(self, row: dict, i: int) -> Answer:
        """The reference answer of rollout i, tokenised."""
        assert self.sources.answer is not None
        text = text_of(self.sources.answer, row, i, "reference answer", self.method)
        if text not in self._answers:
            if len(self._answers) > MOST_ANSWERS:
                self._answers.clear()
            before, ids = (
                self.tokenizer(part, add_special_tokens=False)["input_ids"] if part else []
                for part in (self.sources.answer_prefix, text)
            )
            self._answers[text] = Answer([*before, *ids], len(before))
        return self._answers[text]


@dataclass(frozen=True)
class Among:
    """The batch of all processes, for signals that compare rollouts."""

    whole: Sampled
    mine: slice
    """This process's rollouts in it."""
    gather: Callable[[Tensor], Tensor]
    """This process's rows (n, …) → those of all processes."""


@dataclass(frozen=True)
class Reading:
    """One batch, about to be read."""

    reader: Reader
    sampled: Sampled
    hinted: Hinted | None
    """What the method's teacher reads; None: it has no teacher."""
    from_task: dict[str, Tensor]
    """Signals that the task has said, each (B, T)."""
    among: Among | None = None
    """None: `sampled` is all there is."""

    @property
    def whole(self) -> tuple[Sampled, slice]:
        """The batch of all processes, and which of its rollouts are this one's."""
        return (self.sampled, slice(None)) if self.among is None else (self.among.whole, self.among.mine)


def from_task(sampled: Sampled, sources: Sources) -> dict[str, Tensor]:
    """What the task says of each token → (B, T), 0 where a completion has ended."""
    width, signals = sampled.action_mask.shape[1], {}
    for name, rows in sources.knowledge.token_signals(sampled).items():
        if len(rows) != len(sampled):
            raise GearError(f"token_signals: {name!r} has {len(rows)} rows for {len(sampled)} rollouts.")
        for i, (row, ids) in enumerate(zip(rows, sampled.completion_ids, strict=True)):
            if len(row) != len(ids):
                raise GearError(
                    f"token_signals: {name!r} has {len(row)} values for the {len(ids)} tokens of rollout {i}."
                )
        signals[name] = padded(rows, torch.float32, sampled.action_mask.device, width=width)
    return signals
