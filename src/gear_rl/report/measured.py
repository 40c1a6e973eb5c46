"""Measured advantages of turns beside a record (`gear credit --check`), given to the rollouts that they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gear_rl.records.measured import measured_path, read_measured, token_digest
from gear_rl.records.record import RecordedRollout

SHOWN = ("turn", "advantage", "interval", "continuations", "credit")


class Measured:
    """Of one record; empty where nothing was measured. It must be asked about the rollouts in the record's order."""

    def __init__(self, record: Path) -> None:
        self.path = measured_path(record)
        self._turns: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self.others = 0
        """Measured turns of rollouts with other tokens than the record's."""
        for turn in read_measured(self.path) if self.path.exists() else ():
            self._turns.setdefault((turn["step"], turn["group"], turn["rollout"]), []).append(turn)

    def of(self, rollout: RecordedRollout) -> list[dict[str, Any]]:
        """The measured turns of the record's next rollout, as the page holds them."""
        key = (rollout.step, rollout.group)
        place = self._seen[key] = self._seen.get(key, -1) + 1
        turns = self._turns.get((*key, place), [])
        own = [turn for turn in turns if turn["tokens"] == token_digest(rollout.token_ids)]
        self.others += len(turns) - len(own)
        return [{name: turn[name] for name in SHOWN} for turn in own]
