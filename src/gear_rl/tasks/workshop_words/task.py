"""The workshop in words as a `Task`: rows, hints of chosen form and quality, demonstrations for the warm start."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.errors import unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Demonstration, Row, Task, Transcript, Verdict
from gear_rl.tasks.workshop_words.judging import WordsEpisode, judge
from gear_rl.tasks.workshop_words.language import (
    ANSWER,
    SYSTEM,
    Call,
    read_calls,
    write_hint,
    write_turn,
)
from gear_rl.tasks.workshop_words.world import Choice, Order, draw_choice, draw_order, read_gauge, world, wrong_choice

HINT_ERROR_KINDS = ("noise", "bias", "other")


@dataclass
class WorkshopWords(Task):
    """Repair orders in English: for each job a sentence and a tool call, then yes or no."""

    name: ClassVar[str] = "workshop_words"
    summary: ClassVar[str] = "the workshop in plain English: calls of many tokens, every wrong one labelled (generated)"
    hint_forms: ClassVar[tuple[str, ...]] = ("calls", "answer")
    answer_prefix = ANSWER

    jobs: int = option(4, at_least=1, at_most=9)
    """Jobs per order."""
    world: int = option(0, at_least=0)
    """Which handbook. A model is warm-started on one, and knows nothing of the others."""
    hint: str = option("calls", choices=hint_forms)
    """calls: the right calls with their arguments, never the answer. answer: the right answer alone."""
    hint_errors: float = option(0.0, at_least=0, at_most=1)
    """Share of wrong calls (or answers) in the hints."""
    hint_error_kind: str = option("noise", choices=HINT_ERROR_KINDS)
    """noise: every hint errs by itself. bias: the same facts are wrong in all hints, as in a faulty answer key. other: the
    whole hint is another order's."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.hint_template = DEFAULT_TEMPLATE
        self.max_turns = self.jobs + 1
        self.max_turn_tokens = 96
        self.judge_knows_decisions = True
        self._world = world(self.world)

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in ("train", "test"):
            raise unknown_name("split", split, ("train", "test"))
        rng = random.Random(f"{split}-{seed}-{self.world}-{self.jobs}")
        hint_rng = random.Random(f"hint-{split}-{seed}")  # its own stream: hint quality must not change the orders
        numbers = range(1000 if count is None else count)
        return [self._row(draw_order(rng, self.jobs), hint_rng, f"{split}-{seed}-{i}") for i in numbers]

    def _row(self, order: Order, rng: random.Random, id: str) -> Row:
        return {
            "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": order.request()}],
            "order": order.text(),
            "hint": self._hint(order, rng),
            "answer": f" {self._world.right_answer(order)}",  # as it follows `answer_prefix`, space included
            "id": id,
        }

    def _hint(self, order: Order, rng: random.Random) -> str:
        if self.hint_error_kind == "other" and rng.random() < self.hint_errors:
            order, errors = draw_order(rng, self.jobs), 0.0
        else:
            errors = 0.0 if self.hint_error_kind == "other" else self.hint_errors
        if self.hint == "answer":
            answer = self._world.right_answer(order)
            key = random.Random(f"bias {order.text()}") if self.hint_error_kind == "bias" else rng
            return f"{ANSWER} {answer if key.random() >= errors else {'yes': 'no', 'no': 'yes'}[answer]}"
        return write_hint([Call(job[0], self._hinted_choice(job, rng, errors)) for job in order.jobs])

    def _hinted_choice(self, job: tuple[str, str], rng: random.Random, errors: float) -> Choice:
        """`bias`: by the fact alone. What is wrong at a smaller share is wrong at a larger one too, in the same way."""
        right = self._world.handbook[job]
        key = random.Random(f"bias {self.world} {job}") if self.hint_error_kind == "bias" else rng
        return wrong_choice(key, right) if key.random() < errors else right

    def episode(self, row: Row) -> WordsEpisode:
        return WordsEpisode(self._world, Order.parse(row["order"]))

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        return judge(self._world, Order.parse(row["order"]), transcript)

    def as_hint(self, completion: str) -> str:
        """A rollout retold as hints are written: its calls."""
        return write_hint(read_calls(completion))

    def reference(self, row: Row) -> list[str]:
        order = Order.parse(row["order"])
        return self._turns(random.Random(row["order"]), order, [self._world.handbook[job] for job in order.jobs])

    def demonstration(self, row: Row, rng: random.Random, hinted: bool) -> Demonstration:
        """Without a hint: choices as well as they are meant to be known (`world.knowledge`). With one: the hinted choices. A
        third of these hints are random, and followed just the same: else the model would learn that a hint means to be
        careful, and not to read it. The answer is always read off the gauge as it stands."""
        order = Order.parse(row["order"])
        if not hinted:
            return Demonstration("", self._turns(rng, order, [self._world.belief(rng, job) for job in order.jobs]))
        random_hint = rng.random() < 1 / 3
        choices = [draw_choice(rng) if random_hint else self._world.handbook[job] for job in order.jobs]
        calls = [Call(job[0], choice) for job, choice in zip(order.jobs, choices, strict=True)]
        return Demonstration(write_hint(calls), self._turns(rng, order, choices))

    def _turns(self, rng: random.Random, order: Order, choices: list[Choice]) -> list[str]:
        gauge, turns = order.start, []
        for job, choice in zip(order.jobs, choices, strict=True):
            turns.append(write_turn(rng, job, choice))
            gauge = self._world.after(gauge, job[0], choice)
        return [*turns, f"{ANSWER} {read_gauge(gauge)}"]
