"""The workshop with an environment and a judge that misbehave as the file fault.json says: {"place", "act", "after"}.

Without the file it is the workshop. So a run can be disturbed, the cause removed, and the run resumed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from gear_rl.tasks.base import Verdict
from gear_rl.tasks.workshop.environment import WorkshopEpisode, order_of
from gear_rl.tasks.workshop.task import Workshop

PLACES = ("rows", "episode", "reply", "judge")
ACTS = {
    "raises ValueError": "refuse", "raises KeyError": "refuse", "raises MemoryError": "refuse", "exits": "refuse",
    "returns None": "refuse", "returns a number": "refuse", "returns a list of lists": "refuse",
    "returns a lone surrogate": "any", "returns ten million characters": "any",
    "sleeps": "any", "kills the process": "killed", "is interrupted": "killed",
}  # fmt: skip
"""What it does, and how a command may end that meets it."""
LIES = ("returns a lone surrogate", "returns ten million characters")
"""Replies that are allowed: what was evaluated with them is a result, and stays one when the run is continued."""
_calls = 0


def _misbehave(place: str) -> Any:
    """What to return instead; None: behave."""
    global _calls
    file = Path("fault.json")
    if not file.exists():
        return None
    fault = json.loads(file.read_text())
    if fault["place"] != place:
        return None
    _calls += 1
    if _calls <= fault["after"]:
        return None
    act = fault["act"]
    if act.startswith("raises"):
        raise {"ValueError": ValueError, "KeyError": KeyError, "MemoryError": MemoryError}[act.split()[1]]("chaos")
    if act == "exits":
        raise SystemExit(3)
    if act == "sleeps":
        time.sleep(3600)
    if act == "kills the process":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "is interrupted":
        raise KeyboardInterrupt
    return {
        "returns None": [None], "returns a number": [7], "returns a list of lists": [[[1], [2]]],
        "returns a lone surrogate": ["g1 \udcff"], "returns ten million characters": ["g1 " * 3_300_000],
    }[act]  # fmt: skip


class _Episode(WorkshopEpisode):
    def reply(self, turn: str) -> Any:
        instead = _misbehave("reply")
        usual = super().reply(turn)
        return usual if instead is None else instead[0]


class Hostile(Workshop):
    """The workshop, disturbed."""

    name = "hostile"
    time_limit = 10.0

    def rows(self, split: str, count: int | None, seed: int = 0) -> Any:
        instead = _misbehave("rows")
        return super().rows(split, count, seed) if instead is None else instead[0]

    def episode(self, row: Any) -> Any:
        instead = _misbehave("episode")
        return _Episode(order_of(row)) if instead is None else instead[0]

    def judge(self, row: Any, completion: str) -> Any:
        instead = _misbehave("judge")
        usual: Verdict = super().judge(row, completion)
        return usual if instead is None else instead[0]
