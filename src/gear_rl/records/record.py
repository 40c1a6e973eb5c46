"""The record of a run: every rollout with its tokens, signals and credit, as JSON Lines.

Line 1 is a header, `{"schema": "gear_rl.rollouts", "version": 1, "method": ..., ...}`; every later line is one rollout,
in the order of training. Lists hold one entry per token of the completion. Floats keep six significant digits.
The file only grows, line by line: a killed run leaves at most its last line torn, which `RecordWriter` drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError
from gear_rl.files import LineFile
from gear_rl.records.recorded import RecordedRollout, are_counts, checked, parse_line
from gear_rl.scoring.padding import padded

SCHEMA, VERSION = "gear_rl.rollouts", 1
LONGEST_LINE = 256 * 2**20
"""Bytes. Far above any rollout (about 100 per token), and a bound on what a hostile file can make us read."""


@dataclass(frozen=True)
class Record:
    """A whole record in memory. `open_record` reads one of any size, a rollout at a time."""

    header: dict[str, Any]
    rollouts: list[RecordedRollout]


# ---------------------------------------------------------------------------------------------------- writing
class RecordWriter:
    """Appends to the record at `path`. A new one starts with `header`.

    An existing record is continued if its header is the same; a last line torn by a kill is dropped.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._file = LineFile(self.path)
        self._step, self._groups_of_step = -1, 0
        try:
            self._start_or_continue(_to_line({"schema": SCHEMA, "version": VERSION, **header}))
        except BaseException:
            self._file.close()
            raise

    def _start_or_continue(self, header: bytes) -> None:
        """Truncates nothing before the header has shown that the file is ours."""
        with open(self.path, "rb") as file:
            first = file.readline(len(header))
            if header.startswith(first) and not first.endswith(b"\n"):  # new, or killed within the header
                self._file.truncate(0)
                self._file.append(header)
                return
            file.seek(0)
            found, wanted = _read_header(self.path, file), json.loads(header)
        if found != wanted:
            differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
            raise GearError(f"{self.path} is the record of another run: its {', '.join(differing)} differ.")
        self._file.drop_torn_line()

    def write(
        self,
        *,
        step: int,
        rollouts: Rollouts,
        credit: Credit,
        prompts: Sequence[str],
        hinted_prompts: Sequence[str | None] | None,
        token_texts: Sequence[Sequence[str]],
        successes: Sequence[bool | None] | None = None,
    ) -> None:
        """Append a batch of B rollouts. `token_texts[i]` has a text per token of completion i; what follows in the
        (B, T) tensors is padding. All of it is written, or none."""
        if step != self._step:
            self._step, self._groups_of_step = step, 0
        # An engine may sample several batches within one step, and number the groups of each from 0.
        groups = [group + self._groups_of_step for group in rollouts.group_ids.tolist()]
        if len(token_texts) != len(groups):
            raise GearError(f"{len(groups)} rollouts, but token texts of {len(token_texts)}.")
        lists = _as_lists(rollouts, credit)
        lines = []
        for i, texts in enumerate(token_texts):
            n = len(texts)
            mask = lists["action_mask"][i]
            if any(mask[n:]):
                raise GearError(f"rollout {i} has {n} token texts, but action tokens beyond position {n - 1}.")
            signals = {
                name: [_short(x) if sampled else None for x, sampled in zip(rows[i][:n], mask[:n], strict=True)]
                for name, rows in lists["signals"].items()
            }
            line = RecordedRollout(
                step=step,
                group=groups[i],
                reward=_short(float(rollouts.rewards[i])),
                success=None if successes is None else successes[i],
                group_advantage=None if rollouts.advantages is None else _short(float(rollouts.advantages[i])),
                prompt=prompts[i],
                hinted_prompt=None if hinted_prompts is None else hinted_prompts[i],
                token_ids=lists["token_ids"][i][:n],
                token_texts=list(texts),
                action_mask=mask[:n],
                turns=lists["turns"][i][:n],
                signals=signals,
                segments=lists["segments"][i][:n],
                onsets=lists["onsets"][i][:n],
                weights=[_short(x) for x in lists["weights"][i][:n]],
                advantages=[_short(x) for x in lists["advantages"][i][:n]],
            )
            lines.append(_to_line(vars(line)))
        self._file.append(b"".join(lines))
        self._groups_of_step = max(groups) + 1

    def truncate_after(self, step: int) -> None:
        """Drop all rollouts of later steps, and a torn last line: the record as it stood when `step` was done.

        One truncation, so a kill leaves the file either as it was or as it should be.
        """
        self._step, self._groups_of_step = -1, 0
        with open(self.path, "rb") as file:
            _read_header(self.path, file)
            keep = file.tell()
            for rollout in _read_lines(self.path, file, tolerate_torn_end=True):
                if rollout["step"] > step:
                    break
                if rollout["step"] != self._step:
                    self._step, self._groups_of_step = rollout["step"], 0
                self._groups_of_step = max(self._groups_of_step, rollout["group"] + 1)
                keep = file.tell()
        self._file.truncate(keep)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_lists(rollouts: Rollouts, credit: Credit) -> dict[str, Any]:
    """All (B, T) tensors as nested lists, one transfer each."""
    if rollouts.token_ids is None:
        raise GearError("a record needs the tokens themselves: Rollouts(token_ids=...).")
    return {
        "token_ids": rollouts.token_ids.tolist(),
        "action_mask": rollouts.action_mask.long().tolist(),
        "turns": rollouts.actions.unpack(rollouts.actions.turn_starts.cumsum(1)).tolist(),
        "signals": {name: signal.tolist() for name, signal in rollouts.signals.items()},
        "segments": credit.segments.tolist(),
        "onsets": credit.onsets.long().tolist(),
        "weights": credit.weights.tolist(),
        "advantages": credit.advantages.tolist(),
    }


def _short(x: float) -> float:
    """Six significant digits: float32 has little more, and the file is half as long."""
    return float(f"{x:.6g}")


def _to_line(content: Mapping[str, Any]) -> bytes:
    # ASCII escapes, because model output may have lone surrogates and Unicode line ends. NaN is not JSON and raises.
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


# ---------------------------------------------------------------------------------------------------- reading
def read_record(path: str | Path) -> Record:
    """The record at `path`, checked line by line."""
    header, rollouts = open_record(path)
    return Record(header, list(rollouts))


def open_record(path: str | Path) -> tuple[dict[str, Any], Iterator[RecordedRollout]]:
    """The header at once, and the rollouts one at a time: for records larger than memory."""
    path = Path(path)
    if not path.exists():
        raise GearError(f"there is no record {path}.")
    if not path.is_file():
        raise GearError(f"{path} is not a file; a record is one file, such as rollouts.jsonl of a run.")
    with open(path, "rb") as file:
        return _read_header(path, file), _rollouts(path)


def _rollouts(path: Path) -> Iterator[RecordedRollout]:
    with open(path, "rb") as file:
        _read_header(path, file)
        for number, content in enumerate(_read_lines(path, file), start=2):
            yield checked(content, f"{path}, line {number}")


def _read_header(path: Path, file: BinaryIO) -> dict[str, Any]:
    line = file.readline(LONGEST_LINE)
    if not line.strip():
        raise GearError(f"{path} is empty: not even a header.")
    try:
        header = parse_line(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise GearError(f"{path} is not a record of rollouts: its first line is not a {SCHEMA!r} header.")
    version = header.get("version")
    if version != VERSION:
        raise GearError(f"{path} is a record of version {version!r}; this gear_rl reads version {VERSION}.")
    return header


def _read_lines(path: Path, file: BinaryIO, tolerate_torn_end: bool = False) -> Iterator[dict[str, Any]]:
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
        try:
            content = parse_line(line)
        except ValueError as error:
            raise GearError(f"{where}: corrupt, not JSON ({error}).") from None
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
        rewards=torch.tensor([line.reward for line in lines], dtype=torch.float32),
        group_ids=torch.tensor([number[line.step, line.group] for line in lines]),
        turn_ids=padded([line.turns for line in lines]),
        advantages=None if from_rewards or None in given else torch.tensor(given, dtype=torch.float32),
        token_ids=padded([line.token_ids for line in lines]),
        signals={
            name: padded([[0 if x is None else x for x in line.signals[name]] for line in lines], torch.float32)
            for name in names
        },
    )
