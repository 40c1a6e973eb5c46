"""The commands that faults are injected into: how each is started, how it goes on after a fault, and what must come out.

Paths are relative to the fault's own folder, so that undisturbed and disturbed results can be compared byte by byte. What
depends on the clock is left out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from file_events import Event, write_down
from gear_child import Ended, gear

SMALL = ["task.steps=4", "train.prompts=2", "train.generations=2", "train.eval_rows=2", "train.record_every=1"]
CLOCK = ("time", "seconds", "per_second", "speed", "duration", "runtime", "_at", "endpoint")
"""Names of values that depend on the clock, or on a free port, contain one of these."""
NOT_COMPARED = ("checkpoints", "versions.json", "seconds.json")
"""Checkpoints hold random states and times; that they are whole is what an exact resume shows."""
TIMES_AS_TEXT = ("summary.html", "audition.html")
"""Of these the numbers are not compared: some are times."""
NUMBER = re.compile(rb"[-+\xe2\x88\x92]*[0-9][-+0-9.,e]*")


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


@dataclass(frozen=True)
class Scene:
    name: str
    words: Sequence[str]
    """The command."""
    again: Sequence[Sequence[str]]
    """What continues it after a fault: tried in this order until one does not refuse."""
    result: str
    """The file or folder it makes."""
    start: str = ""
    """The scene whose result must lie there first."""
    cut: Callable[[Path], None] | None = None
    """Makes an unfinished result of the one that `start` left."""


def _unfinished(home: Path) -> None:
    """As a run looks that was killed right after its first checkpoint, metrics and record one step ahead."""
    run = home / "run"
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-2")
    evaluation = json.loads((run / "evaluation.json").read_text())
    evaluation.pop("after")
    (run / "evaluation.json").write_text(json.dumps(evaluation, indent=1))


TRAIN = ["train", *settings(*SMALL, "train.steps=2", "train.checkpoint_every=1"), "--out", "run"]
RESUME = ["train", "--resume", "run"]
HOSTILE = ["train", "--task", "hostile_tasks:Hostile", *TRAIN[1:]]
WARM = ["warmstart", "--task", "problems.jsonl", "--model", "MODEL", *settings("warm.epochs=2", "warm.batch=2")]
PROBLEMS = "".join(
    json.dumps({"prompt": f"{part} leak", "answer": answer}) + "\n"
    for part, answer in (("valve", "yes"), ("pump", "no"), ("chain", "yes"), ("gear", "no"))
)
COMPARE = [
    "compare", "--credit", "grpo,gear", "--seeds", "2", "--learning-rates", "1e-3", "--workers", "1", "--out", "cmp",
    *settings(*SMALL, "train.steps=1"),
]  # fmt: skip
ENDPOINT = [
    "eval", "--endpoint", "URL", "--model", "some", "--rows", "2", "--mode", "greedy", "--timeout", "3",
    "--concurrency", "1", "--out", "ev", *settings("task.steps=4"),
]  # fmt: skip
EVAL = ["eval", "--rows", "3", *settings("task.steps=4"), "--out", "ev"]
AUDITION = [
    "audition", "--credit", "gear", "--prompts", "12", "--group", "4", "--measured", "1", "--continuations", "2",
    *settings("task.steps=4"), "--out", "audition.html",
]  # fmt: skip
CREDIT = ["credit", "run", "--credit", "token", "--out", "credited.jsonl"]
REPORT = ["report", "run", "--out", "page.html"]
SCENES = {
    scene.name: scene
    for scene in (
        Scene("train", TRAIN, [RESUME, TRAIN], "run"),
        Scene("hostile", HOSTILE, [RESUME, HOSTILE], "run"),
        Scene("resume", RESUME, [RESUME], "run", start="train", cut=_unfinished),
        Scene("warmstart", [*WARM, "--out", "warm"], [[*WARM, "--out", "warm"]], "warm"),
        Scene("compare", COMPARE, [["compare", "--resume", "cmp", "--workers", "1"], COMPARE], "cmp"),
        Scene("eval", EVAL, [EVAL], "ev"),
        Scene("endpoint", ENDPOINT, [ENDPOINT], "ev"),
        Scene("audition", AUDITION, [AUDITION], "audition.html"),
        Scene("credit", CREDIT, [CREDIT], "credited.jsonl", start="train"),
        Scene("report", REPORT, [REPORT], "page.html", start="train"),
    )
}


class Stage:
    """The undisturbed results in a folder, made once, and copies of what a scene begins with."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit = folder, limit
        self.events: dict[str, list[Event]] = {}
        self.seconds: dict[str, float] = {}
        self.url = ""
        """Of the chat server at hand."""

    def make(self, name: str) -> None:
        """Run the scene once without a fault: its result, its file events, its time."""
        scene, home, log = SCENES[name], self.folder / name, self.folder / f"{name}.events"
        self.prepare(scene, home)
        log.write_text("")
        ended = gear(self.words(scene.words), home, self.limit, write_down(home, log))
        if ended.code != 0:
            raise SystemExit(f"{name} failed without a fault:\n{ended.text}")
        self.events[name] = [tuple(line.split("\t")) for line in log.read_text().splitlines()]
        self.seconds[name] = ended.seconds

    def prepare(self, scene: Scene, home: Path) -> None:
        if scene.start:
            shutil.copytree(self.folder / scene.start, home)
            if scene.cut:
                scene.cut(home)
        else:
            home.mkdir(parents=True)
            (home / "problems.jsonl").write_text(PROBLEMS)

    def words(self, words: Sequence[str]) -> list[str]:
        from gear_rl.tasks.workshop.task import FOLDER

        here = {"MODEL": str(FOLDER / "model"), "URL": self.url}
        return [here.get(word, word) for word in words]

    def go_on(self, scene: Scene, home: Path) -> Ended:
        """After a fault: continue, or begin again where there is nothing to continue."""
        ended = Ended(1, "", 0.0, [])
        for words in scene.again:
            ended = gear(self.words(words), home, self.limit)
            if ended.code != 2 or ended.problem:
                break
        return ended

    def difference(self, scene: Scene, home: Path, other: Path | None = None) -> str | None:
        """What of the scene's result is not as it is without a fault, or as it is in `other`; None: nothing."""
        ours, theirs = contents(home / scene.result), contents((other or self.folder / scene.name) / scene.result)
        for path in sorted(ours.keys() | theirs.keys()):
            if path not in ours:
                return f"{path} is missing"
            if path not in theirs:
                return f"{path} is left behind"
            if ours[path] != theirs[path]:
                return f"{path} differs"
        scratch = [str(path.relative_to(home)) for path in home.rglob("*") if path.name.endswith((".partial", ".tmp"))]
        return f"{scratch[0]} is left behind" if scratch else None


def contents(top: Path) -> dict[str, Any]:
    """Relative path → what can be compared of the file."""
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    found = {}
    for path in files:
        parts = path.relative_to(top.parent).parts
        if not set(parts) & set(NOT_COMPARED):
            found["/".join(parts)] = _timeless(path)
    return found


def _timeless(path: Path) -> Any:
    data = path.read_bytes()
    if path.name in TIMES_AS_TEXT:
        return NUMBER.sub(b"0", data)
    try:
        if path.suffix == ".json":
            return _without_clock(json.loads(data))
        if path.suffix == ".jsonl":
            return [_without_clock(json.loads(line)) for line in data.splitlines()]
    except ValueError:
        pass
    return data


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_clock(v) for k, v in value.items() if not any(word in k for word in CLOCK)}
    return [_without_clock(item) for item in value] if isinstance(value, list) else value
