"""The record of a run: every rollout with its tokens, signals and credit, as JSON Lines.

Line 1 is a header, `{"schema": "gear_rl.rollouts", "version": 1, "method": ..., ...}`; every later line is one rollout,
in the order of training. Lists hold one entry per token of the completion. Floats keep six significant digits.
The file only grows, line by line: a killed run leaves at most its last line torn, which `gear_rl.records.writer` drops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError
from gear_rl.files import parse_json
from gear_rl.records.recorded import RecordedRollout, are_counts, checked
from gear_rl.scoring.padding import padded

SCHEMA, VERSION = "gear_rl.rollouts", 1
LONGEST_LINE = 256 * 2**20
"""Bytes. Far above any rollout (about 100 per token), and a bound on what a hostile file can make us read."""


@dataclass(frozen=True)
class Record:
    """A whole record in memory. `open_record` reads one of any size, a rollout at a time."""

    header: dict[str, Any]
    rollouts: list[RecordedRollout]


def is_record(path: Path) -> bool:
    """Whether `path` is a record of gear_rl, of whatever version."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        first = file.readline(LONGEST_LINE)
    try:
        header = parse_json(first, str(path))
    except GearError:
        return False
    return isinstance(header, dict) and header.get("schema") == SCHEMA


def read_record(path: str | Path) -> Record:
    """The record at `path`, checked line by line."""
    header, rollouts = open_record(path)
    return Record(header, list(rollouts))


def open_record(path: str | Path, *, growing: bool = False) -> tuple[dict[str, Any], Iterator[RecordedRollout]]:
    """The header at once, and the rollouts one at a time: for records larger than memory. `growing`: another process
    writes it, so a last line that is cut off is one that is being written."""
    path = Path(path)
    if not path.exists():
        raise GearError(f"there is no record {path}.")
    if not path.is_file():
        raise GearError(f"{path} is not a file; a record is one file, such as rollouts.jsonl of a run.")
    with open(path, "rb") as file:
        return read_header(path, file), _rollouts(path, growing)


def _rollouts(path: Path, growing: bool) -> Iterator[RecordedRollout]:
    with open(path, "rb") as file:
        read_header(path, file)
        for number, content in enumerate(read_lines(path, file, tolerate_torn_end=growing), start=2):
            yield checked(content, f"{path}, line {number}")


def read_header(path: Path, file: BinaryIO) -> dict[str, Any]:
    line = file.readline(LONGEST_LINE)
    if not line.strip():
        raise GearError(f"{path} is empty: not even a header.")
    try:
        header = parse_json(line, str(path), strict=True)
    except GearError:
        header = None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise GearError(f"{path} is not a record of rollouts: its first line is not a {SCHEMA!r} header.")
    version = header.get("version")
    if version != VERSION:
        raise GearError(f"{path} is a record of version {version!r}; this gear_rl reads version {VERSION}.")
    return header


def read_lines(path: Path, file: BinaryIO, tolerate_torn_end: bool = False) -> Iterator[dict[str, Any]]:
    """The JSON objects after the header; each has at least a step and a group."""
    number = 1
    while line := file.readline(LONGEST_LINE):
        number += 1
        where = f"{path}, line {number}"
        if not line.endswith(b"\n"):
            if tolerate_torn_end and len(line) < LONGEST_LINE:
                return
            raise GearError(
                f"{where}: cut off after {len(line)} bytes, as a killed run leaves it. `gear train --resume` drops it; "
                f"by hand, delete that line: the {number - 1} before it are whole."
            )
        content = parse_json(line, where, strict=True)
        if not isinstance(content, dict) or not are_counts([content.get("step"), content.get("group")]):
            raise GearError(f"{where}: corrupt, no rollout with a step and a group.")
        yield content


# ---------------------------------------------------------------------------------------------------- back to tensors
def to_rollouts(lines: Iterable[RecordedRollout], *, from_rewards: bool = False) -> Rollouts:
    """Recorded rollouts as the padded tensors that a method reads: (B,), and (B, T) with T the longest completion.

    Includes the engine's group advantages, as in training; `from_rewards=True` leaves them out, so that a method
    computes its own. Rollouts of several steps may be given: a group is a group of one step.
    """
    lines = list(lines)
    if not lines:
        raise GearError("no rollouts in the record.")
    names = dict.fromkeys(chain.from_iterable(line.signals for line in lines))
    for i, line in enumerate(lines):
        if missing := [name for name in names if name not in line.signals]:
            raise GearError(f"rollout {i} (step {line.step}) has no signal {missing[0]!r}, which others here have.")
    number = {key: n for n, key in enumerate(dict.fromkeys((line.step, line.group) for line in lines))}
    given = [line.group_advantage for line in lines]
    return Rollouts(
        action_mask=padded([line.action_mask for line in lines], torch.bool),
        rewards=torch.tensor([math.nan if line.reward is None else line.reward for line in lines], dtype=torch.float32),
        group_ids=torch.tensor([number[line.step, line.group] for line in lines]),
        turn_ids=padded([line.turns for line in lines]),
        advantages=None if from_rewards or None in given else torch.tensor(given, dtype=torch.float32),
        token_ids=padded([line.token_ids for line in lines]),
        signals={
            name: padded([[0 if x is None else x for x in line.signals[name]] for line in lines], torch.float32)
            for name in names
        },
        trained=torch.tensor([line.trained for line in lines]),
    )
