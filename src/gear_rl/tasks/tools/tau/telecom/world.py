"""One rollout's carrier and phone, and who may use which tools."""

from __future__ import annotations

import json
from typing import Any

from gear_rl.chat.tool_calls import UNFIT, Refused, ToolCall, problem_with
from gear_rl.tasks.schemas import tools_of_class
from gear_rl.tasks.tools.tau.telecom.carrier import Carrier
from gear_rl.tasks.tools.tau.telecom.phone import Phone
from gear_rl.tasks.tools.tau.telecom.setup import Setup

AGENT_TOOLS, PHONE_TOOLS = tools_of_class(Carrier), tools_of_class(Phone)
ENDING = "transfer_to_human_agents"
Step = dict[str, Any]
"""{"func_name": …, "arguments": {…}} as the data writes it."""


class TelecomWorld:
    def __init__(self, tables: dict[str, Any], device: dict[str, Any], beginning: list[Step], solo: bool) -> None:
        self._carrier = Carrier(tables)
        self._phone = Phone(device, self._carrier)
        self._setup = Setup(self._phone, self._carrier)
        for step in beginning:
            getattr(self._setup, step["func_name"])(**step["arguments"])
        self._agents = [*AGENT_TOOLS, *PHONE_TOOLS] if solo else AGENT_TOOLS
        self.calls: list[ToolCall] = []
        """Every call that was carried out, the agent's and the user's."""

    def problem(self, call: ToolCall) -> str | None:
        """What is wrong with an agent's call by the tools' schemas."""
        return problem_with(call, self._agents)

    def call(self, call: ToolCall) -> str:
        """What the agent reads. Anything wrong with the call is an error message, and changes nothing."""
        return self._carried_out(call, self._agents)

    def on_the_phone(self, call: ToolCall) -> str:
        """The same for the user, who has the phone."""
        return self._carried_out(call, PHONE_TOOLS)

    def _carried_out(self, call: ToolCall, tools: list[dict[str, Any]]) -> str:
        wrong = problem_with(call, tools)
        if wrong:
            return f"Error: {wrong}"
        try:
            app = self._carrier if hasattr(self._carrier, call.name) else self._phone
            answer = json.dumps(getattr(app, call.name)(**call.arguments), ensure_ascii=False)
        except Refused as refusal:
            return f"Error: {refusal}"
        except UNFIT as error:
            return f"Error: {call.name} cannot be carried out with these arguments ({error!r})"
        self.calls.append(call)
        return answer

    def ends(self, call: ToolCall) -> bool:
        return call.name == ENDING

    def changes(self) -> Any:
        return json.dumps([self._carrier._tables, self._phone._device])

    def holds(self, assertion: Step) -> bool:
        return getattr(self._setup, assertion["func_name"])(**assertion["arguments"]) == assertion["assert_value"]


def known_step(name: Any) -> bool:
    """Whether a task may name this function: public ones of `Setup` only."""
    return isinstance(name, str) and not name.startswith("_") and callable(getattr(Setup, name, None))
