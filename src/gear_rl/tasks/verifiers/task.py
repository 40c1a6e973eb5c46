"""`verifiers:NAME`: a taskset or environment of verifiers as a task. Its rewards are channels, its answer is the hint.

Its code runs in this process, reward functions included: install only what you trust. Tested with verifiers 0.4.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, Task, Transcript, Verdict, choose
from gear_rl.tasks.verifiers.play import Play, one_line, prompt_of, wait_for
from gear_rl.tasks.verifiers.tools import Tools

INSTALL = "pip install 'gear-rl[verifiers]'"
HELD_OUT = 10


@dataclass
class Verifiers(Task):
    name: ClassVar[str] = "verifiers"
    summary: ClassVar[str] = "an environment of verifiers: --task verifiers:NAME"

    environment: str
    """The taskset's id, as verifiers names it: an installed package. `--task verifiers:NAME` sets it."""
    config: dict = field(default_factory=dict)
    """Settings of the taskset: --set task.config.split=train."""
    hint_field: str = "answer"
    """What of a problem's data the teacher reads."""
    problems: int = option(1000, at_least=2)
    """Problems read, at most: a taskset may go on for ever. One in ten is kept from training."""
    full_marks: float = 1.0
    """The reward from which a rollout counts as a success."""
    hint_template: str = DEFAULT_TEMPLATE
    """How {prompt} and {hint} become the teacher's prompt."""
    max_turns: int = option(10, at_least=1)
    max_turn_tokens: int = option(512, at_least=1)

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        check_template(self.hint_template)
        self._env, self._role = self._load()
        self._tasks = self._read()
        self._check()
        try:
            self._shared = wait_for(_tools(self._env.taskset.toolsets(self._env.taskset.config)))
            self._rows = [self._row(i, task) for i, task in enumerate(self._tasks)]
        except GearError as error:
            raise error if str(error).startswith("task ") else self._cannot(str(error)) from error

    # ------------------------------------------------------------------------------------------ what is there
    def _load(self) -> tuple[Any, str]:
        try:
            from verifiers.v1.configs.agent import agent_config_fields
            from verifiers.v1.utils.loaders import load_environment, resolve_env_config
        except ImportError as error:
            raise GearError(f"task verifiers:{self.environment} needs verifiers: {INSTALL} ({error}).") from None
        try:
            config = resolve_env_config({"taskset": {**self.config, "id": self.environment}})
            env = load_environment(config)
        except Exception as error:
            raise self._cannot(f"{one_line(error)}") from error
        if len(roles := list(agent_config_fields(config))) != 1:
            raise self._cannot(f"it has the agents {', '.join(roles)}; gear trains one and plays no other")
        return env, roles[0]

    def _read(self) -> list[Any]:
        try:
            tasks = list(islice(self._env.taskset, self.problems))
        except Exception as error:
            raise self._cannot(f"its tasks cannot be read: {one_line(error)}") from error
        if not tasks:
            raise self._cannot("it has no tasks")
        return tasks

    def _check(self) -> None:
        """What needs one of verifiers' own harnesses or runtimes, said before anything is played."""
        from verifiers.v1.session import hook_boundary
        from verifiers.v1.trace import Trace
        from verifiers.v1.utils.decorators import discover_decorated

        task = self._tasks[0]
        if task.NEEDS_CONTAINER or task.data.image is not None:
            raise self._cannot("its tasks run in a container")
        used = [getattr(task, name) for name in ("setup", "finalize") if name in _overridden(task)]
        used += [*task.hooks("reward"), *task.hooks("metric")]
        if needing := [fn.__name__ for fn in used if _needs_runtime(fn)]:
            raise self._cannot(f"{needing[0]} reads the runtime of a harness")
        if hooks := discover_decorated(task, "intercept"):
            raise self._cannot(f"{hooks[0].__name__} rewrites what a model is sent or says")
        for fn in task.hooks("stop"):
            if hook_boundary(fn, allow_trace=True) is not Trace:
                raise self._cannot(f"{fn.__name__} stops at single requests; only a stop that reads the trace is supported")

    def _cannot(self, why: str) -> GearError:
        return GearError(f"task verifiers:{self.environment}: {why}.")

    # ------------------------------------------------------------------------------------------ the task
    def _row(self, index: int, task: Any) -> Row:
        data = task.data.model_dump(mode="json")
        hint = data.get(self.hint_field, (data.get("info") or {}).get(self.hint_field))
        if hint is None and self.hint_field != "answer":
            raise self._cannot(f"problem {index} has no {self.hint_field!r}; it has {', '.join(data)}")
        tools = self._tools(task)
        prompt = prompt_of(task.data) or self._opening(task, tools)
        if not prompt:
            raise self._cannot(f"problem {index} ends before the policy has said anything")
        answer = "" if hint is None else hint if isinstance(hint, str) else json.dumps(hint, ensure_ascii=False)
        return {
            "prompt": prompt,
            "hint": answer,
            "answer": answer,
            "id": task.data.id or task.data.name or f"{self.environment}-{index}",
            "category": self.environment,
            "tools": json.dumps(tools.schemas) if tools.schemas else "",
            "index": index,
            "digest": hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest(),
        }

    def _opening(self, task: Any, tools: Tools) -> Any:
        """What an environment says first to a policy whose task has no prompt."""
        play = Play(self._env, task, self._role, tools)
        play.close()
        return play.opening

    def _tools(self, task: Any) -> Tools:
        own = task.toolsets(task.config)
        return self._shared.joined([wait_for(_tools(own, task.data))]) if own else self._shared

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in self.splits:
            raise unknown_name(f"split of task verifiers:{self.environment}", split, self.splits)
        digests = sorted({row["digest"] for row in self._rows})  # the same problem twice stays on one side
        held = set(digests[: max(1, round(len(digests) / HELD_OUT))]) if len(digests) > 1 else set(digests)
        if split == "test" or len(digests) == 1:
            return choose([row for row in self._rows if row["digest"] in held], split, count, seed)
        return choose([row for row in self._rows if row["digest"] not in held], split, count, seed)

    def episode(self, row: Row) -> Play:
        task = self._tasks[row["index"]]
        play = Play(self._env, task, self._role, self._tools(task))
        if play.error is not None:
            raise self._cannot(f"{one_line(play.error)}") from play.error
        if _said(play.opening) != _said(row["prompt"]):
            raise self._cannot(f"{row['id']} opens in another way each time: give it a fixed seed")
        return play

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        assert isinstance(transcript.episode, Play)
        trace = transcript.episode.finish(transcript.turns, transcript.cut_off)
        channels = {name: 0.0 if reward is None else reward.value for name, reward in trace.rewards.items()}
        reward = sum(channels.values())
        return Verdict(reward, reward >= self.full_marks, channels=channels)


def _said(messages: Any) -> list[tuple[str, str]]:
    """Rows come back from Arrow with every key in every message."""
    return [(message["role"], message["content"]) for message in messages or []]


async def _tools(toolsets: list[Any], data: Any = None) -> Tools:
    made = Tools()
    for toolset in toolsets:
        await made.add(toolset, data)
    return made


def _overridden(task: Any) -> set[str]:
    from verifiers.v1.task import Task as Base

    return {name for name in ("setup", "finalize") if getattr(type(task), name) is not getattr(Base, name)}


def _needs_runtime(fn: Any) -> bool:
    parameter = inspect.signature(fn).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty
