"""What a teacher is told about an order: which form of hint, how often it errs, and which facts it never shows.

    calls     weld grease hmm drill …    the tool of each job; `hmm` where the fact is hidden
    answer    answer yes                 the final answer alone
    other     clamp file …               the tools of another order: the hint is real, and of no use here

A *biased* hint is made from a faulty handbook: a share of all facts is wrong in every hint, in the same way. A *noisy* one
errs by itself. A hint made from a rollout that won is no matter of the task: `METHOD+sibling_hint` (`methods.controls`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gear_rl.tasks.workshop.world import ANSWERS, TOOLS, Fact, Order, World, draw_order

FORMS = ("calls", "answer", "other")
ERROR_KINDS = ("noise", "bias")
HIDDEN = "hmm"
"""What stands in a hint at the place of a tool that is not told: a filler, so the vocabulary stays as it is."""
ANSWER = "answer"


@dataclass(frozen=True)
class Hints:
    """How hints are made."""

    form: str = "calls"
    errors: float = 0.0
    error_kind: str = "noise"
    hidden: float = 0.0

    def draw(self, rng: random.Random, order: Order) -> str:
        """The hint of one order. `rng` is not used where nothing is left to chance."""
        if self.form == "other":
            order = draw_order(rng, order.answer, len(order.jobs), order.world)
        if self.form == "answer":
            return f"{ANSWER} {self._answer(rng, order)}"
        told = zip(self._tools(rng, order), order.jobs, strict=True)
        return " ".join(HIDDEN if is_hidden(order.world, job, self.hidden) else tool for tool, job in told)

    def _tools(self, rng: random.Random, order: Order) -> list[str]:
        if self.error_kind == "bias":
            own = [_of_fact("bias", order.world, job) for job in order.jobs]
        else:
            own = [rng] * len(order.jobs)
        return [
            _wrong(r, gold, TOOLS) if r.random() < self.errors else gold
            for r, gold in zip(own, order.reference_tools, strict=True)
        ]

    def _answer(self, rng: random.Random, order: Order) -> str:
        """Bias: what follows from the faulty handbook, which may be right by luck. Noise: wrong with chance `errors`."""
        if self.error_kind == "bias":
            return order.answer_after(self._tools(rng, order))
        gold = order.reference_answer
        return _wrong(rng, gold, ANSWERS[order.answer]) if rng.random() < self.errors else gold


def is_hidden(world: World, fact: Fact, share: float) -> bool:
    """Whether hints never show this fact, when they hide `share` of all."""
    return _of_fact("hidden", world, fact).random() < share


def _of_fact(what: str, world: World, fact: Fact) -> random.Random:
    """The same numbers for the same fact, always. What is wrong (hidden) at a smaller share is so at a larger one too."""
    of_world = f" {world.number}" if world.number else ""
    return random.Random(" ".join([f"{what}{of_world}", *fact]))


def _wrong(rng: random.Random, gold: str, among: Sequence[str]) -> str:
    return rng.choice([word for word in among if word != gold])
