"""The benchmark's world for one rollout: run calls against the database, and compare it with what the reference calls leave."""

from __future__ import annotations

from typing import Any

from gear_rl.chat.tool_calls import UNFIT, Refused, ToolCall, problem_with
from gear_rl.tasks.tools.tau.records import Database, Tables
from gear_rl.tasks.tools.tau.service import ServiceTools


class World:
    """A database of its own over shared tables, and the tools that change it."""

    def __init__(self, tools: type[ServiceTools], tables: Tables, schemas: list[dict[str, Any]]) -> None:
        self.database = Database(tables)
        self.tools = tools(self.database)
        self.schemas = schemas

    def problem(self, call: ToolCall) -> str | None:
        """What is wrong with the call by the tools' schemas."""
        return problem_with(call, self.schemas)

    def call(self, call: ToolCall) -> str:
        """What the agent reads. Anything wrong with the call is an error message, and changes nothing."""
        wrong = self.problem(call)
        if wrong:
            return f"Error: {wrong}"
        try:
            return getattr(self.tools, call.name)(**call.arguments)
        except Refused as refusal:
            return f"Error: {refusal}"
        except UNFIT as error:
            return f"Error: {call.name} cannot be carried out with these arguments ({error!r})"

    def changes(self) -> Any:
        """What differs from the beginning, comparable."""
        return self.database.changes()

    def ends(self, call: ToolCall) -> bool:
        return call.name in self.tools.terminating

    def after(self, actions: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
        """What the reference calls change; those that end a dialogue change nothing."""
        for action in actions:
            if action["name"] not in self.tools.terminating:
                self.call(ToolCall(action["name"], action["arguments"]))
        return self.database.changes()


def was_said(output: str, messages: list[str]) -> bool:
    """As the benchmark compares: case and the commas of large numbers do not count."""
    return any(output.lower() in message.lower().replace(",", "") for message in messages)
