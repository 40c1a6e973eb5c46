"""Which runs may stand on one page: those of one task that saw the same problems in the same places."""

from __future__ import annotations

import hashlib
from typing import Any

from gear_rl.errors import GearError, printable
from gear_rl.report.sources import Source

Key = tuple[int, int]
"""Step and group."""


def refuse_different_tasks(sources: list[Source]) -> None:
    """What headers and configurations tell, before any rollout is read."""
    first = sources[0]
    for other in sources[1:]:
        if other.task != first.task:
            raise _refusal(first, other, f"tasks {first.task!r} and {other.task!r}")
        ours, theirs = _task_options(first), _task_options(other)
        if ours is not None and theirs is not None and ours != theirs:
            name = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
            found = f"{_brief(ours.get(name))} and {_brief(theirs.get(name))}"
            raise _refusal(first, other, f"task option {name!r}: {found}")


class SameProblems:
    """Every run must have the first one's prompts wherever both recorded the same step and group. Most groups have one."""

    def __init__(self, first: Source) -> None:
        self.first = first
        self._prompts: dict[Key, set[bytes]] = {}
        self._excerpts: dict[Key, str] = {}

    def remember(self, key: Key, prompt: str) -> None:
        self._prompts.setdefault(key, set()).add(_digest(prompt))
        self._excerpts.setdefault(key, prompt[:200])

    def check(self, other: Source, key: Key, prompt: str) -> bool:
        """Whether the first run has `key`; it must then have the prompt, too."""
        if key not in self._prompts:
            return False
        if _digest(prompt) not in self._prompts[key]:
            ours, theirs = _where_they_part(self._excerpts[key], prompt[:200])
            where = f"data: step {key[0]}, group {key[1]} begins “{ours}” in one and “{theirs}” in the other"
            seeds = [source.config.get("seed") if source.config else None for source in (self.first, other)]
            if seeds[0] != seeds[1] and None not in seeds:
                where += f" (seeds {seeds[0]} and {seeds[1]})"
            raise _refusal(self.first, other, where)
        return True

    def refuse_without_overlap(self, other: Source, shared: int) -> None:
        if not shared:
            raise _refusal(self.first, other, "recorded steps: no step and group is in both")


def _refusal(first: Source, other: Source, difference: str) -> GearError:
    return GearError(f"{first.path} and {other.path} cannot be compared. They differ in their {difference}.")


def _task_options(source: Source) -> dict[str, Any] | None:
    task = source.config.get("task") if source.config else None
    return task if isinstance(task, dict) else None


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _where_they_part(ours: str, theirs: str) -> tuple[str, str]:
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    start = max(0, same - 10)
    return _brief(ours[start:]), _brief(theirs[start:])


def _brief(value: Any) -> str:
    """For an error message: short, and without what could steer a terminal."""
    text = printable(str(value))
    return text if len(text) <= 40 else text[:39] + "…"
