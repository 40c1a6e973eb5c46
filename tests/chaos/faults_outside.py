"""Faults from outside of the command: signals, and disks that are full, broken, read-only or gone."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import Any

from file_events import at_event, fail_from, send
from gear_child import Running, gear
from judged import Result, judged
from scenes import Scene, Stage

NOBODY = 65534


def at_file_event(stage: Stage, scene: Scene, home: Path, event: int, number: int, in_workers: bool = False) -> Result:
    before = at_event(home, event, send(home, number), in_workers)
    return judged(stage, scene, home, gear(stage.words(scene.words), home, stage.limit, before))


def at_random_moment(stage: Stage, scene: Scene, home: Path, share: float, number: int) -> Result:
    running = Running(stage.words(scene.words), home)
    return judged(stage, scene, home, running.wait(stage.limit, share * stage.seconds[scene.name], number))


def full_disk(stage: Stage, scene: Scene, home: Path, event: int) -> Result:
    return judged(stage, scene, home, gear(stage.words(scene.words), home, stage.limit, fail_from(home, event)))


def broken_disk(stage: Stage, scene: Scene, home: Path, event: int) -> Result:
    before = fail_from(home, event, errno.EIO)
    return judged(stage, scene, home, gear(stage.words(scene.words), home, stage.limit, before))


def file_size_limit(stage: Stage, scene: Scene, home: Path, size: int) -> Result:
    """The kernel itself stops every writer, C++ and Rust too, at `size` bytes of a file."""

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return judged(stage, scene, home, gear(stage.words(scene.words), home, stage.limit, before))


def read_only(stage: Stage, scene: Scene, home: Path, event: int) -> Result:
    """From file event `event` on, no folder can be written to. Root may write anywhere, so root becomes nobody."""

    def deny(*_: Any) -> None:
        for path in (home, *home.rglob("*")):
            if path.is_dir():
                path.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    ended = gear(stage.words(scene.words), home, stage.limit, at_event(home, event, deny))
    for path in (home, *home.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return judged(stage, scene, home, ended)


def vanished(stage: Stage, scene: Scene, home: Path, event: int) -> Result:
    """The folder is moved away while it is written to, and is back before the command is run again."""
    aside = home.with_name(f"{home.name}.aside")

    def move(*_: Any) -> None:
        if (home / scene.result).is_dir():
            (home / scene.result).rename(aside)

    ended = gear(stage.words(scene.words), home, stage.limit, at_event(home, event, move))
    if aside.exists():
        shutil.rmtree(home / scene.result, ignore_errors=True)
        aside.rename(home / scene.result)
    return judged(stage, scene, home, ended)
