"""One rollout of an agent category: the apps a problem involves, the calls made in them, and the user where there is one."""

from __future__ import annotations

import copy
import json
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.chat.tool_calls import UNFIT, Refused, ToolCall, problem_with, read_turn
from gear_rl.tasks.tools.acebench.apps import App, Device, Messages, Reminders, State
from gear_rl.tasks.tools.acebench.food import Food
from gear_rl.tasks.tools.acebench.milestones import Step
from gear_rl.tasks.tools.acebench.travel import Travel
from gear_rl.tasks.tools.tau.user import STOP, User

APPS: dict[str, type[App]] = {
    "BaseApi": Device,
    "MessageApi": Messages,
    "ReminderApi": Reminders,
    "FoodPlatform": Food,
    "Travel": Travel,
}
"""The benchmark's name of each simulated API."""


class AgentWorld:
    """Apps with a state of their own each; a function of an app that the problem does not involve is out of order."""

    def __init__(self, start: dict[str, State], tools: list[dict[str, Any]]) -> None:
        state = copy.deepcopy(start)
        device = state.get("BaseApi", {})
        self._apps = {name: APPS[name](own, device) for name, own in state.items()}
        self._tools = tools
        self._required = {t["function"]["name"]: t["function"]["parameters"].get("required") or [] for t in tools}

    def problem(self, call: ToolCall) -> str | None:
        """What is wrong with the call by the tools' schemas. An optional argument may be null."""
        return problem_with(ToolCall(call.name, self._given(call)), self._tools)

    def call(self, call: ToolCall) -> str:
        """What the agent reads. Anything wrong with the call is an error message, and changes nothing."""
        try:
            if wrong := self.problem(call):
                raise Refused(wrong)
            app = next((app for app in self._apps.values() if hasattr(app, call.name)), None)
            if app is None:
                raise Refused(f"{call.name} is out of order")
            return json.dumps(getattr(app, call.name)(**self._given(call)), ensure_ascii=False)
        except Refused as refusal:
            return json.dumps({"error": str(refusal)}, ensure_ascii=False)
        except UNFIT as error:
            return json.dumps({"error": f"{call.name} cannot be carried out with these arguments ({error!r})"})

    def _given(self, call: ToolCall) -> dict[str, Any]:
        required = self._required.get(call.name, [])
        return {key: value for key, value in call.arguments.items() if value is not None or key in required}

    def state(self) -> dict[str, State]:
        return {name: app.state for name, app in self._apps.items()}


class AgentEpisode:
    """Calls of a turn are made in order. A turn without calls goes to the user, or ends the episode where there is none."""

    def __init__(self, world: AgentWorld, user: User | None) -> None:
        self.world, self.user = world, user
        self.steps: list[Step] = []
        """Per turn of the agent: its calls."""
        self.changed: list[int] = []
        """Turns that changed the state."""
        self.malformed = 0
        """Calls that could not be read or do not fit their schema."""

    def reply(self, turn: str) -> list[Message] | None:
        read = read_turn(turn)
        self.malformed += read.malformed + sum(self.world.problem(call) is not None for call in read.calls)
        before = json.dumps(self.world.state())
        answers = [self.world.call(item) if isinstance(item, ToolCall) else item.reply() for item in read.items]
        if json.dumps(self.world.state()) != before:
            self.changed.append(len(self.steps))
        self.steps.append(read.calls)
        if answers:
            return [{"role": "tool", "content": answer} for answer in answers]
        said = self.user.reply(read.text) if self.user is not None else STOP
        return None if STOP in said else [{"role": "user", "content": said}]
