"""Where each signal is computed. One function per family; `collect` asks those that a method needs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gear_rl.assignment.signals import SIGNALS, find_signal, how_to_get
from gear_rl.errors import GearError
from gear_rl.scoring import answer_logprob, scorer
from gear_rl.scoring.answers import Answer, AnswerReading, turn_starts
from gear_rl.scoring.hidden_distance import hidden_distance
from gear_rl.scoring.masking import masking_divergence
from gear_rl.scoring.padding import padded
from gear_rl.scoring.saliency import answer_saliency
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hinted import Hinted, HintReader, Tokenize
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources, text_of

SALIENCY = ("saliency_mask", "saliency_grad", "saliency_act")
ANSWER_READERS = (*answer_logprob.SIGNALS, *SALIENCY)
"""Signals that read the reference answer."""
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
    _answers: dict[str, Answer] = field(default_factory=dict)

    @cached_property
    def hints(self) -> HintReader:
        return HintReader(self.sources, self.tokenizer, self.tokenize, self.scorer.model.config, self.method)

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
class Reading:
    """One batch, about to be read."""

    reader: Reader
    sampled: Sampled
    hinted: Hinted | None
    """What the method's teacher reads; None: it has no teacher."""
    from_task: dict[str, Tensor]
    """Signals that the task has said, each (B, T)."""


def collect(reading: Reading, needs: Iterable[str]) -> dict[str, Tensor]:
    """Name → (B, T): what the task says, and those of `needs` that it does not say."""
    signals, needs = dict(reading.from_task), list(needs)
    for family, compute in PROVIDERS:
        if wanted := [name for name in needs if name in family and name not in signals]:
            signals |= compute(reading, wanted)
    for name in needs:
        if name not in signals:
            known = find_signal(name)
            if known is None or known.compute is None:
                raise GearError(f"method {reading.reader.method!r} needs the signal {name!r}{how_to_get(name)}.")
            signals[name] = known.compute(reading)
    signals.pop("answer_span", None)  # a place in the rollout, no signal of its own
    return signals


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


# ------------------------------------------------------------------------------------------------ families
def _divergence(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """Student and teacher, in one pass where their weights are the same."""
    reader, sampled, hinted = reading.reader, reading.sampled, reading.hinted
    prompts = sampled.prompt_ids
    scored = reader.scorer.score(
        prompts, hinted.prompt_ids if hinted else prompts, sampled.token_ids, sampled.action_mask, reader.teacher,
        wanted, sampled.known,
    )  # fmt: skip
    if hinted and hinted.unread:  # a teacher with nothing to read agrees, even where its weights are not the student's
        if "teacher_logprob" in scored and "student_logprob" in scored:
            scored["teacher_logprob"][hinted.unread] = scored["student_logprob"][hinted.unread]
        if "reverse_kl" in scored:
            scored["reverse_kl"][hinted.unread] = 0.0
    return scored


def _answer_logprob(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    reader, sampled = reading.reader, reading.sampled
    answers = [reader.answer(row, i) for i, row in enumerate(sampled.rows)]
    return answer_logprob.answer_logprobs(
        reader.scorer, sampled.prompt_ids, sampled.completion_ids, sampled.action_mask, answers
    )


def _saliency(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    reader, actions = reading.reader, reading.sampled.action_mask
    readings = answers_in_place(reading)
    model, temperature = reader.scorer.model, reader.scorer.temperature
    signals = {}
    for name in wanted:
        if name == "saliency_mask":
            signals[name] = masking_divergence(model, readings, actions, temperature, reader.sources.mask_budget)
        else:
            signals[name] = answer_saliency(model, readings, actions, name, temperature)  # type: ignore[arg-type]
    return signals


def _hidden_distance(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    s = reading.sampled
    distance = hidden_distance(
        reading.reader.scorer, s.prompt_ids, s.completion_ids, s.action_mask, s.rewards, s.group_ids
    )
    return {"hidden_distance": distance}


def _tool_call(reading: Reading, wanted: list[str]) -> dict[str, Tensor]:
    """For a task that cannot tell tool calls from other text: every action token counts as one."""
    return {"tool_call": reading.sampled.action_mask.float()}


PROVIDERS: tuple[tuple[tuple[str, ...], Callable[[Reading, list[str]], dict[str, Tensor]]], ...] = (
    (scorer.SIGNALS, _divergence),
    (answer_logprob.SIGNALS, _answer_logprob),
    (SALIENCY, _saliency),
    (("hidden_distance",), _hidden_distance),
    (("tool_call",), _tool_call),
)
COMPUTED = frozenset(name for family, _ in PROVIDERS for name in family)
"""Every signal that a model, or no one at all, has to be asked for."""


def missing_source(name: str, sources: Sources) -> str | None:
    """What the user has to give before the signal `name` can be had; None: nothing."""
    if name in sources.knowledge.signals:
        return None
    if name in answer_logprob.SIGNALS:
        return (
            None
            if sources.answer is not None
            else "reads the reference answer after each turn: pass answer='column name'"
        )
    if name in SALIENCY:
        if sources.answer is not None or "answer_span" in sources.knowledge.signals:
            return None
        return (
            "asks what the final answer depends on: pass answer='column name', or knowledge= that marks each rollout's own "
            "answer as 'answer_span'"
        )
    known = find_signal(name)
    if name in COMPUTED or (known is not None and known.compute is not None):
        return None
    return f"needs {name!r}{how_to_get(name)}: pass knowledge=, whose `signals` and `token_signals` give it"


def compares_group(name: str) -> bool:
    """Whether the signal means something only where whole groups lie together."""
    known = SIGNALS.get(name)
    return known is not None and (
        known.scope == "group" or name in ("turn_reward", "anchor_state", *answer_logprob.SIGNALS)
    )


def answers_in_place(reading: Reading) -> list[AnswerReading | None]:
    """Where each rollout's final answer is read, None where it has none.

    With the task's "answer_span" the rollout's own answer, in its place. Else the reference answer: in place of the last
    turn, and of a rollout of one turn at its end, before the token that ended it.
    """
    reader, sampled, spans = reading.reader, reading.sampled, reading.from_task.get("answer_span")
    end, readings = reader.tokenizer.eos_token_id, list[AnswerReading | None]()
    starts = turn_starts(sampled.action_mask)
    for i, (prompt, ids) in enumerate(zip(sampled.prompt_ids, sampled.completion_ids, strict=True)):
        if spans is not None:
            marked = (spans[i] > 0).nonzero()[:, 0].tolist()
            own = Answer(ids[marked[0] : marked[-1] + 1]) if marked else None
            readings.append(None if own is None else AnswerReading(prompt, ids, marked[0], own))
            continue
        begins = starts[i].nonzero()[:, 0].tolist()
        acted = sampled.action_mask[i].nonzero()[:, 0].tolist()
        if not acted:
            readings.append(None)
            continue
        cut = begins[-1] if len(begins) > 1 else acted[-1] + (ids[acted[-1]] != end)
        readings.append(AnswerReading(prompt, ids, cut, reader.answer(sampled.rows[i], i)))
    return readings
