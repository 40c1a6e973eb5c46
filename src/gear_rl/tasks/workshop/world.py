"""The workshop: what is true in the embedded task, and nothing about models, tokens or credit.

A repair order lists k jobs, each a *part* with a *fault*. For every (part, fault) the handbook names the one right *tool*
of eight. Using a tool on a part moves a *gauge* (0..31); which way depends on the tool, so a wrong tool leaves the gauge
wrong for good. At the end the mechanic answers a question about the gauge:

    yesno    two answers    one wrong rollout in two still answers right: **luck**, and so headroom for credit
    quarter  four answers   less luck per rollout, used with long orders
    exact    the gauge      success certifies (nearly) every decision: the no-headroom control

The handbook is arbitrary, so it can only be known by heart: 256 facts. The warm start teaches them unevenly (`doubt`),
which is what reinforcement learning is then asked to correct.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from gear_rl.errors import GearError

PARTS = "valve pump gear rotor shaft piston bearing chain clutch crank filter hinge lever nozzle pulley spring".split()
FAULTS = "leak crack rust jam bend wear noise heat slip dent chip tilt drift burn stall shake".split()
TOOLS = "weld clamp grease file drill solder polish hammer".split()
FILLERS = "well so now then next okay right hmm".split()
GAUGE = [f"g{i}" for i in range(32)]
ANSWERS: dict[str, list[str]] = {"yesno": ["yes", "no"], "quarter": ["low", "mid", "high", "top"], "exact": GAUGE}

# One fixed world: everybody's workshop has the same handbook. 2605 is a number, not a tuned seed.
_rng = random.Random(2605)
HANDBOOK = {(part, fault): _rng.choice(TOOLS) for part in PARTS for fault in FAULTS}
_TURN = {tool: 2 * i + 1 for i, tool in enumerate(TOOLS)}  # odd factors: every tool is reversible mod 32
_PUSH = {tool: push for tool, push in zip(TOOLS, _rng.sample(range(32), 8), strict=True)}
_CLASS_OF = {n: _rng.sample([i % n for i in range(32)], 32) for n in (2, 4)}  # balanced, without pattern


@dataclass(frozen=True)
class Doubt:
    """How the warm start knows one fact: the chance of the right tool, and of the decoy it is confused with."""

    right: float
    decoy_share: float
    decoy: str


def _doubts() -> dict[tuple[str, str], Doubt]:
    """60 % known, 15 % doubtful (right is the mode), 25 % *mistaken*: a decoy is the mode, so greedy fails there."""
    table = {}
    for fact, right in HANDBOOK.items():
        decoy = _rng.choice([t for t in TOOLS if t != right])
        lot = _rng.random()
        if lot < 0.60:
            table[fact] = Doubt(0.98, 0.01, decoy)
        elif lot < 0.75:
            table[fact] = Doubt(0.55, 0.30, decoy)
        else:
            table[fact] = Doubt(0.25, 0.55, decoy)
    return table


DOUBTS = _doubts()


def turn_gauge(gauge: int, tool: str, part: str) -> int:
    """The gauge after `tool` was used on `part`. A bijection of the gauge for every (tool, part)."""
    return (_TURN[tool] * gauge + _PUSH[tool] + PARTS.index(part)) % 32


def read_gauge(gauge: int, answer: str) -> str:
    """The word that answers the question of mode `answer` for this gauge."""
    words = ANSWERS[answer]
    return words[gauge] if answer == "exact" else words[_CLASS_OF[len(words)][gauge]]


@dataclass(frozen=True)
class Order:
    """One repair order: the question, the gauge at the start, and the jobs."""

    answer: str
    start: int
    jobs: tuple[tuple[str, str], ...]  # (part, fault)

    @property
    def reference_tools(self) -> list[str]:
        return [HANDBOOK[job] for job in self.jobs]

    @property
    def reference_answer(self) -> str:
        gauge = self.start
        for (part, _), tool in zip(self.jobs, self.reference_tools, strict=True):
            gauge = turn_gauge(gauge, tool, part)
        return read_gauge(gauge, self.answer)

    def text(self) -> str:
        """The order as the mechanic reads it: `yesno g5 valve leak pump rust …`."""
        return " ".join([self.answer, f"g{self.start}", *(word for job in self.jobs for word in job)])

    @staticmethod
    def parse(text: str) -> Order:
        words = text.split()
        try:
            answer, start, rest = words[0], GAUGE.index(words[1]), words[2:]
            jobs = tuple(zip(rest[0::2], rest[1::2], strict=True))
            if answer not in ANSWERS or not jobs or any(job not in HANDBOOK for job in jobs):
                raise ValueError
        except (IndexError, ValueError):
            raise GearError(
                f"workshop: {text[:80]!r} is not a repair order. One looks like 'yesno g5 valve leak pump rust'."
            ) from None
        return Order(answer, start, jobs)


def draw_order(rng: random.Random, answer: str, steps: int) -> Order:
    return Order(answer, rng.randrange(32), tuple((rng.choice(PARTS), rng.choice(FAULTS)) for _ in range(steps)))


def draw_hint(rng: random.Random, order: Order, errors: float) -> str:
    """The reference tools in order, never the answer; each is replaced by a wrong one with chance `errors`."""
    return " ".join(_wrong(rng, tool) if rng.random() < errors else tool for tool in order.reference_tools)


def biased_hint(order: Order, errors: float) -> str:
    """The same, but the share `errors` of all *facts* is wrong, in every hint and in the same way: a faulty handbook. What
    is wrong at a smaller share is wrong at a larger one too."""
    generators = [random.Random(f"bias {part} {fault}") for part, fault in order.jobs]
    return " ".join(
        _wrong(rng, tool) if rng.random() < errors else tool
        for rng, tool in zip(generators, order.reference_tools, strict=True)
    )


def _wrong(rng: random.Random, right: str) -> str:
    return rng.choice([tool for tool in TOOLS if tool != right])
