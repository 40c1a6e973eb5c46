"""A run's record as a source: the rollouts it was trained on, in thirds of the training, with the signals it kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.localize.labelled import Labelled, Part, token_units
from gear_rl.records.record import RecordedRollout, open_record, to_rollouts

PARTS = 3
MOST_TOKENS = 2_000_000
"""Held at once; a record with more is thinned by the user, not silently by us."""


def from_record(path: Path) -> tuple[dict[str, Any], list[Part]]:
    """The record's header, and a part per third of the steps."""
    record = path / "rollouts.jsonl" if path.is_dir() else path
    header, lines = open_record(record)
    rollouts = []
    tokens = 0
    for line in lines:
        tokens += len(line.token_ids)
        if tokens > MOST_TOKENS:
            raise GearError(f"{record} has more than {MOST_TOKENS} tokens; localize a part of it.")
        if "decision" not in line.signals:
            raise GearError(
                f"{record} does not say which decisions were wrong (signal 'decision'): its task, "
                f"{str(header.get('task'))[:40]!r}, cannot know."
            )
        rollouts.append(line)
    if not rollouts:
        raise GearError(f"{record} has a header and no rollouts.")
    first, last = rollouts[0].step, max(line.step for line in rollouts)
    thirds: dict[int, list[RecordedRollout]] = {}
    for line in rollouts:
        third = min(PARTS - 1, (line.step - first) * PARTS // max(1, last - first + 1))
        thirds.setdefault(third, []).append(line)
    return header, [_part(thirds[third]) for third in sorted(thirds)]


def _part(lines: list[RecordedRollout]) -> Part:
    rollouts = to_rollouts(lines)
    labelled = Labelled(
        rollouts=rollouts,
        units=token_units(rollouts.action_mask),
        wrong=(rollouts.signals["decision"] < 0) & rollouts.action_mask,
        problems=[line.prompt for line in lines],
    )
    known = [line.success for line in lines if line.success is not None]
    facts = {"success": sum(known) / len(known)} if known else {}
    return Part(f"steps {lines[0].step}–{lines[-1].step}", "as recorded", labelled, facts=facts)
