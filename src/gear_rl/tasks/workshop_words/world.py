"""The workshop in words: what is true in it, and nothing about models, tokens or credit.

A repair order lists jobs, each a *part* with a *fault*. For every (part, fault) the handbook of a world names one *choice*:
a tool of twelve and a setting of twenty. A call moves a *gauge* (0..31) by tool, setting and part, so a wrong tool or a wrong
setting leaves it wrong. At the end the mechanic says whether the gauge reads more than 15 bar: a wrong rollout is right
about that once in two times (luck).

The 96 facts of a handbook are arbitrary, so they can only be known by heart. `knowledge` says how well the warm start
teaches each.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from gear_rl.errors import GearError

TOOLS = tuple(
    f"{family}_{kind}"
    for family, kinds in {
        "torque": "wrench driver gauge",
        "pipe": "wrench cutter clamp",
        "heat": "gun lamp press",
        "grease": "gun brush pump",
    }.items()
    for kind in kinds.split()
)
PARTS = tuple(
    f"{place} {noun}" for place in "front rear upper lower".split() for noun in "valve pump shaft filter".split()
)
FAULTS = ("leaks", "rattles", "sticks", "overheats", "slips", "drifts")
SETTINGS = range(10, 30)
GAUGE = 32
HIGH = 15
"""The question is whether the gauge ends above this."""
Fact = tuple[str, str]
"""(part, fault)."""


class Choice(NamedTuple):
    """What a job asks for."""

    tool: str
    setting: int


class Knowledge(NamedTuple):
    """How the warm start knows one fact: the chance of the right choice, and of the decoy it is confused with."""

    right: float
    decoy_share: float
    decoy: Choice


KNOWN, DOUBTFUL, MISTAKEN = (0.95, 0.03), (0.50, 0.35), (0.20, 0.60)
"""Chance of the right choice and of the decoy. Four jobs are then all right in 23 % of sampled rollouts, in 32 % greedily."""


@dataclass(frozen=True)
class World:
    """One handbook, by its number."""

    seed: int
    handbook: dict[Fact, Choice] = field(init=False, repr=False, compare=False)
    knowledge: dict[Fact, Knowledge] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rng = random.Random(f"workshop_words {self.seed}")
        handbook = {(part, fault): draw_choice(rng) for part in PARTS for fault in FAULTS}
        knowledge = {fact: _knowledge(rng, right) for fact, right in handbook.items()}
        push = dict(zip(TOOLS, rng.sample(range(GAUGE), len(TOOLS)), strict=True))
        for name, value in (("handbook", handbook), ("knowledge", knowledge), ("_push", push)):
            object.__setattr__(self, name, value)

    def after(self, gauge: int, part: str, choice: Choice) -> int:
        """The gauge after a call. A bijection of the gauge for every call, and no two settings do the same: odd factors."""
        factor = 2 * TOOLS.index(choice.tool) + 1
        push: int = self._push[choice.tool]  # type: ignore[attr-defined]
        return (factor * gauge + push + PARTS.index(part) + 5 * choice.setting) % GAUGE

    def belief(self, rng: random.Random, fact: Fact) -> Choice:
        """What a warm-started model is to choose without a hint."""
        known, lot = self.knowledge[fact], rng.random()
        if lot < known.right:
            return self.handbook[fact]
        return known.decoy if lot < known.right + known.decoy_share else wrong_choice(rng, self.handbook[fact])

    def right_answer(self, order: Order) -> str:
        gauge = order.start
        for job in order.jobs:
            gauge = self.after(gauge, job[0], self.handbook[job])
        return read_gauge(gauge)


@cache
def world(seed: int) -> World:
    return World(seed)


def _knowledge(rng: random.Random, right: Choice) -> Knowledge:
    """60 % known, 15 % doubtful (right is the first choice), 25 % *mistaken*: the decoy is, so greedy decoding fails there.
    A decoy is, equally often: the same tool with another setting, its sister tool, any other tool."""
    family = right.tool.split("_")[0]
    sisters = [tool for tool in TOOLS if tool != right.tool and tool.startswith(family)]
    tools = rng.choice([[right.tool], sisters, [tool for tool in TOOLS if not tool.startswith(family)]])
    decoy = Choice(rng.choice(tools), rng.choice([s for s in SETTINGS if s != right.setting]))
    lot = rng.random()
    return Knowledge(*(KNOWN if lot < 0.60 else DOUBTFUL if lot < 0.75 else MISTAKEN), decoy)


def draw_choice(rng: random.Random) -> Choice:
    return Choice(rng.choice(TOOLS), rng.choice(SETTINGS))


def wrong_choice(rng: random.Random, right: Choice) -> Choice:
    """Another tool and another setting."""
    return Choice(
        rng.choice([tool for tool in TOOLS if tool != right.tool]),
        rng.choice([s for s in SETTINGS if s != right.setting]),
    )


def read_gauge(gauge: int) -> str:
    return "yes" if gauge > HIGH else "no"


@dataclass(frozen=True)
class Order:
    """One repair order: the gauge at the start, and the jobs."""

    start: int
    jobs: tuple[Fact, ...]

    def request(self) -> str:
        """As the user asks."""
        jobs = " ".join(f"Job {i}: the {part} {fault}." for i, (part, fault) in enumerate(self.jobs, 1))
        return (
            f"Please repair this machine. {jobs} The gauge reads {self.start} bar now. "
            f"Does it read more than {HIGH} bar when all is done?"
        )

    def text(self) -> str:
        """For a row, read back by `parse`."""
        return json.dumps({"start": self.start, "jobs": self.jobs})

    @staticmethod
    def parse(text: str) -> Order:
        try:
            read = json.loads(text)
            start, jobs = read["start"], tuple((part, fault) for part, fault in read["jobs"])
            if start not in range(GAUGE) or not jobs or any(p not in PARTS or f not in FAULTS for p, f in jobs):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise GearError(
                f"workshop_words: {text[:80]!r} is not a repair order. One looks like "
                '{"start": 5, "jobs": [["rear valve", "leaks"]]}.'
            ) from None
        return Order(start, jobs)


def draw_order(rng: random.Random, jobs: int) -> Order:
    return Order(rng.randrange(GAUGE), tuple((rng.choice(PARTS), rng.choice(FAULTS)) for _ in range(jobs)))
