"""τ-bench as tasks: retail and airline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from gear_rl.chat.tool_calls import ToolCall
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, Task, Transcript, Verdict, choose
from gear_rl.tasks.tools.tau.airline import AirlineTools
from gear_rl.tasks.tools.tau.data import Domain, Problem, domain_folder, load_domain, load_problems
from gear_rl.tasks.tools.tau.episode import TauEpisode
from gear_rl.tasks.tools.tau.retail import RetailTools
from gear_rl.tasks.tools.tau.service import ServiceTools
from gear_rl.tasks.tools.tau.user import ScriptedUser, User
from gear_rl.tasks.tools.tau.user_models import user_maker
from gear_rl.tasks.tools.tau.world import World, was_said
from gear_rl.tasks.upstream import split_rows

FAREWELL = "All of that is done."


@dataclass
class TauBench(Task):
    """Reward as the benchmark defines it: at the end of the dialogue the database is what the reference calls leave, and every
    string of `outputs` was said to the user."""

    kind: ClassVar[type[ServiceTools]]
    files: ClassVar[tuple[str, ...]]
    """tasks_<name> files of the domain."""

    data: str | None = None
    """Folder of the benchmark: a clone, or the JSON export."""
    user: str = "script"
    """Who the agent talks to: "script" (offline), an OpenAI-compatible endpoint (http…), or a local model's folder."""
    user_model: str = ""
    """The model's name at the endpoint."""
    train_share: float = option(0.0, at_least=0, below=1)
    """Share of the test tasks held out for training, in a domain without a training set."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self._make_user = user_maker(self.user, self.user_model)
        self.max_turns, self.max_turn_tokens = 30, 1024
        self.concurrent_replies = 1 if self.user == "script" else 16
        self._world, self._splits = self._load()
        self.tools = self._world.tools
        self._problems = {problem.id: problem for problems in self._splits.values() for problem in problems}
        self._reference = {key: self._fresh_world().after(problem.actions) for key, problem in self._problems.items()}

    def _load(self) -> tuple[Domain, dict[str, list[Problem]]]:
        """The domain, and its problems by split."""
        folder = domain_folder(self.name, self.data, self.kind.domain, self.kind.tables)
        return load_domain(folder, self.kind.tables), {split: load_problems(folder, split) for split in self.files}

    def _fresh_world(self) -> World:
        return World(self.kind, self._world.tables, self._world.tools)

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if "train" not in self._splits:
            everything = [self._row(problem) for problem in self._problems.values()]
            return split_rows(self.name, everything, split, count, seed, self.train_share)
        if split not in self._splits:
            raise unknown_name(f"split of {self.name}", split, self._splits)
        return choose([self._row(problem) for problem in self._splits[split]], split, count, seed)

    def _row(self, problem: Problem) -> Row:
        calls = [f"{action['name']}({json.dumps(action['arguments'])})" for action in problem.actions]
        words = [f"Tell the user: {', '.join(problem.outputs)}"] if problem.outputs else []
        opening = self._make_user(problem.instruction).opening()
        return {
            "prompt": [{"role": "system", "content": self._world.rules}, {"role": "user", "content": opening}],
            "hint": "\n".join([*calls, *words]) or "No change to the database is needed.",
            "answer": json.dumps({"actions": problem.actions, "outputs": problem.outputs}),
            "id": problem.id,
            "category": self.kind.domain,
        }

    def episode(self, row: Row) -> TauEpisode:
        return TauEpisode(self._fresh_world(), self._user_of(row))

    def _user_of(self, row: Row) -> User:
        return self._make_user(self._problem(row).instruction)

    def _problem(self, row: Row) -> Problem:
        if row["id"] not in self._problems:
            raise GearError(
                f"{self.name}: there is no task {row['id']!r} in the data; was the row made from other data?"
            )
        return self._problems[row["id"]]

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        episode, problem = transcript.episode, self._problem(row)
        if not isinstance(episode, TauEpisode):
            raise GearError(f"{self.name}: a dialogue is judged by the episode it was played in, and this has none.")
        reference = self._reference[problem.id]
        database = episode.world.changes() == reference
        outputs = all(was_said(text, episode.said) for text in problem.outputs)
        success = episode.ended and database and outputs and not transcript.cut_off
        return Verdict(
            reward=float(success),
            success=success,
            channels={"database": float(database), "outputs": float(outputs), "ended": float(episode.ended)},
            first_wrong=None if database else _first_wrong(episode, problem),
            malformed=episode.malformed,
            trivially_passable=not reference and not problem.outputs,
        )

    def reference(self, row: Row) -> list[str]:
        """The reference calls one by one, then what must be said. Handing over ends a dialogue, so it is left to the end."""
        if not isinstance(self._user_of(row), ScriptedUser):
            raise GearError(f"{self.name}: reference dialogues need the scripted user; leave the option user out.")
        problem = self._problem(row)
        calls = [ToolCall(a["name"], a["arguments"]) for a in problem.actions if a["name"] not in self.kind.terminating]
        return [*map(str, calls), " ".join([FAREWELL, *problem.outputs])]


def _first_wrong(episode: TauEpisode, problem: Problem) -> int | None:
    """The first turn that changed the database by a call that is not among the reference ones (ours). None: something is
    missing rather than wrong."""
    reference: list[tuple[str, Any]] = [(action["name"], action["arguments"]) for action in problem.actions]
    for turn in episode.changed:
        call = episode.calls[turn]
        if call is not None and (call.name, call.arguments) not in reference:
            return turn
    return None


@dataclass
class TauRetail(TauBench):
    name: ClassVar[str] = "tau_retail"
    summary: ClassVar[str] = "customer service of a shop: tools, rules and a user (τ-bench retail)"
    splits: ClassVar[tuple[str, ...]] = ("train", "test", "dev")
    files: ClassVar[tuple[str, ...]] = splits
    kind: ClassVar[type[ServiceTools]] = RetailTools


@dataclass
class TauAirline(TauBench):
    name: ClassVar[str] = "tau_airline"
    summary: ClassVar[str] = "customer service of an airline: tools, rules and a user (τ-bench airline)"
    files: ClassVar[tuple[str, ...]] = ("test",)
    kind: ClassVar[type[ServiceTools]] = AirlineTools
