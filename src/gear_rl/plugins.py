"""What installed packages add by entry points: methods, signals, tasks and engines.

[project.entry-points."gear_rl.methods"]
my_method = "my_package:MyMethod"
"""

from __future__ import annotations

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from gear_rl.errors import GearError


def found(kind: str, taken: Container[str]) -> dict[str, EntryPoint]:
    """The entry points of the group "gear_rl.KINDs" by name. `taken`: names of ours, which nobody may take again."""
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"gear_rl.{kind}s"):
        if entry.name in taken or entry.name in by_name:
            raise GearError(f"entry point {entry.value!r} registers the {kind} {entry.name!r}, but that name is taken.")
        by_name[entry.name] = entry
    return by_name


def load(kind: str, entry: EntryPoint) -> Any:
    """What the entry point names. Whatever goes wrong in somebody else's package is an error that names it."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise GearError(f"{kind} {entry.name!r} could not be loaded from {entry.value!r}: {error!r}") from error
