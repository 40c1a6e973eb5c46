"""ToolSandbox through its official package. **Untested here**: the package is under Apple's licence, needs RapidAPI and an
OpenAI key for its user, and none of them were at hand. Written from its public interface (github.com/apple/ToolSandbox, 2025).

Its scenarios, user, tools and milestones do all the work; this file only lets the policy speak where its own agent would.
Two things to know: it executes the agent's calls as Python inside this process, so run it in a container; and its state is a
process-wide variable, so rollouts take turns behind a lock.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from gear_rl.chat.messages import Message
from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, Task, Transcript, Verdict
from gear_rl.tasks.upstream import split_rows

HOW_TO_INSTALL = (
    "ToolSandbox is played by its official package: pip install git+https://github.com/apple/ToolSandbox "
    "(its own licence), OPENAI_API_KEY and RAPID_API_KEY set as its README says."
)
_one_at_a_time = threading.RLock()
_numbers = itertools.count()


def _official(module: str) -> Any:
    try:
        return importlib.import_module(f"tool_sandbox.{module}")
    except ImportError as error:
        raise GearError(f"{HOW_TO_INSTALL} ({error})") from None


@contextlib.contextmanager
def _inside(context: Any) -> Iterator[None]:
    """The package's process-wide state is this rollout's, for as long as the block runs."""
    with _one_at_a_time, _official("common.execution_context").new_context(context):
        yield


@dataclass
class ToolSandbox(Task):
    """Reward: the official similarity to the scenario's milestones (0 if a minefield was hit). Success: all of it."""

    name: ClassVar[str] = "toolsandbox"
    summary: ClassVar[str] = (
        "stateful tool use with a simulated user, through the official ToolSandbox package (untested)"
    )

    scenarios: str = ""
    """Names of scenarios with commas; empty: all."""
    user: str = "GPT_4_o_2024_05_13_User"
    """A user class of the package's roles.openai_api_user."""
    train_share: float = option(0.0, at_least=0, below=1)
    """Share of the scenarios held out for training; the benchmark itself has no training set."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        backend = _official("common.tool_discovery").ToolBackend.DEFAULT
        known: dict[str, Any] = _official("scenarios").named_scenarios(preferred_tool_backend=backend)
        names = [name.strip() for name in self.scenarios.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise unknown_name("ToolSandbox scenario", name, known)
        users = _official("roles.openai_api_user")
        if not hasattr(users, self.user):
            raise unknown_name("user of ToolSandbox", self.user, [n for n in vars(users) if n.endswith("_User")])
        self._user = getattr(users, self.user)
        self._scenarios = {name: known[name] for name in names or known}
        self.max_turns, self.max_turn_tokens = 30, 1024

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        rows = [self._row(name, scenario) for name, scenario in sorted(self._scenarios.items())]
        return split_rows(self.name, rows, split, count, seed, self.train_share)

    def _row(self, name: str, scenario: Any) -> Row:
        base, convert = _official("roles.base_role"), _official("common.tool_conversion")
        agent = _official("common.execution_context").RoleType.AGENT
        with _inside(copy.deepcopy(scenario.starting_context)):
            seen = [m for m in base.BaseRole.get_messages() if agent in (m.visible_to or [])]
            role: Any = type("PolicyAgent", (base.BaseRole,), {"role_type": agent})
            tools = convert.convert_to_openai_tools(role.get_available_tools())
        prompt = [{"role": _chat_role(m, agent), "content": m.content} for m in seen]
        return {
            "prompt": prompt,
            "hint": "",
            "answer": "",
            "id": name,
            "category": ",".join(sorted(str(category) for category in scenario.categories)),
            "tools": json.dumps(tools),
        }

    def episode(self, row: Row) -> ToolSandboxEpisode:
        return ToolSandboxEpisode(self._scenarios[row["id"]], self._user())

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        episode = transcript.episode
        if not isinstance(episode, ToolSandboxEpisode):
            raise GearError("toolsandbox: a dialogue is judged by the episode it was played in, and this has none.")
        scenario = self._scenarios[row["id"]]
        with _inside(episode.context):
            result = scenario.evaluation.evaluate(
                execution_context=episode.context, max_turn_count=scenario.max_messages
            )
        channels = {
            "milestones": float(result.milestone_similarity), "minefields": float(result.minefield_similarity)
        }  # fmt: skip
        reward = float(result.similarity)
        return Verdict(reward, reward >= 1.0, channels=channels, malformed=episode.malformed)


def _chat_role(message: Any, agent: Any) -> str:
    sender = str(message.sender).rsplit(".", 1)[-1].upper()
    if message.sender == agent:
        return "assistant"
    return {"SYSTEM": "system", "USER": "user"}.get(sender, "tool")


class ToolSandboxEpisode:
    """The scenario's own play loop, stopped wherever its agent would be asked to speak."""

    def __init__(self, scenario: Any, user: Any) -> None:
        self._types = _official("common.execution_context")
        self._message = _official("common.message_conversion")
        self._base = _official("roles.base_role").BaseRole
        kinds = self._types.RoleType
        self._agent = kinds.AGENT
        self._roles = {
            kinds.USER: user,
            kinds.EXECUTION_ENVIRONMENT: _official("roles.execution_environment").ExecutionEnvironment(),
        }
        self.context = copy.deepcopy(scenario.starting_context)
        self.malformed = 0
        with _inside(self.context):
            opening = self._base.get_messages()
            for number, message in enumerate(opening):
                if message.recipient == kinds.EXECUTION_ENVIRONMENT and message.sender == kinds.SYSTEM:
                    self._roles[kinds.EXECUTION_ENVIRONMENT].respond(ending_index=number)
            self._read = len(self._base.get_messages())
        self._last = self._read + scenario.max_messages

    def reply(self, turn: str) -> list[Message] | None:
        read = read_turn(turn)
        self.malformed += read.malformed
        if read.malformed:  # reported at once; the official loop never sees it
            return [{"role": "tool", "content": i.reply()} for i in read.items if not isinstance(i, ToolCall)]
        with _inside(self.context):
            self._base.add_messages(self._spoken(read.text, read.calls))
            return self._until_asked()

    def _spoken(self, text: str, calls: list[ToolCall]) -> list[Any]:
        kinds, make = self._types.RoleType, self._message.Message
        if not calls:
            return [make(sender=self._agent, recipient=kinds.USER, content=text)]
        role: Any = type("PolicyAgent", (self._base,), {"role_type": self._agent})
        available = set(role.get_available_tools())
        spoken = []
        for call in calls:
            function = SimpleNamespace(name=call.name, arguments=json.dumps(call.arguments))
            wire = SimpleNamespace(id=f"call_{next(_numbers)}", function=function)
            code = self._message.openai_tool_call_to_python_code(
                wire, available, execution_facing_tool_name=self.context.get_execution_facing_tool_name(call.name)
            )
            spoken.append(
                make(
                    sender=self._agent,
                    recipient=kinds.EXECUTION_ENVIRONMENT,
                    content=code,
                    openai_tool_call_id=wire.id,
                    openai_function_name=call.name,
                )
            )
        return spoken

    def _until_asked(self) -> list[Message] | None:
        """Let the others speak until it is the agent's turn, or the conversation is over."""
        while True:
            messages = self._base.get_messages()
            last = messages[-1]
            if not last.conversation_active or len(messages) >= self._last:
                return None
            if last.recipient == self._agent:
                break
            self._roles[last.recipient].respond()
        new = [m for m in messages[self._read :] if m.recipient == self._agent]
        self._read = len(messages)
        return [{"role": _chat_role(m, self._agent), "content": m.content} for m in new]
