"""ACEBench's rules for its agent categories, as functions of plain values.

End-to-end: every attribute of every involved class is as the reference state has it. The benchmark's own comparison is
lenient: of an attribute that is an object, entries which the reference state lacks are not looked at. And a class whose name
is misspelt in the reference answer is skipped (four problems; one of them is then passed by doing nothing).

Process: the share of milestones made in order, the best of the lists a problem accepts.
"""

from __future__ import annotations

from typing import Any

from gear_rl.tasks.tools.acebench.apps import State
from gear_rl.tasks.tools.acebench.milestones import Step, matched

MISSPELT = {"ReminderAPI": "ReminderApi", "Reminderpi": "ReminderApi", "BaseAPI": "BaseApi"}


def end_to_end(state: dict[str, State], reference: dict[str, State]) -> bool:
    """The benchmark's comparison: misspelt classes of `reference` are found in no state, and so not compared."""
    return len(state) == len(reference) and all(
        _accepts(state[name].get(attribute), wanted)
        for name, attributes in reference.items()
        if name in state
        for attribute, wanted in attributes.items()
    )


def _accepts(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(key in value and value[key] == item for key, item in wanted.items())
    return value == wanted


def best_match(turns: list[Step], alternatives: list[list[Step]]) -> tuple[list[int], float]:
    """The turns that make milestones of the list that is made furthest, and the share of it they make."""
    found = [(matched(turns, steps), len(steps)) for steps in alternatives]
    turns_made, length = max(found, key=lambda pair: len(pair[0]) / max(pair[1], 1))
    return turns_made, len(turns_made) / length if length else 1.0
