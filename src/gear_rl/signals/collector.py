"""Signals for a method: what it needs about each token, from scoring or from the task, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.scoring import answer_logprob
from gear_rl.scoring.answers import Answer, AnswerReading, turn_starts
from gear_rl.scoring.hidden_distance import hidden_distance
from gear_rl.scoring.masking import masking_divergence
from gear_rl.scoring.saliency import answer_saliency
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.sources import Ids, Sampled, Sources, text_of

SALIENCY = ("saliency_mask", "saliency_grad", "saliency_act")
ANSWER_SPAN = "answer_span"
"""The token signal that marks a rollout's own final answer, where a task can say it."""


class SignalCollector:
    """Asks scoring and the task for what `method` needs."""

    def __init__(self, method: Method, sources: Sources, scorer: Scorer, teacher: Teacher, tokenizer: Any) -> None:
        self.method, self.sources, self.scorer, self.teacher = method, sources, scorer, teacher
        self._tokenizer = tokenizer
        self._answers: dict[str, Answer] = {}

    def collect(self, sampled: Sampled, hinted: Ids | None, unread: list[int]) -> dict[str, Tensor]:
        """Name → (B, T). `hinted`: the teacher's prompts; `unread`: rollouts whose teacher has nothing to read."""
        needs = self.method.needs
        signals = self._told(sampled)
        if scored := [name for name in needs if name in SIGNALS]:
            signals |= self._scored(scored, sampled, hinted, unread)
        if any(name in answer_logprob.SIGNALS for name in needs):
            answers = [self.answer(row, i) for i, row in enumerate(sampled.rows)]
            signals |= answer_logprob.answer_logprobs(
                self.scorer, sampled.prompts, sampled.completions, sampled.actions, answers
            )
        if salient := [name for name in needs if name in SALIENCY]:
            readings = self.readings(sampled, signals.pop(ANSWER_SPAN, None))
            signals |= {name: self._salient(name, readings, sampled.actions) for name in salient}
        if "hidden_distance" in needs:
            signals["hidden_distance"] = hidden_distance(
                self.scorer, sampled.prompts, sampled.completions, sampled.actions, sampled.rewards, sampled.groups
            )
        if "tool_call" in needs and "tool_call" not in signals:
            signals["tool_call"] = sampled.actions.float()  # a task that cannot tell them apart: all of them
        return signals

    def _scored(self, needs: list[str], sampled: Sampled, hinted: Ids | None, unread: list[int]) -> dict[str, Tensor]:
        prompts = sampled.prompts
        scored = self.scorer.score(
            prompts, hinted or prompts, sampled.ids, sampled.actions, self.teacher, needs, sampled.known
        )
        if unread:  # a teacher with nothing to say says nothing, even where its weights are not the student's
            if "teacher_logprob" in scored and "student_logprob" in scored:
                scored["teacher_logprob"][unread] = scored["student_logprob"][unread]
            if "reverse_kl" in scored:
                scored["reverse_kl"][unread] = 0.0
        return scored

    def _salient(self, name: str, readings: list[AnswerReading | None], actions: Tensor) -> Tensor:
        model, temperature = self.scorer.model, self.scorer.temperature
        if name == "saliency_mask":
            return masking_divergence(model, readings, actions, temperature, self.sources.mask_budget)
        return answer_saliency(model, readings, actions, name, temperature)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------ the task's word
    def _told(self, sampled: Sampled) -> dict[str, Tensor]:
        if self.sources.token_signals is None:
            return {}
        told = self.sources.token_signals(sampled.rows, sampled.completions)
        return {name: _padded(name, rows, sampled) for name, rows in told.items()}

    def channels(self, sampled: Sampled, per_function: Tensor, names: list[str]) -> dict[str, Tensor]:
        """Name → (B,). `per_function` (B, functions): what TRL's reward functions, called `names`, returned."""
        wanted = self.sources.channels
        if wanted is None or not self.method.fewest_channels:
            return {}
        if isinstance(wanted, list):
            return {name: per_function[:, names.index(name)] for name in wanted}
        found: Mapping[str, list[float]] = wanted(sampled.rows, sampled.completions)
        for name, values in found.items():
            if len(values) != len(sampled.rows):
                raise GearError(f"channel {name!r} has {len(values)} values for {len(sampled.rows)} rollouts.")
        device = sampled.actions.device
        return {name: torch.tensor(values, dtype=torch.float32, device=device) for name, values in found.items()}

    # ------------------------------------------------------------------------------------------ answers
    def answer(self, row: dict, i: int) -> Answer:
        assert self.sources.answer is not None
        text = text_of(self.sources.answer, row, i, "gold answer", self.method.name)
        if text not in self._answers:
            if len(self._answers) > 100_000:
                self._answers.clear()
            before, ids = (
                self._tokenizer(part, add_special_tokens=False)["input_ids"] if part else []
                for part in (self.sources.answer_prefix, text)
            )
            self._answers[text] = Answer([*before, *ids], len(before))
        return self._answers[text]

    def readings(self, sampled: Sampled, spans: Tensor | None) -> list[AnswerReading | None]:
        """Where each rollout's final answer is read, None where it has none.

        With `spans` (B, T), the rollout's own answer in its place. Else the gold answer: in place of the last turn, and
        of a rollout of one turn at its end, before the token that ended it.
        """
        end, readings = self._tokenizer.eos_token_id, list[AnswerReading | None]()
        starts = turn_starts(sampled.actions)
        for i, (prompt, ids) in enumerate(zip(sampled.prompts, sampled.completions, strict=True)):
            if spans is not None:
                marked = (spans[i] > 0).nonzero()[:, 0].tolist()
                own = Answer(ids[marked[0] : marked[-1] + 1]) if marked else None
                readings.append(None if own is None else AnswerReading(prompt, ids, marked[0], own))
                continue
            begins = starts[i].nonzero()[:, 0].tolist()
            spoken = sampled.actions[i].nonzero()[:, 0].tolist()
            if not spoken:
                readings.append(None)
                continue
            cut = begins[-1] if len(begins) > 1 else spoken[-1] + (ids[spoken[-1]] != end)
            readings.append(AnswerReading(prompt, ids, cut, self.answer(sampled.rows[i], i)))
        return readings


def _padded(name: str, rows: list[list[float]], sampled: Sampled) -> Tensor:
    """(B, T), 0 where a completion has ended."""
    width = sampled.actions.shape[1]
    if len(rows) != len(sampled.rows):
        raise GearError(f"token_signals: {name!r} has {len(rows)} rows for {len(sampled.rows)} rollouts.")
    for i, (row, ids) in enumerate(zip(rows, sampled.completions, strict=True)):
        if len(row) != len(ids):
            raise GearError(f"token_signals: {name!r} has {len(row)} values for the {len(ids)} tokens of rollout {i}.")
    padded = [[*row, *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float32, device=sampled.actions.device)
