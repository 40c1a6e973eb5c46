"""Measured advantages of turns, in a file beside the record: `gear credit --check` writes it, `gear report` reads it.

    rollouts.jsonl  →  rollouts.measured.json

The rollouts are named by step, group and place in the group, and each by a digest of its tokens, so that a file which belongs
to other rollouts is noticed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import read_json
from gear_rl.records.recorded import are_counts

SCHEMA, VERSION = "gear_rl.measured", 1
PLACES = ("step", "group", "rollout", "turn")
"""Whole numbers that name a turn. Rollouts of a group are counted from 0, turns from 1 as in the record."""
NUMBERS = ("advantage", "before", "after")


def measured_path(record: Path) -> Path:
    return record.with_name(f"{record.stem}.measured.json")


def token_digest(token_ids: Sequence[int]) -> str:
    return hashlib.blake2b(",".join(map(str, token_ids)).encode(), digest_size=8).hexdigest()


def read_measured(path: Path) -> list[dict[str, Any]]:
    """The turns, each with `PLACES`, `NUMBERS`, an "interval", "continuations", "tokens" (the rollout's digest) and
    "credit" (method → number). Every field is checked: the file may come from anywhere."""
    content = read_json(path)
    if content.get("schema") != SCHEMA or content.get("version") != VERSION:
        raise GearError(f"{path} does not hold measured turns (a {SCHEMA!r} of version {VERSION}).")
    turns = content.get("turns")
    if not isinstance(turns, list):
        raise GearError(f"{path} is damaged: it has no list of turns.")
    return [_checked(turn, f"{path}, turn {i}") for i, turn in enumerate(turns)]


def _checked(turn: Any, where: str) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise GearError(f"{where}: damaged, not an object.")
    interval, credit = turn.get("interval"), turn.get("credit")
    fits = {
        **{name: are_counts([turn.get(name)]) for name in (*PLACES, "continuations")},
        **{name: _is_number(turn.get(name)) for name in NUMBERS},
        "interval": isinstance(interval, list) and len(interval) == 2 and all(map(_is_number, interval)),
        "tokens": isinstance(turn.get("tokens"), str),
        "credit": isinstance(credit, dict) and all(map(_is_number, credit.values())),
    }
    for name, good in fits.items():
        if not good:
            raise GearError(f"{where}: damaged, {name} is {str(turn.get(name))[:40]!r}.")
    return {name: turn[name] for name in fits}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
