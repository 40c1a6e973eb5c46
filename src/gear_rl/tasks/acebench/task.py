"""ACEBench (English) as a task: the normal and special categories, which score offline."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from gear_rl.tasks.acebench.data import (
    GET_IT,
    SPECIAL,
    chosen_categories,
    gold_calls,
    load_category,
    special_reference,
)
from gear_rl.tasks.acebench.judge import judge_calls, judge_special
from gear_rl.tasks.base import Row, SingleTurn, Verdict
from gear_rl.tasks.tool_calls import read_turn
from gear_rl.tasks.upstream import check_share, data_folder, split_rows


@dataclass
class AceBench(SingleTurn):
    """Reward: the benchmark's own rule. Success: numbers, booleans and optional arguments are right too, which that rule
    does not ask for (judge.py). Calls are read in the chat model's own format, not in the benchmark's bracket notation."""

    name: ClassVar[str] = "acebench"
    summary: ClassVar[str] = "function calling: normal and special categories of ACEBench (English)"

    data: str | None = None
    """Folder in the published layout (data_en)."""
    category: str = "all"
    """One category, several with commas, or a group: all (normal and special), normal, special."""
    train_share: float = 0.0
    """Share of the problems held out for training; the benchmark itself has no training set."""

    def __post_init__(self) -> None:
        check_share(self.name, self.train_share)
        self.categories = chosen_categories(self.category)
        self.max_turn_tokens = 1024
        self._rows: list[Row] | None = None

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if self._rows is None:
            needs = [f"data_{category}.json" for category in self.categories] + ["possible_answer"]
            folder = data_folder(self.name, self.data, needs, GET_IT, ("data_all/data_en", "data_en"))
            self._rows = [row for category in self.categories for row in load_category(folder, category)]
        return split_rows(self.name, self._rows, split, count, seed, self.train_share, key="problem")

    def judge(self, row: Row, completion: str) -> Verdict:
        turn, gold = read_turn(completion), json.loads(row["answer"])
        if row["category"] in SPECIAL:
            right = judge_special(turn.text, gold, row["category"])
            return Verdict(float(right), right, channels={"accepted": float(right)}, malformed=turn.malformed)
        judged = judge_calls(turn.calls, gold, json.loads(row["functions"]))
        return Verdict(
            reward=float(judged.accepted),
            success=judged.exact,
            channels={"accepted": float(judged.accepted), "exact": float(judged.exact)},
            malformed=turn.malformed,
        )

    def reference(self, row: Row) -> list[str]:
        gold = json.loads(row["answer"])
        if row["category"] in SPECIAL:
            return [special_reference(row["category"], gold)]
        return ["\n".join(map(str, gold_calls(gold, json.loads(row["functions"]))))]
