"""Benchmarks as their authors publish them: find the folder, read the files, hold a part out. Nothing is bundled.

Every error names the file (and line) it is about, and where the data comes from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import parse_json
from gear_rl.tasks.base import Row, choose
from gear_rl.tasks.sources import read_lines


def data_folder(task: str, data: str | None, needs: Sequence[str], get_it: str, inside: Sequence[str] = ()) -> Path:
    """The folder that holds `needs` (relative paths): `data` itself, or one of the places `inside` it."""
    if not data:
        raise GearError(f"task {task} needs its data: --data DIR, a folder with {_listed(needs)}. {get_it}")
    root = Path(data).expanduser()
    if not root.is_dir():
        raise GearError(f"task {task}: there is no folder {root}. It should hold {_listed(needs)}. {get_it}")
    places = [root, *(root / place for place in inside)]
    for place in places:
        if all((place / need).exists() for need in needs):
            return place
    looked = ", ".join(str(place) for place in places)
    missing = [need for need in needs if not (root / need).exists()]
    raise GearError(f"task {task}: looked for {_listed(missing)} in {looked}, and did not find it. {get_it}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def read_rows(path: Path, required: Sequence[str]) -> list[dict[str, Any]]:
    """A file of one JSON object a line, each with the `required` keys. Blank lines are skipped."""
    found = []
    for record in read_lines(path):
        for key in required:
            if key not in record.values:
                raise record.fail(f"the row has no {key!r}; it has {', '.join(sorted(record.values))}")
        found.append(record.values)
    if not found:
        raise GearError(f"{path} holds no rows.")
    return found


def read_document(path: Path, kind: type) -> Any:
    """A file that is one JSON value of the given type."""
    value = parse_json(read_text(path), str(path))
    if not isinstance(value, kind):
        raise GearError(f"{path}: expected a JSON {kind.__name__}, got {type(value).__name__}.")
    return value


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GearError(f"cannot read {path}: {error}.") from None


def split_rows(
    task: str, rows: Sequence[Row], split: str, count: int | None, seed: int, train_share: float, key: str = "id"
) -> list[Row]:
    """Rows of a benchmark that has no training set of its own.

    `train_share` 0: "test" is the whole benchmark, and there is nothing to train on. Otherwise that share of it, chosen by
    a hash of `key` (so rows that share a key stay together), is for training and the rest for testing.
    """
    if split not in ("train", "test"):
        raise GearError(f"task {task}: the split is train or test, not {split!r}.")
    if split == "train" and train_share == 0:
        raise GearError(
            f"task {task} has no training set. --set task.train_share=0.5 trains on half of the benchmark and tests on the "
            "other half; the score is then no longer the benchmark's own."
        )
    chosen = [row for row in rows if (held_out(row[key], train_share)) == (split == "train")]
    if not chosen:
        raise GearError(f"task {task}: no rows are left for {split} with train_share={train_share}.")
    return choose(chosen, split, count, seed)


def held_out(key: str, train_share: float) -> bool:
    """Whether this key belongs to the training part; the same on every machine and in every run."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 2**32 < train_share
