"""τ²-bench telecom as a task. The agent works on a ticket, with the phone in hand; or talks to a user who has it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, Task, Transcript, Verdict, choose
from gear_rl.tasks.tools.tau.episode import TauEpisode
from gear_rl.tasks.tools.tau.task import FAREWELL
from gear_rl.tasks.tools.tau.tau2 import GET_IT
from gear_rl.tasks.tools.tau.telecom.carrier import TABLES
from gear_rl.tasks.tools.tau.telecom.user import PhoneUser, Ticket
from gear_rl.tasks.tools.tau.telecom.world import AGENT_TOOLS, ENDING, PHONE_TOOLS, TelecomWorld, known_step
from gear_rl.tasks.tools.tau.user import OPENING
from gear_rl.tasks.tools.tau.user_models import EndpointChat
from gear_rl.tasks.upstream import data_folder, read_document, read_text, split_rows

RULES = {
    True: ("main_policy_solo.md", "tech_support_workflow_solo.md"),
    False: ("main_policy.md", "tech_support_manual.md"),
}
"""With the phone in hand; with a user."""
TASKS = ("tasks.json", "tasks_base_114.json")
SMALL = "tasks_small.json"


@dataclass
class Tau2Telecom(Task):
    """Reward as the benchmark defines it: at the end all of a task's assertions about phone and line hold and, where its reward
    basis names actions, the reference ones were taken."""

    name: ClassVar[str] = "tau2_telecom"
    summary: ClassVar[str] = "technical support of a phone carrier: lines, bills and a phone to fix (τ²-bench telecom)"
    splits: ClassVar[tuple[str, ...]] = ("train", "test", "small")

    data: str | None = None
    """Folder of τ²-bench's domains."""
    user: str = "none"
    """none: the agent has a ticket and the phone (the benchmark's mode without a user). Or an endpoint (http…) whose model
    plays the user, with the phone."""
    user_model: str = ""
    """The model's name at the endpoint."""
    train_share: float = option(0.0, at_least=0, below=1)
    """Share of the tasks held out for training, where the folder has no split_tasks.json."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self._chat: EndpointChat | None = None
        if self.user != "none":
            if not self.user.startswith(("http://", "https://")) or not self.user_model:
                raise GearError(
                    f"task {self.name}: user={self.user!r} must be none, or an endpoint (http://…/v1) with task.user_model."
                )
            self._chat = EndpointChat(self.user, self.user_model)
        self.max_turns, self.max_turn_tokens = 60, 1024
        self.concurrent_replies = 16 if self._chat else 1
        self.tools = AGENT_TOOLS if self._chat else [*AGENT_TOOLS, *PHONE_TOOLS]
        rules = RULES[self._chat is None]
        needs = [f"telecom/{name}" for name in ("db.toml", "user_db.toml", *rules)]
        self._folder = data_folder(self.name, self.data, needs, GET_IT, ("data/tau2/domains", "tau2_bench")) / "telecom"
        self._rules = "\n\n".join(read_text(self._folder / name) for name in rules)
        self._tables = _toml(self._folder / "db.toml", tuple(TABLES))
        self._device = _toml(self._folder / "user_db.toml", ("device",))["device"]

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in self.splits:
            raise unknown_name(f"split of {self.name}", split, self.splits)
        name = next((n for n in TASKS if (self._folder / n).exists()), TASKS[0]) if split != "small" else SMALL
        path = self._folder / name
        rows = [self._row(path, number, item) for number, item in enumerate(read_document(path, list))]
        official = self._folder / "split_tasks.json"
        if split == "small" or not official.exists():
            share = 0.0 if split == "small" else self.train_share
            return split_rows(self.name, rows, "test" if split == "small" else split, count, seed, share)
        keys = set(map(str, read_document(official, dict).get(split, [])))
        return choose([row for row in rows if row["id"] in keys], split, count, seed)

    def _row(self, path: Path, number: int, item: Any) -> Row:
        try:
            judged, wish = item["evaluation_criteria"], item["user_scenario"]["instructions"]
            beginning = [_step(step) for step in item["initial_state"]["initialization_actions"]]
            assertions = [
                {**_step(step), "assert_value": step["assert_value"]} for step in judged["env_assertions"] or []
            ]
            actions = [
                {key: a.get(key) for key in ("name", "arguments", "compare_args")} for a in judged["actions"] or []
            ]
            parts = [wish.get(key) for key in ("known_info", "reason_for_call", "task_instructions")]
            row = {
                "prompt": [
                    {"role": "system", "content": self._rules},
                    {"role": "user", "content": OPENING if self._chat else item["ticket"]},
                ],
                "hint": "\n".join(f"{action['name']}({json.dumps(action['arguments'])})" for action in actions),
                "answer": json.dumps({"actions": actions, "assertions": assertions, "basis": judged["reward_basis"]}),
                "id": str(item["id"]),
                "category": str(item["id"]).partition("]")[0].strip("[") or "telecom",
                "beginning": json.dumps(beginning),
                "instruction": "\n".join(part for part in parts if part),
            }
            self._world(row)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = str(error) if isinstance(error, GearError) else repr(error)
            raise GearError(f"{path}, task {number}: not in τ²-bench's layout ({reason}).") from None
        return row

    def _world(self, row: Row) -> TelecomWorld:
        return TelecomWorld(self._tables, self._device, json.loads(row["beginning"]), solo=self._chat is None)

    def episode(self, row: Row) -> TauEpisode:
        world = self._world(row)
        if self._chat:
            return TauEpisode(world, PhoneUser(row["instruction"], self._chat, world))
        return TauEpisode(world, Ticket(row["prompt"][-1]["content"]))

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        episode, reference = transcript.episode, json.loads(row["answer"])
        if not isinstance(episode, TauEpisode) or not isinstance(episode.world, TelecomWorld):
            raise GearError(f"{self.name}: a case is judged by the episode it was played in, and this has none.")
        held = [episode.world.holds(assertion) for assertion in reference["assertions"]]
        needed = reference["actions"] if "ACTION" in reference["basis"] else []
        taken = all(any(_same(call, action) for call in episode.world.calls) for action in needed)
        success = episode.ended and all(held) and taken and not transcript.cut_off
        return Verdict(
            reward=float(success),
            success=success,
            channels={
                "assertions": sum(held) / len(held) if held else 1.0,
                "actions": float(taken),
                "ended": float(episode.ended),
            },
            malformed=episode.malformed,
        )

    def reference(self, row: Row) -> list[str]:
        if self._chat:
            raise GearError(f"{self.name}: the reference calls are played without a user; leave the option user out.")
        calls = [ToolCall(a["name"], a["arguments"]) for a in json.loads(row["answer"])["actions"]]
        handed_over = any(call.name == ENDING for call in calls)
        return [*map(str, calls), *([] if handed_over else [FAREWELL])]


def _step(step: dict[str, Any]) -> dict[str, Any]:
    if not known_step(step["func_name"]):
        raise GearError(f"no function {step['func_name']!r}")
    return {"func_name": step["func_name"], "arguments": step["arguments"]}


def _same(call: ToolCall, action: dict[str, Any]) -> bool:
    """`compare_args`: the arguments that count; null means all of them."""
    names = action["compare_args"]
    wanted = action["arguments"] if names is None else {name: action["arguments"].get(name) for name in names}
    said = call.arguments if names is None else {name: call.arguments.get(name) for name in names}
    return call.name == action["name"] and said == wanted


def _toml(path: Path, needs: tuple[str, ...]) -> dict[str, Any]:
    try:
        value = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise GearError(f"{path}: not TOML ({error}).") from None
    missing = [name for name in needs if name not in value]
    if missing:
        raise GearError(f"{path} lacks {', '.join(missing)}.")
    return value
