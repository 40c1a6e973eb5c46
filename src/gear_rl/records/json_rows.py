"""Rows of any JSON file from outside: an array, one object, or JSON Lines, within limits of size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import well_formed
from gear_rl.errors import GearError
from gear_rl.files import json_lines, kind_of, parse_json

LARGEST_FILE, LONGEST_LINE = 256 * 2**20, 64 * 2**20
"""Bytes. Rows of a group may be anywhere in a file, so it is read whole. Split larger ones by group."""


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, row) of a JSON array, a single JSON object, or JSON Lines."""
    if not path.exists():
        raise GearError(f"there is no file {path}.")
    if not path.is_file():
        raise GearError(f"{path} is not a file.")
    if path.stat().st_size > LARGEST_FILE:
        size = path.stat().st_size / 2**20
        raise GearError(f"{path} has {size:.0f} MiB; at most {LARGEST_FILE >> 20} are read at once. Split it by group.")
    with open(path, "rb") as file:
        first = file.readline(LONGEST_LINE)
        while first and not first.strip():
            first = file.readline(LONGEST_LINE)
        if not first:
            raise GearError(f"{path} is empty.")
        if first.lstrip()[:1] == b"[" or first.strip() == b"{":  # one document, over as many lines as it likes
            file.seek(0)
            yield from _rows_of_document(path, file.read())
            return
        file.seek(0)
        for where, row in json_lines(file, path, LONGEST_LINE, strict=True):
            yield where, _object(row, where)


def _rows_of_document(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    content = parse_json(data, str(path), strict=True)
    if isinstance(content, dict):
        yield f"{path}", content
        return
    for number, row in enumerate(content if isinstance(content, list) else [content], start=1):
        where = f"{path}, row {number}"
        yield where, _object(row, where)


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise GearError(f"{where}: must be an object with keys and values, not {kind_of(row)}.")
    try:
        return well_formed(row)
    except RecursionError:
        raise GearError(f"{where}: nested too deeply.") from None
