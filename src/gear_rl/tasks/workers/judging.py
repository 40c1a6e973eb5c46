"""Scores of answers by math-verify and by reasoning-gym's verifiers, each answer in a process of its own (`sandbox`)."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.tasks.workers.client import Workers
from gear_rl.tasks.workers.process import Trouble

SECONDS = 5.0
"""Per answer. math-verify takes about 3 ms on an ordinary one."""
SCRIPT = Path(__file__).with_name("judging_worker.py")
NEEDS = {"math": ("math_verify", "'gear-rl[math]'"), "reasoning_gym": ("reasoning_gym", "reasoning-gym==0.1.25")}
"""Kind → the module that judges, and what to install for it."""


class Judge(Workers):
    """`processes` workers of one kind ("math", "reasoning_gym"). None: one for each core, at most 4."""

    def __init__(self, kind: str, processes: int | None = None, seconds: float = SECONDS) -> None:
        module, package = NEEDS[kind]
        install = f"{module.replace('_', '-')} is not installed: pip install {package}."
        if find_spec(module) is None:  # said now, and not when the first answer has been sampled
            raise GearError(install)
        what = f"the process that judges answers ({kind})"
        processes = processes or min(4, os.cpu_count() or 1)
        super().__init__(SCRIPT, (kind,), processes=processes, what=what, install=install)
        self.seconds = seconds

    def score(self, **request: Any) -> float:
        """What the verifier says of an answer, 0 to 1; 0 for one that could not be judged."""
        try:
            score = self.ask(self.seconds, request).get("score")
        except Trouble:
            return 0.0
        return float(score) if isinstance(score, (int, float)) and math.isfinite(score) and 0 <= score <= 1 else 0.0

    def find(self, text: str) -> str:
        """What math-verify takes for the answer in a text; empty if nothing is."""
        try:
            found = self.ask(self.seconds, {"text": text}).get("found")
        except Trouble:
            return ""
        return found if isinstance(found, str) else ""
