"""An evaluation's folder: its settings, every judged sample, and the scores. It resumes, and never mixes settings.

settings.json    task, model and sampling; a second run into the same folder must have the same
samples.jsonl    a line per sample: what the model wrote and its verdict
summary.json     the scores, once all samples are there
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.evaluation.evaluate import key_of
from gear_rl.files import LineFile, parse_json, read_json, remove_abandoned, write_json

FORMAT = 1
_NUMBER = (int, float)
KINDS: dict[str, Any] = {
    "id": str, "k": int, "how": str, "success": bool, "reward": _NUMBER, "category": str, "channels": dict,
    "malformed": int, "cut_off": bool, "tokens": int, "trivially_passable": bool, "parts": dict,
}  # fmt: skip
"""What a sample's entries are, as far as scores are made of them."""


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint_of_model(path: Path) -> str:
    """Which weights a folder holds: names, sizes, and the first and last MiB of every file, so that large ones take no time."""
    seen = hashlib.sha256()
    for file in sorted(p for p in path.iterdir() if p.suffix in (".safetensors", ".bin", ".json", ".gguf", ".jinja")):
        size = file.stat().st_size
        seen.update(f"{file.name} {size} ".encode())
        with open(file, "rb") as opened:
            seen.update(opened.read(2**20))
            opened.seek(max(0, size - 2**20))
            seen.update(opened.read(2**20))
    return seen.hexdigest()[:16]


class ResultFolder:
    """Open one with the settings of this run; `samples` are those of an earlier run with the same settings."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.name, self.settings = path, str(path), {"format": FORMAT, **settings}
        self._settings, self._samples, self._summary = (
            path / name for name in ("settings.json", "samples.jsonl", "summary.json")
        )
        remove_abandoned(path)
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not self._settings.is_file())):
            raise GearError(f"{path} exists and is not a folder of results. Give another --out.")
        if self._settings.is_file():
            self._refuse_other_settings()
        else:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(self._settings, self.settings)
        self._file = LineFile(self._samples)
        if not self._file.lock():
            self._file.close()
            raise GearError(f"{path}: another gear eval is writing to it.")
        self.samples = self._read()

    def _refuse_other_settings(self) -> None:
        there = read_json(self._settings)
        here = json.loads(json.dumps(self.settings))
        if there == here:
            return
        names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
        shown = "; ".join(
            f"{name} is {_short(there.get(name))} there and {_short(here.get(name))} here" for name in names
        )
        raise GearError(f"{self.path} has results of other settings: {shown}. Give another --out.")

    def _read(self) -> list[dict[str, Any]]:
        """All whole lines; a last line that a killed process left half-written is cut off."""
        samples, good = [], 0
        with open(self._samples, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                where = f"{self._samples}, line {number}"
                sample = parse_json(line, where)
                if not _is_sample(sample):
                    raise GearError(f"{where}: damaged.")
                samples.append(sample)
                good += len(line)
        self._file.truncate(good)
        if len({key_of(sample) for sample in samples}) < len(samples):
            raise GearError(f"{self._samples}: it has the same sample twice.")
        return samples

    @property
    def summarised(self) -> bool:
        return self._summary.is_file()

    def add(self, sample: dict[str, Any]) -> None:
        self._file.append(json.dumps(sample).encode() + b"\n")
        self.samples.append(sample)

    def finish(self, summary: dict[str, Any]) -> None:
        write_json(self._summary, summary)

    def close(self) -> None:
        self._file.close()


def _is_sample(sample: Any) -> bool:
    if not isinstance(sample, dict) or not all(
        isinstance(sample.get(name), KINDS[name]) for name in ("id", "k", "how")
    ):
        return False
    if not all(isinstance(sample[name], kind) for name, kind in KINDS.items() if name in sample):
        return False
    parts = sample.get("parts", {}).values()
    return all(isinstance(value, _NUMBER) for value in sample.get("channels", {}).values()) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(count, int) for count in pair) for pair in parts
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
