"""Berkeley Function Calling Leaderboard v3: its data, and its official checker, which runs in a process of its own.

Nothing outside this package imports `bfcl_eval`."""

from gear_rl.tasks.tools.bfcl.task import Bfcl

__all__ = ["Bfcl"]
