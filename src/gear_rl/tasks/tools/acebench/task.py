"""ACEBench (English) as a task: normal and special categories in one turn, agent categories in simulated apps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.errors import GearError
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Episode, Over, Row, SingleTurn, Transcript, Verdict
from gear_rl.tasks.tools.acebench.agent_data import load_agent
from gear_rl.tasks.tools.acebench.agent_judge import best_match, end_to_end
from gear_rl.tasks.tools.acebench.agent_world import AgentEpisode, AgentWorld
from gear_rl.tasks.tools.acebench.data import (
    AGENT,
    GET_IT,
    SPECIAL,
    chosen_categories,
    load_category,
    reference_calls,
    special_reference,
)
from gear_rl.tasks.tools.acebench.judge import judge_calls, judge_special
from gear_rl.tasks.tools.acebench.milestones import CORRECTED, Step
from gear_rl.tasks.tools.tau.user_models import user_maker
from gear_rl.tasks.upstream import data_folder, split_rows

MOST_TURNS = 20
"""Turns of an agent: the benchmark ends a dialogue after 40 messages, its own and those of user and apps."""
DONE = "All of that is done."


@dataclass
class AceBench(SingleTurn):
    """Reward: the benchmark's own rule, in the agent categories with misspelt names put right; what it gives without that are
    the channels end_to_end and process. Success: a stricter rule (judge.py, agent_judge.py). Calls are read in the chat
    model's own format, not in the benchmark's bracket notation."""

    name: ClassVar[str] = "acebench"
    summary: ClassVar[str] = (
        "function calling and simulated apps: normal, special and agent categories (ACEBench, English)"
    )
    corrected: ClassVar[dict[str, str]] = {key: why for key, (why, _) in CORRECTED.items()}

    data: str | None = None
    """Folder in the published layout (data_en)."""
    category: str = "all"
    """One category, several with commas, or a group: all, normal, special, agent."""
    train_share: float = option(0.0, at_least=0, below=1)
    """Share of the problems held out for training; the benchmark itself has no training set."""
    user: str = "script"
    """Who speaks in agent_multi_turn: "script" (offline), an OpenAI-compatible endpoint (http…), or a local model's folder."""
    user_model: str = ""
    """The model's name at the endpoint."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.categories = chosen_categories(self.category)
        self._make_user = user_maker(self.user, self.user_model)
        self.concurrent_replies = 1 if self.user == "script" else 16
        self.max_turns = MOST_TURNS if set(self.categories) & set(AGENT) else 1
        self.max_turn_tokens = 1024
        self._rows: list[Row] | None = None

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if self._rows is None:
            needs = [f"data_{category}.json" for category in self.categories] + ["possible_answer"]
            folder = data_folder(self.name, self.data, needs, GET_IT, ("data_all/data_en", "data_en", "acebench_en"))
            self._rows = [row for category in self.categories for row in self._load(folder, category)]
        return split_rows(self.name, self._rows, split, count, seed, self.train_share, key="problem")

    def _load(self, folder: Any, category: str) -> list[Row]:
        if category in AGENT:
            return load_agent(folder, category, lambda instruction: self._make_user(instruction).opening())
        return load_category(folder, category)

    def episode(self, row: Row) -> Episode:
        if row["category"] not in AGENT:
            return Over()
        world = json.loads(row["world"])
        user = self._make_user(world["instruction"]) if row["category"] == "agent_multi_turn" else None
        return AgentEpisode(AgentWorld(world["start"], json.loads(row["tools"])), user)

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        if row["category"] not in AGENT:
            return super().verdict(row, transcript)
        if not isinstance(transcript.episode, AgentEpisode):
            raise GearError(f"{self.name}: {row['id']} is judged by the episode it was played in, and this has none.")
        return self._judge_episode(row, transcript.episode)

    def judge(self, row: Row, completion: str) -> Verdict:
        turn, reference = read_turn(completion), json.loads(row["answer"])
        if row["category"] in SPECIAL:
            right = judge_special(turn.text, reference, row["category"])
            return Verdict(float(right), right, channels={"accepted": float(right)}, malformed=turn.malformed)
        judged = judge_calls(turn.calls, reference, json.loads(row["functions"]))
        return Verdict(
            reward=float(judged.accepted),
            success=judged.exact,
            channels={"accepted": float(judged.accepted), "exact": float(judged.exact)},
            malformed=turn.malformed,
        )

    def _judge_episode(self, row: Row, episode: AgentEpisode) -> Verdict:
        """Turn rewards: a milestone made, in order, is worth its share. First wrong turn (ours): the first that changed
        the apps by a call that is not among the reference ones; None where something is missing rather than wrong."""
        reference, alternatives, state = json.loads(row["answer"]), _steps(row), episode.world.state()
        official, exact = end_to_end(state, reference["state"]), state == reference["exact"]
        accepted = end_to_end(state, reference["exact"])
        made, process = best_match(episode.steps, alternatives)
        turn_rewards = [0.0] * len(episode.steps)
        for turn in made:
            turn_rewards[turn] = process / len(made)
        known = [call for steps in alternatives for step in steps for call in step]
        strange = (turn for turn in episode.changed if any(call not in known for call in episode.steps[turn]))
        return Verdict(
            reward=float(accepted),
            success=exact,
            channels={
                "accepted": float(accepted),
                "exact": float(exact),
                "end_to_end": float(official),
                "process": 1.0 if official else process,
            },
            turn_rewards=turn_rewards,
            first_wrong=None if exact else next(strange, None),
            malformed=episode.malformed,
        )

    def reference(self, row: Row) -> list[str]:
        if row["category"] in AGENT:
            return ["\n".join(map(str, step)) for step in _steps(row)[0]] + [DONE]
        reference = json.loads(row["answer"])
        if row["category"] in SPECIAL:
            return [special_reference(row["category"], reference)]
        return ["\n".join(map(str, reference_calls(reference, json.loads(row["functions"]))))]


def _steps(row: Row) -> list[list[Step]]:
    """The lists of reference steps an agent problem accepts, the first of which leads to its end state."""
    return [[[ToolCall(**call) for call in step] for step in steps] for steps in json.loads(row["answer"])["steps"]]
