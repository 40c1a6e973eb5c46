"""`gear` as a test launches it in several processes: FSDP2 on a CPU if asked for, and with DIE=RANK:STEP one process is
killed (SIGKILL) after that step."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cpu_shards

cpu_shards.unlock()


def kill_after(rank: int, step: int) -> None:
    from gear_rl.training.run_callback import RunCallback

    def on_step_begin(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step and int(os.environ.get("RANK", 0)) == rank:
            os.kill(os.getpid(), signal.SIGKILL)

    RunCallback.on_step_begin = on_step_begin


if "DIE" in os.environ:
    kill_after(*map(int, os.environ["DIE"].split(":")))

from gear_rl.cli.main import main

sys.exit(main())
