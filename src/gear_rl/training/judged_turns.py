"""The signal "judged_turn": a prompted model is asked which turn decided each rollout."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from gear_rl.assignment.outcomes import sides
from gear_rl.chat.endpoint import Endpoint
from gear_rl.chat.messages import Message
from gear_rl.chat.turn_judge import Told, named_turn, question
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.sampling.answers import Answers, by_endpoint
from gear_rl.sampling.rewind import Span, turns_of
from gear_rl.signals.from_verdicts import VerdictKnowledge, at_turns, signal_of
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row, Task

JUDGED_TURN = "judged_turn"
SECONDS = 120.0
"""For one answer of an endpoint."""
Ask = Callable[[list[list[Message]]], Answers]
log = logging.getLogger("gear_rl")


def endpoint_judge(url: str, model: str, most: int) -> Ask:
    """The judge at an OpenAI-compatible endpoint. The key is read from OPENAI_API_KEY, if it is set."""
    if not model:
        raise GearError(f"the judge at {url} needs the model's name there: --set train.judge_model=NAME.")
    named = ("train.judge", "the environment variable OPENAI_API_KEY", "train.judge_model")
    endpoint = Endpoint(url, model, os.environ.get("OPENAI_API_KEY") or None, timeout=SECONDS, named=named)
    endpoint.greet()
    return partial(by_endpoint, endpoint, most=most)


class JudgedTurns(VerdictKnowledge):
    """What verdicts know, and the turn that the judge names in each rollout. Rollouts of one turn are not asked about, nor
    those that ended like the mean of their group: there is nothing to redistribute."""

    def __init__(self, task: Task, row: Row, method: Method, tokenizer: Any, ask: Ask) -> None:
        super().__init__(task, row, method, tokenizer)
        self._from_verdicts = self.signals
        self.signals = self.signals | {JUDGED_TURN}
        self._ask, self._said = ask, False

    def token_signals(self, sampled: Sampled) -> dict[str, list[list[float]]]:
        known = {name: signal_of(name, sampled) for name in sorted(self._from_verdicts)}
        return known | {JUDGED_TURN: self._judged(sampled)}

    def _judged(self, sampled: Sampled) -> list[list[float]]:
        """For each rollout 1 on the tokens of the named turn, 0 elsewhere."""
        masks = [
            row[: len(ids)].int().tolist() for row, ids in zip(sampled.action_mask, sampled.completion_ids, strict=True)
        ]
        spans = [turns_of(mask) for mask in masks]
        won, lost = (flags.tolist() for flags in sides(sampled.rewards, sampled.group_ids))
        asked = [i for i in range(len(sampled)) if len(spans[i]) > 1 and (won[i] or lost[i])]
        questions = [
            question(sampled.prompts[i], self._told(sampled.completion_ids[i], spans[i]), won[i]) for i in asked
        ]
        named: dict[int, int] = {}
        for i, answer in zip(asked, self._ask(questions) if questions else [], strict=True):
            turn = None if answer is None else named_turn(answer, len(spans[i]))
            if turn is not None:
                named[i] = turn
        self._count(len(asked), len(asked) - len(named))
        return [
            at_turns(mask, [float(named.get(i) == k) for k in range(len(spans[i]))], last_only=False)
            for i, mask in enumerate(masks)
        ]

    def _told(self, ids: list[int], spans: list[Span]) -> list[Told]:
        ends = [span.start for span in spans[1:]] + [len(ids)]
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        return [Told(decode(ids[a:b]), decode(ids[b:end])) for (a, b), end in zip(spans, ends, strict=True)]

    def _count(self, asked: int, unreadable: int) -> None:
        self.metrics = {"judge/asked": float(asked), "judge/unreadable": float(unreadable)}
        if unreadable and not self._said:
            log.warning(
                "the judge was asked about %d rollouts of this batch, and %d answers name no turn: those keep GRPO's credit. "
                "Later batches: judge/unreadable in the metrics.", asked, unreadable,
            )  # fmt: skip
            self._said = True
