"""gear-rl: credit assignment for reinforcement learning of LLM agents.

Data flows one way: rollouts → signals (`gear_rl.scoring`) → method (`gear_rl.methods`) → credit → the engine's own loss
(`gear_rl.engines`). The public names below are loaded on first use, so that `gear --help` does not wait for torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's; the command `gear` begins here, and importing typing takes longer than the rest
__version__ = "0.1.0"

_HOME = {
    "Rollouts": "gear_rl.assignment.rollouts",
    "Credit": "gear_rl.assignment.credit",
    "credit": "gear_rl.methods",
    "METHODS": "gear_rl.methods",
    "GearError": "gear_rl.errors",
}
__all__ = ["METHODS", "Credit", "GearError", "Rollouts", "__version__", "credit"]

if TYPE_CHECKING:
    from typing import Any

    from gear_rl.assignment.credit import Credit
    from gear_rl.assignment.rollouts import Rollouts
    from gear_rl.errors import GearError
    from gear_rl.methods import METHODS, credit


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gear_rl' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
