"""Which lines of gear_rl were never run before: each costs once (`sys.monitoring`, Python 3.12), so guiding is nearly free."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType
from typing import Any

import gear_rl

_TOP = str(Path(gear_rl.__file__).parent)


class NewLines:
    """`count` grows with every line of gear_rl that runs for the first time in this process. Stays 0 before Python 3.12."""

    def __init__(self) -> None:
        self.count = 0
        monitoring: Any = getattr(sys, "monitoring", None)
        self.guided = monitoring is not None
        if monitoring is None:
            return
        tool, lines = monitoring.COVERAGE_ID, monitoring.events.LINE

        def seen(code: CodeType, line: int) -> Any:
            self.count += code.co_filename.startswith(_TOP)
            return monitoring.DISABLE

        monitoring.use_tool_id(tool, "gear-fuzz")
        monitoring.register_callback(tool, lines, seen)
        monitoring.set_events(tool, lines)
