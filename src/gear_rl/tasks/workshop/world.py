"""The workshop: what is true in the embedded task, and nothing about models, tokens or credit.

A repair order lists k jobs, each a *part* with a *fault*. For every (part, fault) the handbook names the one right *tool*
of eight. Using a tool on a part moves a *gauge* (0..31); which way depends on the tool, so a wrong tool leaves the gauge
wrong for good. At the end the mechanic answers a question about the gauge:

    yesno    two answers    one wrong rollout in two still answers right: **luck**, and so headroom for credit
    quarter  four answers   less luck per rollout, used with long orders
    exact    the gauge      success certifies (nearly) every decision

The handbook is arbitrary, so it can only be known by heart: 256 facts. The warm start teaches them unevenly (`doubt`),
which is what reinforcement learning is then asked to correct.

There are several worlds (`world(0)` … `world(6)`), each with a handbook, doubts and gauge maps of its own, drawn alike. A
result that holds in one world may be a peculiarity of its handbook; one that holds in several is not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from gear_rl.errors import GearError

PARTS = "valve pump gear rotor shaft piston bearing chain clutch crank filter hinge lever nozzle pulley spring".split()
FAULTS = "leak crack rust jam bend wear noise heat slip dent chip tilt drift burn stall shake".split()
TOOLS = "weld clamp grease file drill solder polish hammer".split()
FILLERS = "well so now then next okay right hmm".split()
GAUGE = [f"g{i}" for i in range(32)]
ANSWERS: dict[str, list[str]] = {"yesno": ["yes", "no"], "quarter": ["low", "mid", "high", "top"], "exact": GAUGE}
WORLDS = tuple(range(7))
Fact = tuple[str, str]
"""A part and its fault."""
_FACTS = [(part, fault) for part in PARTS for fault in FAULTS]
_TURN = {tool: 2 * i + 1 for i, tool in enumerate(TOOLS)}  # odd factors: every tool is reversible mod 32


@dataclass(frozen=True)
class Doubt:
    """How the warm start knows one fact: the chance of the right tool, and of the decoy it is confused with."""

    right: float
    decoy_share: float
    decoy: str


class World:
    """One handbook, how well the warm start knows it, and how the gauge moves and reads. From `world(number)`."""

    def __init__(self, number: int) -> None:
        self.number = number
        rng = random.Random(2605 if number == 0 else f"workshop {number}")  # numbers, not tuned seeds
        self.handbook = {fact: rng.choice(TOOLS) for fact in _FACTS}
        self._push = dict(zip(TOOLS, rng.sample(range(32), 8), strict=True))
        self._class_of = {n: rng.sample([i % n for i in range(32)], 32) for n in (2, 4)}  # balanced, without pattern
        self.doubts = {fact: _doubt(rng, right) for fact, right in self.handbook.items()}

    def turn_gauge(self, gauge: int, tool: str, part: str) -> int:
        """The gauge after `tool` was used on `part`. A bijection of the gauge for every (tool, part)."""
        return (_TURN[tool] * gauge + self._push[tool] + PARTS.index(part)) % 32

    def read_gauge(self, gauge: int, answer: str) -> str:
        """The word that answers the question of mode `answer` for this gauge."""
        words = ANSWERS[answer]
        return words[gauge] if answer == "exact" else words[self._class_of[len(words)][gauge]]


@cache
def world(number: int) -> World:
    if number not in WORLDS:
        raise GearError(f"workshop: there is no world {number!r}; there are {WORLDS[0]} to {WORLDS[-1]}.")
    return World(number)


def _doubt(rng: random.Random, right: str) -> Doubt:
    """60 % known, 15 % doubtful (right is the mode), 25 % *mistaken*: a decoy is the mode, so greedy fails there."""
    decoy = rng.choice([t for t in TOOLS if t != right])
    lot = rng.random()
    if lot < 0.60:
        return Doubt(0.98, 0.01, decoy)
    return Doubt(0.55, 0.30, decoy) if lot < 0.75 else Doubt(0.25, 0.55, decoy)


@dataclass(frozen=True)
class Order:
    """One repair order: the question, the gauge at the start, the jobs, and the world it is from."""

    answer: str
    start: int
    jobs: tuple[Fact, ...]
    world: World

    @property
    def reference_tools(self) -> list[str]:
        return [self.world.handbook[job] for job in self.jobs]

    @property
    def reference_answer(self) -> str:
        return self.answer_after(self.reference_tools)

    def answer_after(self, tools: list[str]) -> str:
        """The right answer if these tools were used, one a job."""
        gauge = self.start
        for (part, _), tool in zip(self.jobs, tools, strict=True):
            gauge = self.world.turn_gauge(gauge, tool, part)
        return self.world.read_gauge(gauge, self.answer)

    def text(self) -> str:
        """The order as the mechanic reads it: `yesno g5 valve leak pump rust …`. It does not name its world."""
        return " ".join([self.answer, f"g{self.start}", *(word for job in self.jobs for word in job)])

    @staticmethod
    def parse(text: str, number: int = 0) -> Order:
        """`text` as an order of world `number`."""
        words = text.split()
        try:
            answer, start, rest = words[0], GAUGE.index(words[1]), words[2:]
            jobs = tuple(zip(rest[0::2], rest[1::2], strict=True))
            if answer not in ANSWERS or not jobs or any(job not in world(number).handbook for job in jobs):
                raise ValueError
        except (IndexError, ValueError):
            raise GearError(
                f"workshop: {text[:80]!r} is not a repair order. One looks like 'yesno g5 valve leak pump rust'."
            ) from None
        return Order(answer, start, jobs, world(number))


def draw_order(rng: random.Random, answer: str, steps: int, of: World) -> Order:
    jobs = (rng.randrange(32), tuple((rng.choice(PARTS), rng.choice(FAULTS)) for _ in range(steps)))
    return Order(answer, *jobs, of)
