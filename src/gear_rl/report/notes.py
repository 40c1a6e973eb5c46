"""Notes of a reader, kept in a file beside the run: one text per rollout or token. Whoever can reach the file may have
written it, so it is checked and bounded when read, and what the page sends is checked before it is written."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gear_rl.errors import GearError
from gear_rl.files import read_json, write_json

SCHEMA, VERSION = "gear_rl.notes", 1
MOST_NOTES, LONGEST_NOTE = 2000, 4000
"""Notes in a file, and characters of one."""
_PLACE = ("step", "group", "rollout")


@dataclass(frozen=True)
class Note:
    step: int
    group: int
    rollout: int
    """Of its group, counted from 1."""
    token: int | None
    """Of its completion, counted from 0; None: the note is about the whole rollout."""
    text: str

    @property
    def place(self) -> tuple[int, int, int, int | None]:
        return self.step, self.group, self.rollout, self.token


def notes_path(run: Path) -> Path:
    """`notes.json` in a run's folder; beside a record, its name with `.notes.json`."""
    return run / "notes.json" if run.is_dir() else run.with_suffix(".notes.json")


class Notes:
    """The notes in the file at `path`. Several requests may come at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def read(self) -> list[Note]:
        if not self.path.exists():
            return []
        content = read_json(self.path)
        if content.get("schema") != SCHEMA or content.get("version") != VERSION:
            raise GearError(f"{self.path} is not a file of notes of version {VERSION}. Move it elsewhere.")
        rows = content.get("notes")
        if not isinstance(rows, list) or len(rows) > MOST_NOTES:
            raise GearError(f"{self.path} is damaged: notes must be a list of at most {MOST_NOTES}.")
        return [checked_note(row, f"{self.path}, note {number}") for number, row in enumerate(rows, start=1)]

    def put(self, note: Note) -> list[Note]:
        """Replace the note of that place; an empty text removes it. All notes after that."""
        with self._lock:
            kept = [other for other in self.read() if other.place != note.place]
            if note.text.strip():
                kept.append(note)
            if len(kept) > MOST_NOTES:
                raise GearError(f"{self.path} holds {MOST_NOTES} notes, the most there can be. Remove one first.")
            write_json(self.path, {"schema": SCHEMA, "version": VERSION, "notes": [asdict(other) for other in kept]})
            return kept


def checked_note(row: Any, where: str) -> Note:
    if not isinstance(row, dict) or not row.keys() <= {*_PLACE, "token", "text"}:
        raise GearError(f"{where}: must be an object with {', '.join(_PLACE)}, token and text.")
    token, text = row.get("token"), row.get("text")
    if not all(_is_count(row.get(name)) for name in _PLACE) or not (token is None or _is_count(token)):
        raise GearError(f"{where}: {', '.join(_PLACE)} and token must be whole numbers.")
    if not isinstance(text, str) or len(text) > LONGEST_NOTE:
        raise GearError(f"{where}: text must be at most {LONGEST_NOTE} characters of text.")
    return Note(row["step"], row["group"], row["rollout"], token, text)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31
