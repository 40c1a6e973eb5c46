"""One rollout of a verifiers environment, a turn of the policy at a time.

The environment's own `run` is played, with an agent in its place that says what our sampler sampled. That agent is what
verifiers calls the `null` harness: a conversation with the task's tools. `run` waits in an event loop of its own thread while
the policy samples.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.chat.tool_calls import Malformed, ToolCall, read_turn
from gear_rl.errors import GearError, printable
from gear_rl.tasks.verifiers.tools import Tools, in_trace

OVER = None
"""In place of messages: the environment has ended."""
LONGEST_ERROR = 300
"""Characters."""


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of all environments of this process. Its thread ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


def wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of `coroutine`, run in the environments' loop. A limit of time in this thread cancels it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, event_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Play:
    """An `Episode`: `opening` is what the environment says before the policy's first turn."""

    def __init__(self, env: Any, task: Any, role: str, tools: Tools) -> None:
        self.env, self.task, self.role, self.tools = env, task, role, tools
        self.trace: Any = None
        self.error: Exception | None = None
        self.turns = 0
        self.opening = wait_for(self._open())

    def reply(self, turn: str) -> list[Message] | None:
        """What the environment answers; None: the episode is over."""
        return wait_for(self._next(turn, cut_off=False))

    def finish(self, turns: list[str], cut_off: bool) -> Any:
        """The trace of the finished rollout, scored. A last turn that was cut off has had no reply; what the environment still
        asks for is answered by nothing."""
        wait_for(self._finish(turns[self.turns :], cut_off))
        if self.error is not None:
            raise GearError(f"{type(self.env).__name__}: {one_line(self.error)}.") from self.error
        return self.trace

    def close(self) -> None:
        """End it without a score."""
        event_loop().call_soon_threadsafe(self._running.cancel)

    # ------------------------------------------------------------------------------------------ in the loop's thread
    async def _open(self) -> list[Message] | None:
        self._said: asyncio.Queue[tuple[str, bool] | None] = asyncio.Queue()
        self._asked: asyncio.Queue[list[Message] | None] = asyncio.Queue()
        self._running = asyncio.create_task(self._run())
        self._running._log_destroy_pending = False  # type: ignore[attr-defined]  # a rollout may be given up halfway
        return await self._asked.get()

    async def _next(self, turn: str, cut_off: bool) -> list[Message] | None:
        self.turns += 1
        if self._running.done():
            return OVER
        self._said.put_nowait((turn, cut_off))
        return await self._asked.get()

    async def _finish(self, left: list[str], cut_off: bool) -> None:
        for turn in left:
            await self._next(turn, cut_off)
        while not self._running.done():
            self._said.put_nowait(None)
            if await self._asked.get() is OVER:
                await self._running

    async def _run(self) -> None:
        from verifiers.v1.episode import Episode

        try:
            agents = _Seats({self.role: _Seat(self)})
            await self.env.setup(agents)
            await self.env.run(self.task, agents)
            if self.trace is None:
                raise GearError("its run() played no agent")
            episode = Episode(task=self.trace.task, traces=[self.trace], ok=self.trace.ok)
            await self.env.finalize(self.task, episode)
        except Exception as error:  # kept for `finish`, whatever an environment raises
            self.error = error
        finally:
            self._asked.put_nowait(OVER)

    async def ask(self, messages: list[Message]) -> tuple[str, bool] | None:
        """What the policy says after `messages`; None: it will say nothing more."""
        self._asked.put_nowait(messages)
        return await self._said.get()


class _Seats:
    """`agents.NAME` of an environment."""

    def __init__(self, seats: dict[str, Any]) -> None:
        self.__dict__.update(seats)


class _Seat:
    """The agent that an environment runs: `run` for one exchange, `interaction` for one that the environment leads."""

    trainable = True

    def __init__(self, play: Play) -> None:
        self._play = play

    async def run(self, task: Any, **resources: Any) -> Any:
        async with self.interaction(task, **resources) as interaction:
            await interaction.turn()
        return interaction.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **resources: Any) -> AsyncIterator[Any]:
        if given := [name for name, value in resources.items() if value]:
            raise GearError(f"its agent is to run with {given[0]}=, which only verifiers' own harnesses can")
        if self._play.trace is not None:
            raise GearError("it runs its agent several times in an episode; one rollout is one run")
        made = _Interaction(self._play, task)
        self._play.trace = made.trace
        await made.hook("setup")
        yield made
        made.trace.stop("user_closed")
        made.trace.ok = True
        await made.hook("finalize")
        await task.score(made.trace)


class _Interaction:
    """An exchange with the policy, as an environment sees it: `turn` says something and gets the policy's answer."""

    def __init__(self, play: Play, task: Any) -> None:
        from verifiers.v1.configs.agent import AgentConfig
        from verifiers.v1.state import state_cls
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        self._play, self._task, self._started = play, task, False
        self.trace = Trace(
            task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=AgentInfo(config=AgentConfig(model="policy"), name=play.role),
            state=state_cls(type(task))(),
        )

    async def hook(self, name: str) -> None:
        from verifiers.v1.utils.decorators import invoke

        await invoke(getattr(self._task, name), {"trace": self.trace, "runtime": None})

    async def turn(self, message: Any = None) -> Any:
        from verifiers.v1.agent import Segment

        prompted = not self._started and self._task.data.prompt is not None
        if (message is None) != prompted:
            raise GearError("a task's prompt opens its exchange; every other turn begins with a message")
        self._started, begin = True, len(self.trace.nodes)
        ask = prompt_of(self._task.data) if prompted else _messages(message)
        if not prompted and begin == 0 and self._task.data.system_prompt:
            ask = [{"role": "system", "content": self._task.data.system_prompt}, *ask]
        while True:
            if self.trace.stop_condition is not None or await self._stopped():
                return Segment(messages=[], terminated=True)
            for said in ask:
                self._add(said, sampled=False)
            answer = await self._play.ask(ask)
            if answer is None:
                self.trace.stop("max_turns")
                return Segment(messages=[], terminated=True)
            text, cut_off = answer
            items = read_turn(text).items if self._play.tools.schemas else []
            self._add({"role": "assistant", "content": text}, sampled=True, calls=items)
            if cut_off:
                self.trace.stop("max_output_tokens")
            if cut_off or not items:
                new = [node.message for node in self.trace.nodes[begin:] if node.sampled or node.message.role == "tool"]
                return Segment(messages=new)
            with in_trace(self.trace):
                ask = [await self._play.tools.answer(item, i) for i, item in enumerate(items)]

    async def _stopped(self) -> bool:
        """Whether a `@stop` of the task ends the exchange here."""
        from verifiers.v1.session import call_hook
        from verifiers.v1.trace import Trace

        for fn in self._task.hooks("stop"):
            if self.trace.num_turns and await call_hook(fn, {Trace: self.trace}):
                self.trace.stop(fn.__name__)
                return True
        return False

    def _add(self, message: Message, sampled: bool, calls: list[ToolCall | Malformed] | None = None) -> None:
        from verifiers.v1.dialects import parse_message
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.types import ToolCall as Call

        made = parse_message(message)
        read = [call for call in calls or [] if isinstance(call, ToolCall)]
        if read:
            made.content = read_turn(message["content"]).text or None
            made.tool_calls = [
                Call(id=f"call_{i}", name=c.name, arguments=json.dumps(c.arguments)) for i, c in enumerate(read)
            ]
        parent = len(self.trace.nodes) - 1 if self.trace.nodes else None
        self.trace.nodes.append(MessageNode(parent=parent, message=made, sampled=sampled))


def one_line(error: Exception) -> str:
    """What an environment raised, for a message to the user."""
    return f"{type(error).__name__}: {printable(' '.join(str(error).split()))[:LONGEST_ERROR]}"


def prompt_of(data: Any) -> list[Message]:
    """The system prompt and the prompt of a task's data, as chat templates take them; empty where the environment opens."""
    if data.prompt is None:
        return []
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    return [*system, *_messages(data.prompt)]


def _messages(given: Any) -> list[Message]:
    """A turn of the environment: text, typed messages, or plain ones."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    plain = [m if isinstance(m, dict) else m.model_dump(mode="json", exclude_none=True) for m in given]
    if any(not isinstance(m.get("content"), str) for m in plain):
        raise GearError("it says something other than text; images are not supported here")
    return plain
