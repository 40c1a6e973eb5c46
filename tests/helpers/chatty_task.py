"""A task whose environment answers each turn with a random number of words, so that rollouts are out of step."""

from __future__ import annotations

import random
from types import SimpleNamespace

from gear_rl.tasks.base import Task, Verdict
from gear_rl.tasks.workshop.world import GAUGE


class Chatty(Task):
    """Which words, 1 to `longest` of them, depends on the row and on the number of the turn only."""

    name, summary = "chatty", ""

    def __init__(self, max_turns, max_turn_tokens, longest):
        self.max_turns, self.max_turn_tokens, self.longest = max_turns, max_turn_tokens, longest

    def rows(self, split, count, seed=0):
        return [{"prompt": [{"role": "user", "content": GAUGE[i]}], "hint": "", "id": str(i)} for i in range(count)]

    def episode(self, row):
        rng = random.Random(row["id"])
        return SimpleNamespace(reply=lambda turn: " ".join(rng.choices(GAUGE, k=rng.randint(1, self.longest))))

    def judge(self, row, completion):
        return Verdict(0.0, False)
