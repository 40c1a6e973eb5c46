"""What `gear report` reads: a run folder, a record alone, or messages. Everything but the rollouts is read here.

A run folder is data as much as the record in it: every file may be missing, half written, or from elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import parse_json, read_json
from gear_rl.records.record import LONGEST_LINE, RecordedRollout, is_record, open_record
from gear_rl.report.from_messages import Conversations, find_conversations
from gear_rl.training.run_folder import RunFolder


class NothingRecorded(GearError):
    """A run that has no rollouts yet; a training may be about to write some."""


LONGEST_METRICS = 512 * 2**20
"""Bytes. A million steps of fifty metrics; more is not a log of a run."""


@dataclass
class Source:
    """One RUN of the command line."""

    path: Path
    record: Path
    header: dict[str, Any]
    config: dict[str, Any] | None = None
    """The run's configuration; None for a record alone."""
    metrics: list[dict[str, float]] = field(default_factory=list)
    """A line per optimizer step: "step", and whatever was logged as a finite number."""
    evaluation: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What is missing and why, for the reader."""
    conversations: Conversations | None = None
    """What a file of messages holds; None for a record."""
    growing: bool = False
    """Whether a training may be writing it."""
    name: str = ""
    """What tells this run from the others on the page; `name_runs` gives it."""

    @property
    def method(self) -> str:
        return _word(self.header.get("method"), "unnamed method")

    @property
    def task(self) -> str:
        return _word(self.header.get("task"), "unnamed task")

    def rollouts(self) -> Iterator[RecordedRollout]:
        if self.conversations is not None:
            return self.conversations.rollouts()
        return open_record(self.record, growing=self.growing)[1]


def open_source(path: Path, *, growing: bool = False) -> Source:
    """`path` as far as it can be checked without reading the rollouts. `growing`: a training may be writing it."""
    if not path.exists():
        raise GearError(f"there is no run or record {path}.")
    if not path.is_dir():
        if path.is_file() and not is_record(path) and (found := find_conversations(path)) is not None:
            return Source(path, path, found.header, conversations=found, notes=[found.note])
        header, _ = open_record(path)
        return Source(path, path, header, growing=growing)
    folder, config = RunFolder.open(path)
    if not folder.rollouts.exists() or (growing and not _has_header(folder.rollouts)):
        raise NothingRecorded(f"{path} has no rollouts.jsonl: nothing was recorded yet, so there is no credit to show.")
    header, _ = open_record(folder.rollouts)
    source = Source(path, folder.rollouts, header, config, growing=growing)
    source.metrics = _read_metrics(folder.metrics, source.notes, growing)
    source.evaluation = _read_evaluation(folder.evaluation, source.notes)
    return source


def name_runs(sources: list[Source]) -> None:
    """By method; where two have the same, by method and path; the same path twice is an error."""
    paths = Counter(source.record.resolve() for source in sources)
    for source in sources:
        if paths[source.record.resolve()] > 1:
            raise GearError(f"{source.path} is given twice.")
    methods = Counter(source.method for source in sources)
    for source in sources:
        source.name = source.method if methods[source.method] == 1 else f"{source.method} · {source.path.name}"
    names = Counter(source.name for source in sources)
    for source in sources:
        if names[source.name] > 1:
            source.name = f"{source.method} · {source.path}"


def _has_header(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.readline(LONGEST_LINE).endswith(b"\n")


def _word(value: Any, otherwise: str) -> str:
    """A header is untrusted: only a text is a name, and not a long one."""
    return value[:80] if isinstance(value, str) and value else otherwise


def _read_metrics(path: Path, notes: list[str], growing: bool) -> list[dict[str, float]]:
    if not path.exists():
        notes.append("No training curves: the run has no metrics.jsonl.")
        return []
    if path.stat().st_size > LONGEST_METRICS:
        raise GearError(f"{path} has {path.stat().st_size} bytes; that is not a log of a run.")
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop()
    rows: list[dict[str, float]] = []
    infinite = 0
    for number, line in enumerate(lines, start=1):
        content = parse_json(line, f"{path}, line {number}")
        if not isinstance(content, dict) or type(content.get("step")) is not int:
            raise GearError(f"{path}, line {number}: corrupt, no metrics with a step.")
        if rows and content["step"] <= rows[-1]["step"]:
            raise GearError(f"{path}, line {number}: step {content['step']} follows step {rows[-1]['step']:.0f}.")
        numbers = {key: value for key, value in content.items() if type(value) in (int, float)}
        finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
        infinite += len(numbers) - len(finite)
        rows.append(finite)
    if torn and not growing:
        notes.append("The last line of metrics.jsonl is cut off, as a killed run leaves it; it was left out.")
    if infinite:
        notes.append(f"{infinite} logged values are NaN or infinite: gaps in the curves.")
    if not rows:
        notes.append("No training curves: metrics.jsonl is empty.")
    return rows


def _read_evaluation(path: Path, notes: list[str]) -> dict[str, Any]:
    """{"before" | "after": {"sampled" | "greedy" | …: {measure: number, measure + "_interval": [low, high]}}}"""
    if not path.exists():
        notes.append("No evaluation: the run has no evaluation.json.")
        return {}
    content = read_json(path, strict=False)
    kept = {}
    for when in ("before", "after"):
        ways = content.get(when)
        if ways is None:
            notes.append(f"No evaluation {when} training" + (": the run is unfinished." if when == "after" else "."))
            continue
        if not isinstance(ways, dict) or not all(isinstance(way, dict) for way in ways.values()):
            raise GearError(f"{path} is damaged: {when!r} has no scores.")
        kept[when] = {str(how): _scores(scores) for how, scores in ways.items()}
    return kept


def _scores(scores: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in scores.items():
        if _finite(value) or (isinstance(value, list) and len(value) == 2 and all(map(_finite, value))):
            kept[name] = value
    return kept


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
