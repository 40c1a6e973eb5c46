"""What every service desk of the benchmark has: a database, refusals in words, and the tools that are the same everywhere."""

from __future__ import annotations

from typing import ClassVar

from gear_rl.chat.tool_calls import Refused
from gear_rl.tasks.tools.tau.calculator import calculate
from gear_rl.tasks.tools.tau.records import Database, Record


class ServiceTools:
    """Every public method is a tool. It returns what the agent reads, or raises `Refused` with the database unchanged."""

    domain: ClassVar[str]
    """The folder of its data, and the category of its problems."""
    tables: ClassVar[tuple[str, ...]]
    terminating: ClassVar[frozenset[str]] = frozenset({"transfer_to_human_agents"})
    """Tools that end the dialogue."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def calculate(self, expression: str) -> str:
        try:
            return calculate(expression)
        except ValueError as error:
            raise Refused(str(error)) from None

    def think(self, thought: str) -> str:
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        return "Transfer successful"

    def _read(self, table: str, key: str, otherwise: str) -> Record:
        record = self._db.read(table, key)
        if record is None:
            raise Refused(otherwise)
        return record
