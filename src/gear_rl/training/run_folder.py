"""A run's folder: what is in it, which checkpoint can be trusted, and how an interrupted run resumes.

    config.json         the resolved configuration          checkpoints/   what resuming needs, the newest
    versions.json       what it ran on                      model/         the trained model, safetensors
    evaluation.json     before and after                    rollouts.jsonl where the credit went (`gear_rl.records.record`)
    metrics.jsonl       one line per step

A checkpoint counts only once its `complete.json` lists every file with its hash: a process killed while writing leaves a
folder without it, and resuming steps over that folder to the one before. With it, a checkpoint keeps a copy of config.json
and how metrics.jsonl and rollouts.jsonl began: a run whose files were changed since does not resume as if nothing were.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import LineFile, parse_json, read_json, remove_abandoned, write_bytes, write_json

FORMAT = 1
CONFIG_COPY, RUN_FILES = "run_config.json", "run_files.json"
"""In a checkpoint: config.json of the run, and name → {bytes, sha256} of what grew until then (null: it was gone)."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.versions, self.evaluation = (path / f"{n}.json" for n in ("config", "versions", "evaluation"))
        self.metrics, self.rollouts = path / "metrics.jsonl", path / "rollouts.jsonl"
        self.checkpoints, self.model, self.unfinished_model = (path / n for n in ("checkpoints", "model", "model.tmp"))
        self.log: LineFile | None = None
        self._config_at_start: bytes | None = None

    @staticmethod
    def create(path: Path, config: dict[str, Any]) -> RunFolder:
        """A start that was killed before it had written config.json is no run: it may be started again."""
        remove_abandoned(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise GearError(f"{path} exists. Resume it with gear train --resume {path}, or give another --out.")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = RunFolder(path)
        write_json(run.config, {"format": FORMAT, **config})
        return run

    @staticmethod
    def open(path: Path) -> tuple[RunFolder, dict[str, Any]]:
        run = RunFolder(path)
        if not run.config.is_file():
            raise GearError(
                f"{path} is not a run folder: it has no config.json. Start a run with gear train --out {path}."
            )
        try:
            config = parse_json(run.config.read_bytes(), "not a run's settings")
        except GearError as error:
            copies = [folder / CONFIG_COPY for folder in run.newest_first() if (folder / CONFIG_COPY).exists()]
            advice = f" Put it back: `cp {copies[0]} {run.config}`." if copies else ""
            raise GearError(f"{run.config} is damaged: {error}{advice}") from None
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

    def checkpoint_to_resume(self) -> Path | None:
        """The newest whole checkpoint, if the rest of the folder is what that checkpoint saw. Called before anything is
        written, and removes what killed processes left."""
        inside = self.path.resolve()
        for path in self.path.rglob("*"):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise GearError(
                    f"{path} is a link to {path.resolve()}, outside of the run folder, and the run would write there. "
                    "Put the file itself in its place."
                )
        remove_abandoned(self.path)
        checkpoint = self.last_complete_checkpoint()
        if checkpoint is not None and (checkpoint / RUN_FILES).exists():  # not in those of earlier versions
            self._refuse_changes_since(checkpoint)
        self._config_at_start = self.config.read_bytes()
        return checkpoint

    def last_complete_checkpoint(self) -> Path | None:
        """The newest checkpoint whose files are all there and unchanged."""
        return next((folder for folder in self.newest_first() if is_complete(folder)), None)

    def newest_first(self) -> list[Path]:
        found = [folder for folder in self.checkpoints.glob("checkpoint-*") if folder.name.split("-", 1)[1].isdecimal()]
        return sorted(found, key=step_of, reverse=True)

    def complete(self, checkpoint: Path) -> list[str]:
        """Called when every other file of a checkpoint has been written. The names of what should have grown and is gone."""
        write_bytes(checkpoint / CONFIG_COPY, self._config_at_start or self.config.read_bytes())
        grown = {path.name: _beginning(path) if path.exists() else None for path in (self.metrics, self.rollouts)}
        write_json(checkpoint / RUN_FILES, grown)
        files = {str(p.relative_to(checkpoint)): _hash(p) for p in sorted(checkpoint.rglob("*")) if p.is_file()}
        write_json(checkpoint / "complete.json", files)
        return [name for name, found in grown.items() if found is None]

    def _refuse_changes_since(self, checkpoint: Path) -> None:
        copy = checkpoint / CONFIG_COPY
        now, then = (_flat(json.loads(path.read_bytes())) for path in (self.config, copy))
        if changed := sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name)):
            raise GearError(
                f"{self.config} was changed since {checkpoint.name} ({', '.join(changed)}), and the run would not continue "
                f"exactly. Put it back: `cp {copy} {self.config}`. For other settings, start another run with --config."
            )
        for name, was in json.loads((checkpoint / RUN_FILES).read_bytes()).items():
            path, lost = self.path / name, self.path / f"{name}.lost-{step_of(checkpoint)}"
            if lost.exists() or (was is not None and path.exists() and _beginning(path, was["bytes"]) == was):
                continue
            wrong, accept = ("was changed", f"mv {path}") if path.exists() else ("is missing", "touch")
            raise GearError(
                f"{path} {wrong} since {checkpoint.name}. Put it back from a copy. If there is none: `{accept} {lost}`, and "
                f"the run resumes with a new {name}."
            )

    def add_metrics(self, step: int, logs: dict[str, float]) -> None:
        self.log = self.log or LineFile(self.metrics)
        self.log.append(json.dumps({"step": step, **logs}).encode() + b"\n")

    def cut_after(self, step: int) -> None:
        """Drop what an interrupted run left after the checkpoint it resumes from: metrics, and checkpoints that are not
        whole. Called when everything has been checked: an error leaves all files, and a damaged one may be the only copy."""
        for folder in self.newest_first():
            if step_of(folder) > step:
                shutil.rmtree(folder)
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_bytes().split(b"\n"):
            try:
                if json.loads(line)["step"] > step:
                    break
            except (ValueError, KeyError, TypeError, RecursionError):
                break  # a torn last line
            kept.append(line + b"\n")
        write_bytes(self.metrics, b"".join(kept))


def step_of(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _beginning(path: Path, length: int | None = None) -> dict[str, Any]:
    """The first `length` bytes of a file that grows, or all there are; on the disk before anything refers to them."""
    digest, left = hashlib.sha256(), path.stat().st_size if length is None else length
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        while left > 0 and (part := file.read(min(left, 2**20))):
            digest.update(part)
            left -= len(part)
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """{"train": {"steps": 3}} as {"train.steps": 3}: the names that `--set` takes."""
    tables = {name: value if isinstance(value, dict) else {"": value} for name, value in config.items()}
    return {f"{table}.{name}".rstrip("."): value for table, inner in tables.items() for name, value in inner.items()}


def is_complete(folder: Path) -> bool:
    try:
        files = read_json(folder / "complete.json")
        return bool(files) and all(_hash(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, AttributeError):
        return False
