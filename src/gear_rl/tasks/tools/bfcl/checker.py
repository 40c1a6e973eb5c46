"""The official checker in its sandbox (`official.py`). Every request is answered by a fork that has seen no other rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gear_rl.tasks.workers.client import Workers

SCRIPT = Path(__file__).with_name("official.py")
MEMORY = 2 * 2**30
HOW_TO_INSTALL = (
    "BFCL is judged by its official checker: pip install --no-deps bfcl-eval==2025.8.6 mpmath==1.3.0 "
    "(its other requirements are for running vendors' models, and newer versions no longer judge v3)."
)


class OfficialChecker(Workers):
    """Requests to `official.py`. `eval` is not limited there: it gets nothing but known names and literals (`calls.py`)."""

    def __init__(self, seconds: float = 10.0, memory: int = MEMORY) -> None:
        super().__init__(
            SCRIPT, memory=memory, guarded=False, what="the BFCL checker's process", install=HOW_TO_INSTALL
        )
        self.seconds = seconds

    def check(self, **request: Any) -> dict[str, Any]:
        return self.ask(self.seconds, request, judging=request["kind"] != "step")
