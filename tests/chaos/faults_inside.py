"""Faults in what a command reads and runs: damaged files, a second process, hostile tasks, memory that runs out."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from gear_child import Ended, Running, gear
from hostile_endpoint import HostileServer
from hostile_tasks import ACTS, LIES
from judged import Result, judged
from scenes import NOT_COMPARED, Scene, Stage

DAMAGES = ("truncate", "flip", "delete", "empty", "swap", "repeat")


def damaged(stage: Stage, scene: Scene, home: Path, how: str, seed: int) -> Result:
    """One file of an unfinished run is damaged before it is resumed."""
    rng, top = random.Random(seed), home / "run"
    files = sorted(path for path in top.rglob("*") if path.is_file())
    path = rng.choice(files)
    damage(path, how, rng, files)
    kept = {p: p.read_bytes() for p in files if p.is_file() and not set(p.relative_to(top).parts) & set(NOT_COMPARED)}
    ended = gear(stage.words(scene.words), home, stage.limit)
    name = f"{how} {path.relative_to(top)}"
    if ended.problem:
        return ended.problem, f"{name}: {ended.last_line}"
    if ended.refused:
        lost = [p.name for p, data in kept.items() if not p.is_file() or p.read_bytes() != data]
        return ("lost", f"{name}: {lost[0]} was changed") if lost else ("refused", f"{name}: {ended.last_line}")
    if ended.code != 0:
        return "exit code", f"{name}: {ended.code}: {ended.last_line}"
    different = stage.difference(scene, home)
    return ("different", f"{name}: {different}") if different else ("exact", name)


def damage(path: Path, how: str, rng: random.Random, others: list[Path]) -> None:
    data = path.read_bytes()
    place = rng.randrange(max(1, len(data)))
    if how == "truncate":
        path.write_bytes(data[:place])
    elif how == "flip" and data:
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :])
    elif how == "delete":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "swap":
        other = rng.choice(others)
        other_data = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(other_data)
    elif how == "repeat":
        path.write_bytes(data + data[place:])


def two_processes(stage: Stage, scene: Scene, home: Path, apart: float) -> Result:
    """The same command twice, the second one `apart` of the usual time later."""
    first = Running(stage.words(scene.words), home)
    time.sleep(apart * stage.seconds[scene.name])
    second = Running(stage.words(scene.words), home)
    ends = [first.wait(stage.limit), second.wait(stage.limit)]
    for ended in ends:
        if ended.problem or ended.code not in (0, 2):
            return ended.problem or "exit code", f"{ended.code}: {ended.last_line}"
    return judged(stage, scene, home, min(ends, key=lambda ended: ended.code or 0))


def hostile(stage: Stage, scene: Scene, home: Path, place: str, act: str, after: int) -> Result:
    """A task whose environment or judge misbehaves. Once it behaves again, the run can be continued. What was finished with a
    reply that only said something else cannot be as without it: the same lie told again must then give the same files."""
    result, seen = _hostile(stage, scene, home, place, act, after)
    if act not in LIES or result not in ("survived", "different") or not seen.endswith(" differs"):
        return result, seen
    again = home.with_name(f"{home.name}.again")
    try:
        stage.prepare(scene, again)
        _hostile(stage, scene, again, place, act, after)
        different = stage.difference(scene, home, again)
    finally:
        shutil.rmtree(again, ignore_errors=True)
    return ("different", f"{different} when repeated") if different else ("survived", seen)


def _hostile(stage: Stage, scene: Scene, home: Path, place: str, act: str, after: int) -> Result:
    (home / "fault.json").write_text(json.dumps({"place": place, "act": act, "after": after}))
    ended = gear(stage.words(scene.words), home, stage.limit)
    (home / "fault.json").unlink()
    if ACTS[act] == "killed" and ended.code in (-signal.SIGKILL, 130):
        ended = Ended(-signal.SIGKILL, "", ended.seconds, ended.orphans)
    return judged(stage, scene, home, ended, may_differ=True)


def hostile_endpoint(stage: Stage, scene: Scene, home: Path, behaviour: str, bad: int) -> Result:
    """A chat server that misbehaves for `bad` requests. What it did to them leaves no trace in the result."""
    server = HostileServer(behaviour, bad)
    stage.url = server.url
    try:
        ended = gear(stage.words(scene.words), home, stage.limit)
        server.bad = 0
        return judged(stage, scene, home, ended, may_differ=behaviour == "says a lone surrogate")
    finally:
        server.close()


def out_of_memory(stage: Stage, scene: Scene, home: Path, where: str, call: int, once: bool) -> Result:
    """torch's own error from the `call`-th pass of sampling, scoring or the loss on: once, or for more than one row."""

    def before() -> None:
        from torch import OutOfMemoryError

        owner, name = _memory_user(where)
        real, calls = getattr(owner, name), 0

        def limited(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call or (calls > call and not once):
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(*args, **kwargs)

        setattr(owner, name, limited)

    return judged(stage, scene, home, gear(stage.words(scene.words), home, stage.limit, before), may_differ=True)


def _memory_user(where: str) -> tuple[Any, str]:
    if where == "sampling":
        from gear_rl.sampling.decoding import Decoder

        return Decoder, "read"
    if where == "scoring":
        from gear_rl.scoring.scorer import Scorer

        return Scorer, "_hidden"
    from gear_rl.engines.trl import CreditGRPOTrainer

    return CreditGRPOTrainer, "_compute_loss"
