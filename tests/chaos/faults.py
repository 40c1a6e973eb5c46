"""The kinds of fault by name, which of them there are for the scenes at hand, and one of them injected."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import faults_inside as inside
import faults_outside as outside
from hostile_endpoint import BEHAVIOURS
from hostile_tasks import ACTS, PLACES
from judged import Result
from scenes import SCENES, Stage


@dataclass(frozen=True)
class Fault:
    kind: str
    scene: str
    detail: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, Callable[..., Result]] = {
    "signal at a file event": outside.at_file_event,
    "signal at a random moment": outside.at_random_moment,
    "full disk": outside.full_disk,
    "broken disk": outside.broken_disk,
    "file size limit": outside.file_size_limit,
    "read-only folder": outside.read_only,
    "vanished folder": outside.vanished,
    "damaged file, then resume": inside.damaged,
    "two processes, one folder": inside.two_processes,
    "hostile environment or judge": inside.hostile,
    "hostile endpoint": inside.hostile_endpoint,
    "out of memory": inside.out_of_memory,
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
RANDOM_KINDS = ("signal at a random moment", "file size limit", "damaged file, then resume", "two processes, one folder")
ALWAYS = 1000
WORKER_EVENTS = 60
"""File events of a worker of `compare` that it is killed at."""


def inject(stage: Stage, fault: Fault, home: Path) -> Result:
    scene = SCENES[fault.scene]
    stage.prepare(scene, home)
    try:
        return KINDS[fault.kind](stage, scene, home, **fault.detail)
    finally:
        for path in (home, *home.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(home, ignore_errors=True)


def every_fault(stage: Stage) -> list[Fault]:
    """What can be listed: signals and failures of a disk at every file event of every scene, and what else is finite."""
    found = []
    for scene, events in stage.events.items():
        if scene == "endpoint":  # as eval, and its server is up only for its own faults
            continue
        for i, (event, _) in enumerate(events):
            found += [Fault("signal at a file event", scene, {"event": i, "number": int(n)}) for n in SIGNALS]
            if event in ("open", "rename", "mkdir", "fsync"):
                found += [Fault(kind, scene, {"event": i}) for kind in ("full disk", "broken disk")]
                found += [Fault(kind, scene, {"event": i}) for kind in ("read-only folder", "vanished folder")]
    if "compare" in stage.events:
        detail = {"number": int(signal.SIGKILL), "in_workers": True}
        found += [Fault("signal at a file event", "compare", {"event": i, **detail}) for i in range(WORKER_EVENTS)]
    for place, act, after in product(PLACES, ACTS, (0, 3, 11)):
        found.append(Fault("hostile environment or judge", "hostile", {"place": place, "act": act, "after": after}))
    for behaviour, bad in product(BEHAVIOURS, (1, 2, ALWAYS)):
        found.append(Fault("hostile endpoint", "endpoint", {"behaviour": behaviour, "bad": bad}))
    for where, call, once in product(("sampling", "scoring", "loss"), (1, 2, 5), (True, False)):
        found.append(Fault("out of memory", "train", {"where": where, "call": call, "once": once}))
    return [fault for fault in found if fault.scene in stage.events]


def random_faults(stage: Stage, rng: random.Random) -> Iterator[Fault]:
    """Without end: kinds in turns, moments, sizes and damages by `rng`."""
    scenes = [name for name in stage.events if name not in ("hostile", "endpoint")]
    for turn in cycle(range(5) if "resume" in scenes else (0, 1, 2, 4)):
        scene = rng.choice(scenes)
        if turn in (0, 1):
            yield Fault(
                "signal at a random moment", scene, {"share": rng.uniform(0, 1.05), "number": int(rng.choice(SIGNALS))}
            )
        elif turn == 2:
            yield Fault("file size limit", scene, {"size": int(10 ** rng.uniform(1, 5.8))})
        elif turn == 3:
            how, seed = rng.choice(inside.DAMAGES), rng.randrange(2**31)
            yield Fault("damaged file, then resume", "resume", {"how": how, "seed": seed})
        else:
            apart = rng.choice((0.0, rng.uniform(0, 1.0)))
            yield Fault("two processes, one folder", scene, {"apart": apart})


def chosen_faults(stage: Stage, count: int | None, seed: int, only: str = "") -> list[Fault]:
    """All that can be listed and a third as many random ones; or `count` of them, drawn by kind and scene in turns. `only`:
    of kinds whose name contains it."""
    rng = random.Random(seed)
    listed = [fault for fault in every_fault(stage) if only in fault.kind]
    endless = (fault for fault in random_faults(stage, rng) if only in fault.kind)
    if not any(only in kind for kind in RANDOM_KINDS):
        count, endless = min(count or len(listed), len(listed)), iter(())
    if count is None or count > len(listed):
        more = len(listed) // 3 if count is None else count - len(listed)
        both = [*listed, *islice(endless, more)]
        rng.shuffle(both)  # where the time is up early, some of each kind were tried
        return both
    rng.shuffle(listed)
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in [*islice(endless, count), *listed]:
        groups.setdefault((fault.kind, fault.scene), []).append(fault)
    taken: list[Fault] = []
    while len(taken) < count:
        for group in groups.values():
            taken += [group.pop()] if group else []
    rng.shuffle(taken)
    return taken[:count]
