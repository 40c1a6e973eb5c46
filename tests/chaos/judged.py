"""What came of a fault: one word, and what was seen.

    exact      continued, and the result is the one of an undisturbed run
    survived   ended well where exactness is not promised: another batch size, an environment that said something else
    refused    exit code 2 and one line; nothing that was there before is lost
"""

from __future__ import annotations

from pathlib import Path

from gear_child import Ended
from scenes import Scene, Stage

GOOD = ("exact", "survived", "refused")
Result = tuple[str, str]
"""One word, and what was seen."""


def judged(stage: Stage, scene: Scene, home: Path, ended: Ended, may_differ: bool = False) -> Result:
    """After a fault: what the command itself did, then whether it can be continued to the same end."""
    if ended.problem:
        return ended.problem, f"{ended.last_line} {ended.orphans or ''}"
    if ended.code not in (0, 2, 130) and not (ended.code or 0) < 0:
        return "exit code", f"{ended.code}: {ended.last_line}"
    if ended.code == 2 and not ended.refused:
        return "no message", ended.last_line
    said = ended
    if ended.code != 0:
        said = stage.go_on(scene, home)
        if said.problem:
            return f"{said.problem} after", said.last_line
        if said.code != 0 and not stage.difference(scene, home):
            return "exact", said.last_line  # all of it was there already
        if said.code != 0:
            return "stuck", said.last_line
    if different := stage.difference(scene, home):
        return ("survived" if may_differ and ended.code == 0 else "different"), different
    return "exact", said.last_line
