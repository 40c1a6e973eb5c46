"""Synthetic transcripts of a world of the workshop, for the warm start of its model (`training.embedded_model`).

Half without a hint, half with one:

- without a hint the mechanic picks tools as well as the warm start is meant to know them (`World.doubts`): mostly right on
  60 % of the facts, doubtful on 15 %, mistaken on 25 %;
- with a hint of form calls it uses the hinted tools. A third of those hints are random, and followed just the same. Without
  them the model would learn "a hint means: be careful" instead of reading it, and a wrong-hint control would show nothing;
- in a third of those hints some places are hidden (`hmm`). There it picks a tool as without a hint;
- with a hint of form answer it picks all tools as without a hint, and gives the hinted answer, right or wrong.

World 0 was made before the last two. Otherwise the answer is read off the gauge as it stands, whatever was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gear_rl.tasks.workshop import hints
from gear_rl.tasks.workshop import world as w
from gear_rl.tasks.workshop.tokenizer import ANSWER, BOT, END, HINT, PAD, USER, VOCABULARY

ID = {word: i for i, word in enumerate(VOCABULARY)}
TOOL_IDS, PART_IDS, FAULT_IDS, FILLER_IDS, GAUGE_IDS = (
    np.array([ID[word] for word in words]) for words in (w.TOOLS, w.PARTS, w.FAULTS, w.FILLERS, w.GAUGE)
)
MODES = list(w.ANSWERS)
ANSWER_IDS = [np.array([ID[word] for word in w.ANSWERS[mode]]) for mode in MODES]
RIGHT, HIDING, MOST_HIDDEN = 2 / 3, 1 / 3, 0.6
"""Share of hints that are right; of hints with hidden places; and the largest share of a hint that is hidden."""


@dataclass(frozen=True)
class Batch:
    """Transcripts of several forms of hint, padded on the right to one length."""

    ids: np.ndarray
    """(rows, T)"""
    weights: np.ndarray
    """(rows, T): 0 on what the policy does not say, 4 on the answer, else 1."""
    names: list[str]
    """The forms; `parts` are their rows, and `shares` what each counts in the loss (plain counts 1)."""
    parts: list[slice]
    shares: list[float]


class Transcripts:
    """Draws transcripts of one world."""

    def __init__(self, world: w.World) -> None:
        self.world = world
        self.answer_id = np.array(
            [[ID[world.read_gauge(g, mode)] for g in range(32)] for mode in MODES]
        )  # (mode, gauge)
        self.next = np.array(
            [[[world.turn_gauge(g, tool, part) for part in w.PARTS] for tool in w.TOOLS] for g in range(32)]
        )  # (gauge, tool, part)
        self.gold = np.array([[w.TOOLS.index(world.handbook[p, f]) for f in w.FAULTS] for p in w.PARTS])
        chances = np.zeros((16, 16, 8))  # (part, fault, tool): how the warm start is meant to choose
        for i, part in enumerate(w.PARTS):
            for j, fault in enumerate(w.FAULTS):
                doubt = world.doubts[part, fault]
                chances[i, j] = (1 - doubt.right - doubt.decoy_share) / 6
                chances[i, j, self.gold[i, j]] = doubt.right
                chances[i, j, w.TOOLS.index(doubt.decoy)] = doubt.decoy_share
        self.up_to = chances.cumsum(-1)
        self.forms = (
            {"plain": 1.0, "calls": 1.0} if world.number == 0 else {"plain": 1.0, "calls": 0.75, "answer": 0.25}
        )

    def batch(self, rng: np.random.Generator, rows: int, steps: int) -> Batch:
        """`rows` transcripts of orders with `steps` jobs, half of them without a hint."""
        counts = [max(1, round(share * rows / 2)) for share in self.forms.values()]
        made = [self.draw(rng, count, steps, form) for form, count in zip(self.forms, counts, strict=True)]
        longest = max(ids.shape[1] for ids, _ in made)
        ids = np.concatenate([_padded(ids, longest, ID[PAD]) for ids, _ in made])
        weights = np.concatenate([_padded(weights, longest, 0.0) for _, weights in made])
        ends = np.cumsum([0, *counts]).tolist()
        parts = [slice(start, end) for start, end in pairwise(ends)]
        return Batch(ids, weights.astype(np.float32), list(self.forms), parts, list(self.forms.values()))

    def draw(self, rng: np.random.Generator, rows: int, steps: int, form: str) -> tuple[np.ndarray, np.ndarray]:
        """ids (rows, T) and loss weights (rows, T), all with the same `form` of hint: plain (none), calls or answer."""
        mode = rng.integers(len(MODES), size=rows)
        gauge = rng.integers(32, size=rows)
        part, fault = rng.integers(16, size=(2, rows, steps))
        tool = hint = self.gold[part, fault]
        if form == "calls":
            wrong = rng.random(rows)[:, None] < 1 - RIGHT
            tool = hint = np.where(wrong, rng.integers(8, size=(rows, steps)), hint)
        hidden = np.zeros((rows, steps), bool)
        if self.world.number and form == "calls":
            share = np.where(rng.random(rows) < HIDING, rng.random(rows) * MOST_HIDDEN, 0.0)
            hidden = rng.random((rows, steps)) < share[:, None]
        if form != "calls" or hidden.any():
            known = (rng.random((rows, steps, 1)) > self.up_to[part, fault]).sum(-1).clip(0, 7)
            tool = known if form != "calls" else np.where(hidden, known, hint)

        columns: list[np.ndarray] = []
        weights: list[float] = []

        def say(ids: np.ndarray | int, weight: float) -> None:
            columns.append(np.broadcast_to(ids, rows))
            weights.append(weight)

        say(ID[USER], 0)
        say(np.array([ID[m] for m in MODES])[mode], 0)
        say(GAUGE_IDS[gauge], 0)
        for i in range(steps):
            say(PART_IDS[part[:, i]], 0)
            say(FAULT_IDS[fault[:, i]], 0)
        told = self._answers_told(rng, mode, gauge, part, self.gold[part, fault]) if form == "answer" else None
        if form != "plain":
            say(ID[HINT], 0)
        if told is not None:
            say(ID[ANSWER], 0)
            say(told, 0)
        for i in range(steps if form == "calls" else 0):
            say(np.where(hidden[:, i], ID[hints.HIDDEN], TOOL_IDS[hint[:, i]]), 0)
        say(ID[END], 0)
        say(ID[BOT], 0)
        for i in range(steps):
            say(FILLER_IDS[rng.integers(8, size=rows)], 1)
            say(TOOL_IDS[tool[:, i]], 1)
            say(PART_IDS[part[:, i]], 1)
            say(ID[END], 1)
            gauge = self.next[gauge, tool[:, i], part[:, i]]
            say(GAUGE_IDS[gauge], 0)
            say(ID[BOT], 0)
        say(ID[ANSWER], 1)
        say(self.answer_id[mode, gauge] if told is None else told, 4)
        say(ID[END], 1)
        return np.stack(columns, 1), np.broadcast_to(np.array(weights), (rows, len(weights)))

    def _answers_told(
        self, rng: np.random.Generator, mode: np.ndarray, gauge: np.ndarray, part: np.ndarray, gold: np.ndarray
    ) -> np.ndarray:
        """Token ids (rows,): the right answer of each order, or, in a third, any answer to its question."""
        for i in range(part.shape[1]):
            gauge = self.next[gauge, gold[:, i], part[:, i]]
        lots = rng.random(len(mode))
        any_answer = np.array([ANSWER_IDS[m][int(lot * len(ANSWER_IDS[m]))] for m, lot in zip(mode, lots, strict=True)])
        return np.where(rng.random(len(mode)) < RIGHT, self.answer_id[mode, gauge], any_answer)


def _padded(array: np.ndarray, length: int, value: float) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=value)
