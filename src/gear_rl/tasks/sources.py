"""Where a task's data comes from: files in the upstream layout from a folder the user names, or the hub. Nothing is bundled.

Every record remembers the file and line it stands in, so that a malformed one can be named.
"""

from __future__ import annotations

import gzip
import logging
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from gear_rl.errors import GearError
from gear_rl.files import json_lines, parse_json

LONGEST_LINE = 2**24
"""Bytes. A longer line is no record of a problem."""


@dataclass(frozen=True)
class Record:
    """One row as it was published."""

    where: str
    values: dict[str, Any]

    def fail(self, problem: str) -> GearError:
        return GearError(f"{self.where}: {problem}.")

    def text(self, *columns: str) -> str:
        """The first of `columns` that is there, as text; numbers become text."""
        if found := self.optional(*columns):
            return found
        there = ", ".join(map(str, self.values)) or "nothing"
        raise self.fail(f"no text in {' or '.join(map(repr, columns))}; it has {there}")

    def optional(self, *columns: str) -> str:
        """The same, or nothing."""
        for column in columns:
            value = self.values.get(column)
            if isinstance(value, str) and value.strip():
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return number_text(value)
        return ""


@dataclass(frozen=True)
class Source:
    """One split of a published data set."""

    name: str
    files: tuple[str, ...]
    """Where it may lie in the user's folder; the first that is there is read."""
    home: str
    """Where to get the files."""
    hub: str | None = None
    config: str | None = None
    split: str = "test"


def load(source: Source, data: str | None) -> list[Record]:
    """All records of `source`, from the folder `data` or, where that is None, from the hub."""
    records = list(_from_hub(source) if data is None else _from_folder(source, Path(data)))
    if not records:
        raise GearError(f"{source.name}: the data is empty.")
    return records


def _from_folder(source: Source, folder: Path) -> Iterator[Record]:
    if folder.is_file():
        raise GearError(f"{source.name}: data={str(folder)!r} is a file; name the folder it lies in.")
    if not folder.is_dir():
        raise GearError(f"{source.name}: there is no folder {str(folder)!r}. {_advice(source)}")
    for name in source.files:
        if (folder / name).is_file():
            return read_records(folder / name)
    raise GearError(f"{source.name}: {str(folder)!r} has no {' nor '.join(source.files)}. {_advice(source)}")


def _from_hub(source: Source) -> Iterator[Record]:
    if source.hub is None:
        raise GearError(f"{source.name}: name a folder with its data, --data DIR. {_advice(source)}")
    try:
        import datasets
    except ModuleNotFoundError:
        raise GearError(
            f"{source.name}: reading {source.hub} from the hub needs the package datasets: pip install 'gear-rl[trl]'. "
            f"Or name a folder, --data DIR. {_advice(source)}"
        ) from None
    datasets.utils.logging.disable_progress_bar()
    for library in ("datasets", "huggingface_hub"):  # a line per attempt; ours says what came of them
        logging.getLogger(library).setLevel(logging.ERROR)
    what = f"{source.hub}{f' ({source.config})' if source.config else ''}, split {source.split}"
    try:
        rows = datasets.load_dataset(source.hub, source.config, split=source.split)
    except Exception as error:  # datasets raises much, from HTTP errors to its own; all mean: it is not to be had
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise GearError(
            f"{source.name}: {what}, could not be loaded from the hub: {reason.rstrip('.')}. "
            f"No network? Name a folder, --data DIR. {_advice(source)}"
        ) from None
    return (Record(f"{what}, row {i}", dict(row)) for i, row in enumerate(rows))


def _advice(source: Source) -> str:
    on_hub = f", or hub data set {source.hub}" if source.hub else ""
    return f"It should hold {source.files[0]}: {source.home}{on_hub}."


def read_records(path: Path) -> Iterator[Record]:
    """By ending: .jsonl, .jsonl.gz, .json (one list) or .parquet."""
    if path.name.endswith(".parquet"):
        from pyarrow import parquet

        try:
            rows = parquet.read_table(path).to_pylist()
        except Exception as error:  # pyarrow's own types, several
            raise GearError(f"{path}: no readable parquet file: {str(error).splitlines()[0]}") from None
        return (Record(f"{path}, row {i}", row) for i, row in enumerate(rows))
    if path.name.endswith(".json"):
        return _read_list(path)
    return read_lines(path)


def _read_list(path: Path) -> Iterator[Record]:
    rows = parse_json(path.read_bytes(), str(path))
    if not isinstance(rows, list):
        raise GearError(f"{path}: must hold a list of objects.")
    for i, row in enumerate(rows):
        yield _record(f"{path}, item {i}", row)


def read_lines(path: Path) -> Iterator[Record]:
    """A file of one JSON object a line, whatever its ending; blank lines are skipped."""
    with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as file:
        try:
            for where, row in json_lines(cast(BinaryIO, file), path, LONGEST_LINE):
                yield _record(where, row)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise GearError(f"{path}: cannot be read: {error}.") from None


def _record(where: str, row: Any) -> Record:
    if not isinstance(row, dict):
        raise GearError(f"{where}: must be an object of columns and values, not {type(row).__name__}.")
    return Record(where, row)


def number_text(value: int | float) -> str:
    """27.0 → "27": several sets write whole answers as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def announce(text: str) -> None:
    """What a loader did that the user must know of, such as problems it removed: a line on standard error."""
    print(f"gear: {text}", file=sys.stderr, flush=True)
