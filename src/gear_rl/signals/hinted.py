"""The teacher's prompts of a batch: hint texts put into the prompts and tokenised as the student's own were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.messages import Prompt
from gear_rl.errors import GearError
from gear_rl.models import context_of
from gear_rl.signals.hint_texts import feedback_of, hint_texts
from gear_rl.signals.sampled import Ids, Sampled
from gear_rl.signals.sources import Sources
from gear_rl.tasks.base import Row

Tokenize = Callable[[Sequence[Prompt], Sequence[Row]], Ids]
"""Prompts and their rows → token ids, exactly as the engine tokenises what the policy reads."""


@dataclass(frozen=True)
class Hinted:
    """What the teacher of a batch reads in place of the prompts."""

    texts: list[str]
    prompt_ids: Ids
    unread: list[int]
    """Rollouts for which there is nothing to read beside the prompt."""


class HintReader:
    """Makes the teacher's prompts, for any kind of hint."""

    def __init__(
        self,
        sources: Sources,
        tokenizer: Any,
        tokenize: Tokenize,
        config: Any,
        method: str,
        success: float | None = None,
    ) -> None:
        self.success = success
        self.sources, self.tokenizer, self.tokenize, self.method = sources, tokenizer, tokenize, method
        self.context = context_of(config)

    def read(self, kind: str, sampled: Sampled) -> Hinted:
        """`kind`: see `hint_texts`. Longer than the model's context is an error that names the rollout."""
        return self.hinted(self.texts(kind, sampled), sampled)

    def feedback(self, kind: str, sampled: Sampled) -> list[str | None]:
        """What the environment said about each rollout, where hints of this kind use it."""
        return (
            feedback_of(self.sources, sampled) if kind in ("sibling_or_feedback", "feedback") else [None] * len(sampled)
        )

    def texts(self, kind: str, sampled: Sampled, feedback: Sequence[str | None] | None = None) -> list[str]:
        """One text per rollout. `sampled`: the batch of all processes, where there are several."""
        return hint_texts(kind, self.sources, sampled, self.tokenizer, self.method, feedback, self.success)

    def hinted(self, texts: list[str], sampled: Sampled) -> Hinted:
        return Hinted(texts, self.with_texts(texts, sampled), [i for i, text in enumerate(texts) if not text])

    def with_texts(self, texts: Sequence[str], sampled: Sampled, rollouts: Sequence[int] | None = None) -> Ids:
        """The prompts with these hints. `rollouts`: whose each text is; None: one text for each rollout."""
        template, of = self.sources.hint_template, range(len(sampled)) if rollouts is None else rollouts
        asked = [hinted_prompt(sampled.prompts[i], text, template) for i, text in zip(of, texts, strict=True)]
        hinted = self.tokenize(asked, [sampled.rows[i] for i in of])
        for i, prompt in zip(of, hinted, strict=True):
            completion = sampled.completion_ids[i]
            if len(prompt) + len(completion) > self.context:
                raise GearError(
                    f"rollout {i}: hinted prompt ({len(prompt)} tokens) and completion ({len(completion)}) exceed the "
                    f"model's context of {self.context}. Shorten the hint."
                )
        return hinted

    def check_tokenization(self, sampled: Sampled) -> None:
        """The unhinted prompts, tokenised our way, must be what the engine sampled from."""
        if self.tokenize(sampled.prompts, sampled.rows) != sampled.prompt_ids:
            raise GearError(
                "start-up self-check failed: the prompt's tokens differ from what the engine's template gives, so a hinted "
                "prompt would differ by more than the hint."
            )
