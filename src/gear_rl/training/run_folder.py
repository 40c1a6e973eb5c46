"""A run's folder: what is in it, which checkpoint can be trusted, and how an interrupted run resumes.

    config.json         the resolved configuration          checkpoints/   what resuming needs, the newest two
    versions.json       what it ran on                      model/         the trained model, safetensors
    evaluation.json     before and after                    rollouts.jsonl where the credit went (`gear_rl.records.record`)
    metrics.jsonl       one line per step

A checkpoint counts only once its `complete.json` lists every file with its hash: a process killed while writing leaves a
folder without it, and resuming steps over that folder to the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import LineFile, write_json, write_text

FORMAT = 1


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.versions, self.evaluation = (path / f"{n}.json" for n in ("config", "versions", "evaluation"))
        self.metrics, self.rollouts = path / "metrics.jsonl", path / "rollouts.jsonl"
        self.checkpoints, self.model = path / "checkpoints", path / "model"

    @staticmethod
    def create(path: Path, config: dict[str, Any]) -> RunFolder:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise GearError(f"{path} exists. Resume it with gear train --resume {path}, or give another --out.")
        path.mkdir(parents=True, exist_ok=True)
        run = RunFolder(path)
        write_json(run.config, {"format": FORMAT, **config})
        return run

    @staticmethod
    def open(path: Path) -> tuple[RunFolder, dict[str, Any]]:
        run = RunFolder(path)
        if not run.config.is_file():
            raise GearError(f"{path} is not a run folder: it has no config.json.")
        try:
            config = json.loads(run.config.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise GearError(f"{run.config} is damaged: {error}.") from None
        found = config.pop("format", None) if isinstance(config, dict) else None
        if found != FORMAT:
            raise GearError(f"{path} was written in run format {found}; this version reads format {FORMAT}.")
        return run, config

    @staticmethod
    def free_name(parent: Path, stem: str) -> Path:
        """`parent/stem`, or the first of stem-2, stem-3, … that is free."""
        path, n = parent / stem, 2
        while path.exists():
            path, n = parent / f"{stem}-{n}", n + 1
        return path

    def remove_if_nothing_happened(self) -> None:
        """A start that failed leaves no folder: nothing was evaluated, sampled or saved."""
        if not any(path.exists() for path in (self.evaluation, self.metrics, self.model)) and not any(
            self.checkpoints.glob("checkpoint-*")
        ):
            shutil.rmtree(self.path)

    def last_complete_checkpoint(self) -> Path | None:
        """The newest checkpoint whose files are all there and unchanged; damaged newer ones are removed."""
        for folder in sorted(self.checkpoints.glob("checkpoint-*"), key=_step_of, reverse=True):
            if is_complete(folder):
                return folder
            shutil.rmtree(folder)
        return None

    def add_metrics(self, step: int, logs: dict[str, float]) -> None:
        with LineFile(self.metrics) as file:
            file.append(json.dumps({"step": step, **logs}).encode() + b"\n")

    def cut_metrics_after(self, step: int) -> None:
        """Drop what an interrupted run logged after the checkpoint it resumes from."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (json.JSONDecodeError, KeyError):
                break  # a torn last line
        write_text(self.metrics, "".join(kept))


def _step_of(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mark_complete(folder: Path) -> None:
    """Called when every file of a checkpoint has been written."""
    files = {str(p.relative_to(folder)): _hash(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    write_json(folder / "complete.json", files)


def is_complete(folder: Path) -> bool:
    try:
        files = json.loads((folder / "complete.json").read_text())
        return bool(files) and all(_hash(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, AttributeError):
        return False
