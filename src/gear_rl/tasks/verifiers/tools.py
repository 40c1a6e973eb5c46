"""The tools of a verifiers task, called in this process: the servers' own registration, without servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gear_rl.chat.messages import Message, well_formed
from gear_rl.chat.tool_calls import Malformed, ToolCall
from gear_rl.errors import GearError

_TRACE: ContextVar[Any] = ContextVar("trace of the calling rollout")
LONGEST_RESULT = 100_000
"""Characters of one tool result."""


@contextmanager
def in_trace(trace: Any) -> Iterator[None]:
    """Inside, tools see the state of this rollout."""
    token = _TRACE.set(trace)
    try:
        yield
    finally:
        _TRACE.reset(token)


class Tools:
    """`schemas` are what the chat template is given; `answer` runs a call."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self._servers: dict[str, tuple[Any, str]] = {}

    async def add(self, toolset: Any, data: Any = None) -> None:
        """Register a toolset: of a task (with its data), or one that all tasks share."""
        from mcp.server.mcpserver import MCPServer

        if getattr(toolset.config, "url", None):
            raise GearError(f"its tools {type(toolset).__name__} are on a server of their own, which gear does not call")
        await toolset.setup()
        if data is not None:
            await toolset.setup_task(data)

        async def state() -> Any:
            return _TRACE.get().state

        toolset._pull_state = state  # in verifiers the state travels by HTTP; here it is at hand
        server = MCPServer(toolset.server_name or type(toolset).__name__)
        toolset.register(server)
        for tool in await server.list_tools():
            name = f"{toolset.server_name}_{tool.name}" if toolset.server_name else tool.name
            if name in self._servers:
                raise GearError(f"two of its tools are called {name}")
            self._servers[name] = server, tool.name
            function = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
            self.schemas.append({"type": "function", "function": function})

    def joined(self, others: Sequence[Tools]) -> Tools:
        made = Tools()
        for tools in (self, *others):
            made.schemas += tools.schemas
            made._servers |= tools._servers
        return made

    async def answer(self, call: ToolCall | Malformed, number: int) -> Message:
        """The tool message of one call. What goes wrong is what the policy reads."""
        message = {"role": "tool", "tool_call_id": f"call_{number}"}
        if isinstance(call, Malformed):
            return message | {"content": call.reply()}
        if call.name not in self._servers:
            return message | {"name": call.name, "content": f"Error: there is no tool {call.name[:80]!r}."}
        server, name = self._servers[call.name]
        try:
            result = await server.call_tool(name, call.arguments)
            content = "\n".join(getattr(block, "text", str(block)) for block in result.content)
        except Exception as error:  # a tool may raise anything on what a policy writes
            content = f"Error: {error}"
        return message | {"name": call.name, "content": well_formed(content[:LONGEST_RESULT])}
