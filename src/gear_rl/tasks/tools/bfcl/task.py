"""BFCL v3 as a task: all single-turn categories and the four multi-turn ones, judged by the official checker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from gear_rl.chat.tool_calls import ToolCall, read_turn
from gear_rl.errors import unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Episode, Over, Row, Task, Transcript, Verdict
from gear_rl.tasks.tools.bfcl.checker import OfficialChecker
from gear_rl.tasks.tools.bfcl.data import (
    CATEGORIES,
    GET_IT,
    GROUPS,
    MULTI_TURN,
    REFERENCE_TURNS_OF_ONE_USER_TURN,
    UNPASSABLE,
    language_of,
    load_category,
    no_call_wanted,
    packaged_data,
    reference_calls,
)
from gear_rl.tasks.tools.bfcl.episode import MOST_STEPS, BfclEpisode
from gear_rl.tasks.upstream import data_folder, split_rows
from gear_rl.tasks.workers.process import Trouble

REWARDS = ("verdict", "turns")
DONE = "That is done."
NOT_POSSIBLE = "I cannot do that with the functions and the information I have."


@dataclass
class Bfcl(Task):
    """Berkeley Function Calling Leaderboard v3 (Apache-2.0). Reward and success: the official checker's verdict."""

    name: ClassVar[str] = "bfcl"
    summary: ClassVar[str] = "function calling, single- and multi-turn, judged by the official checker (BFCL v3)"

    unpassable: ClassVar[dict[str, str]] = UNPASSABLE
    corrected: ClassVar[dict[str, str]] = dict.fromkeys(
        REFERENCE_TURNS_OF_ONE_USER_TURN, "the reference answer has a turn more than the user; two of its turns are joined"
    )

    data: str | None = None
    """Folder in the published layout. None: the data of the installed bfcl-eval package."""
    category: str = "all"
    """One category, several with commas, or a group: all, single_turn, multi_turn, live, non_live."""
    train_share: float = option(0.0, at_least=0, below=1)
    """Share of the problems held out for training; the benchmark itself has no training set."""
    seconds: float = option(10.0, above=0)
    """How long one call, or one verdict, may take before its process is ended."""
    reward: str = option("verdict", choices=REWARDS)
    """What training sees of a dialogue. verdict: the official one, all or nothing. turns: the share of user turns, from the
    first on, that the checker accepts; success stays the official verdict."""
    max_turns: int = option(64, at_least=1)
    """Turns of the policy in a dialogue, at most."""
    max_turn_tokens: int = option(1024, at_least=1)

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.categories: list[str] = []
        for part in self.category.split(","):
            if part.strip() not in (*GROUPS, *CATEGORIES):
                raise unknown_name("BFCL category", part.strip(), (*GROUPS, *CATEGORIES))
            self.categories += [c for c in GROUPS.get(part.strip(), (part.strip(),)) if c not in self.categories]
        self.judge_process = OfficialChecker(self.seconds)
        self._rows: list[Row] | None = None
        if not any(category in MULTI_TURN for category in self.categories):
            self.max_turns = 1

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if self._rows is None:
            needs = [f"BFCL_v3_{category}.json" for category in self.categories] + ["possible_answer"]
            folder = data_folder(self.name, self.data or packaged_data(), needs, GET_IT, ("bfcl_v3",))
            self._rows = [row for category in self.categories for row in load_category(folder, category)]
        return split_rows(self.name, self._rows, split, count, seed, self.train_share, key="problem")

    def episode(self, row: Row) -> Episode:
        if row["category"] not in MULTI_TURN:
            return Over()
        return BfclEpisode(row, self.judge_process)

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        if isinstance(transcript.episode, BfclEpisode):
            return self._judge_dialogue(row, transcript.episode)
        turn = read_turn("" if transcript.cut_off or not transcript.turns else transcript.turns[0])
        valid = self._judge_calls(row, turn.calls)
        return Verdict(
            reward=float(valid),
            success=valid,
            channels={"valid": float(valid), "called": float(bool(turn.calls))},
            turn_rewards=[float(valid)] * bool(transcript.turns),
            requests=[1] * bool(transcript.turns),
            first_wrong=None if valid else 0,
            malformed=turn.malformed,
            trivially_passable=no_call_wanted(row["category"]),
        )

    def _judge_calls(self, row: Row, calls: list[ToolCall]) -> bool:
        """Irrelevance: nothing was called. Relevance: something was. Else the official AST checker."""
        category = row["category"]
        if category.endswith("relevance"):
            return bool(calls) != no_call_wanted(category)
        try:
            reply = self.judge_process.check(
                kind="ast",
                functions=json.loads(row["entry"])["functions"],
                calls=[{call.name: call.arguments} for call in calls],
                reference=json.loads(row["answer"]),
                language=language_of(category),
                category=category,
            )
        except Trouble:
            return False
        return bool(reply.get("valid"))

    def _judge_dialogue(self, row: Row, episode: BfclEpisode) -> Verdict:
        reference: list[list[str]] = json.loads(row["answer"])
        right, closed = 0, episode.closed
        try:
            if closed:
                reply = self.judge_process.check(
                    kind="turns",
                    entry=episode.official_entry,
                    turns=episode.steps[:closed],
                    reference=reference[:closed],
                )
                right = reply.get("right", 0)
        except Trouble:
            right = 0
        valid = right == len(reference) and not episode.failed
        last_of = {user_turn: number for number, (user_turn, _) in enumerate(episode.said)}
        turn_rewards = [0.0] * len(episode.said)
        for user_turn in range(right):
            turn_rewards[last_of[user_turn]] = 1.0 / len(reference)
        return Verdict(
            reward=float(valid) if self.reward == "verdict" else right / len(reference),
            success=valid,
            channels={"valid": float(valid), "turns_right": right / len(reference)},
            turn_rewards=turn_rewards,
            requests=[user_turn + 1 for user_turn, _ in episode.said],
            first_wrong=None if valid else _first_wrong(episode, right),
            malformed=episode.malformed,
            failed_calls=episode.errors,
        )

    def reference(self, row: Row) -> list[str]:
        entry: dict[str, Any] = json.loads(row["entry"])
        if row["category"] not in MULTI_TURN:
            reference = reference_calls(row["category"], entry["functions"], json.loads(row["answer"]))
            return ["\n".join(map(str, reference)) or NOT_POSSIBLE]
        turns: list[str] = []
        for calls_of_turn in entry["calls"]:
            calls = [str(ToolCall(**call)) for call in calls_of_turn]
            turns += calls if len(calls) <= MOST_STEPS else ["\n".join(calls)]
            turns.append(DONE if calls_of_turn else NOT_POSSIBLE)
        return turns

    def empty(self, row: Row) -> list[str]:
        return [""] * len(json.loads(row["entry"]).get("users", [0]))

    def close(self) -> None:
        self.judge_process.close()


def _first_wrong(episode: BfclEpisode, right: int) -> int | None:
    """The policy's first wrong turn, as far as it can be known (ours): in the first user turn the checker rejects, the first
    step with a call that is not among the reference calls; if there is none, the turn that ended it too early."""
    steps = [(number, calls) for number, (user_turn, calls) in enumerate(episode.said) if user_turn == right]
    if not steps or right >= len(episode.entry["calls"]):
        return None
    reference = [(call["name"], call["arguments"]) for call in episode.entry["calls"][right]]
    for number, calls in steps:
        if any((call.name, call.arguments) not in reference for call in calls):
            return number
    return steps[-1][0]
