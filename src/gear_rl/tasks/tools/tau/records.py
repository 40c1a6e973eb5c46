"""A database that many rollouts share and each may change: copy on write, and comparison the way the benchmark hashes it.

τ-bench calls two databases equal when the SHA-256 of their canonical text is equal (dictionaries sorted, lists in order,
250 and 250.0 different). Comparing the canonical text of the changed records alone gives the same answer and costs
0.1 ms, where hashing a whole airline takes a few tenths of a second.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]
Tables = dict[str, dict[str, Record]]


def canonical(value: Any) -> Any:
    """A hashable twin: dictionaries as sorted tuples of pairs, lists as tuples."""
    if isinstance(value, dict):
        return tuple((key, canonical(item)) for key, item in sorted(value.items()))
    if isinstance(value, list):
        return tuple(canonical(item) for item in value)
    return value


class Database:
    """Tables of records by key. `tables` is never modified; what a rollout changes lives here."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._changed: dict[tuple[str, str], Record] = {}

    def read(self, table: str, key: str) -> Record | None:
        """The record as it stands, or None. Not to be modified: see `edit`."""
        own = self._changed.get((table, key))
        return self.tables[table].get(key) if own is None else own

    def edit(self, table: str, key: str) -> Record:
        """This rollout's own copy of an existing record."""
        if (table, key) not in self._changed:
            self._changed[table, key] = copy.deepcopy(self.tables[table][key])
        return self._changed[table, key]

    def add(self, table: str, key: str, record: Record) -> None:
        self._changed[table, key] = record

    def each(self, table: str) -> Iterator[Record]:
        """All records in the order of the file, new ones last."""
        for key, record in self.tables[table].items():
            yield self._changed.get((table, key), record)
        for (of, key), record in self._changed.items():
            if of == table and key not in self.tables[table]:
                yield record

    def changes(self) -> dict[tuple[str, str], str]:
        """Canonical text of every record that differs from the shared tables. Equal changes ⇔ equal hashes."""
        found = {}
        for (table, key), record in self._changed.items():
            text = str(canonical(record))
            before = self.tables[table].get(key)
            if before is None or str(canonical(before)) != text:
                found[table, key] = text
        return found

    def hash(self) -> str:
        """The benchmark's own hash of the whole database. Slow: for checks against recorded hashes."""
        whole = {name: dict(records) for name, records in self.tables.items()}
        for (table, key), record in self._changed.items():
            whole[table][key] = record
        return hashlib.sha256(str(canonical(whole)).encode()).hexdigest()
