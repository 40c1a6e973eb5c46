"""Berkeley Function Calling Leaderboard v3."""

from gear_rl.tasks.tools.bfcl.task import Bfcl

__all__ = ["Bfcl"]
