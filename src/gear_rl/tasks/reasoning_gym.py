"""reasoning-gym's generators as one task family: over a hundred kinds of puzzles, generated, each with its own verifier.

The verifiers run in a process of their own (`workers`): several evaluate expressions a model wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.errors import GearError, unknown_name
from gear_rl.limits import in_order
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, SingleTurn, Verdict
from gear_rl.tasks.maths.answers import after_thought
from gear_rl.tasks.workers.judging import Judge
from gear_rl.tasks.workers.process import Trouble

INSTRUCTION = "Think first, then give your final answer between <answer> and </answer>."
STRIDE = 10**6
"""Generators draw problem i from seed + i: splits and seeds are kept this far apart, so that they share no problem."""
TEST_START = 10**9
DEFAULT_COUNT = 500
PORTION = 50
"""Problems asked for at once, within `MAKING_SECONDS`: the slowest generators take a second each."""
MAKING_SECONDS = 300.0
NO_REFERENCE = {"composite", "boxnet", "rush_hour"}
"""Generators without a reference answer; the first only mixes others."""
UNSOUND = {"game_of_life_halting"}
"""Generators whose own verifier gives full marks to almost any text. A policy would find that out, so `all` leaves them out."""
LONGEST_ANSWER = 20_000
"""Characters. The longest reference answer seen has 6,000; what is longer is wrong."""


def last_answer(text: str) -> str | None:
    """What stands between the last <answer> … </answer>; None: there is none. Linear in the text, unlike `.*?`."""
    found, position = None, 0
    while (start := text.find("<answer>", position)) >= 0 and (end := text.find("</answer>", start)) >= 0:
        found, position = text[start + len("<answer>") : end], end + len("</answer>")
    return found


@dataclass
class ReasoningGym(SingleTurn):
    name: ClassVar[str] = "reasoning_gym"
    summary: ClassVar[str] = "procedural puzzles of over a hundred kinds (option dataset)"
    hint_forms: ClassVar[tuple[str, ...]] = ("answer",)

    dataset: str
    """A generator of reasoning-gym, several with commas between, or `all`: every one that gives a reference
    answer and judges soundly, their problems alternating."""
    config: dict = field(default_factory=dict)
    """The generator's own settings: --set task.config.min_terms=3."""
    instruction: str = INSTRUCTION
    """Follows every problem."""
    max_turn_tokens: int = option(1024, at_least=1)
    judges: int | None = option(None, at_least=1)
    """Processes that judge answers. None: one for each core, at most 4."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.judge_process = Judge("reasoning_gym", self.judges)
        from reasoning_gym.factory import DATASETS

        chosen = sorted(set(DATASETS) - NO_REFERENCE - UNSOUND) if self.dataset == "all" else self.dataset.split(",")
        self.datasets = [name.strip() for name in chosen if name.strip()]
        if not self.datasets:
            raise GearError("reasoning_gym: name a generator, --set task.dataset=leg_counting, or all.")
        for name in self.datasets:
            if name not in DATASETS or name == "composite":
                raise unknown_name("generator of reasoning-gym", name, [n for n in DATASETS if n != "composite"])
        if self.config and len(self.datasets) > 1:
            raise GearError("reasoning_gym: config goes with one generator; it cannot be shared by several.")
        self._config = json.dumps(self.config, sort_keys=True)
        self.hint_template, self.concurrent_verdicts = DEFAULT_TEMPLATE, self.judge_process.processes

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in self.splits:
            raise unknown_name("split of task reasoning_gym", split, self.splits)
        count = DEFAULT_COUNT if count is None else count
        each = -(-count // len(self.datasets))
        if each > STRIDE or not 0 <= seed < TEST_START // STRIDE:
            raise GearError(f"reasoning_gym: at most {STRIDE} problems, and seeds below {TEST_START // STRIDE}.")
        start = seed * STRIDE + (TEST_START if split == "test" else 0)
        made = in_order(lambda name: self._make(name, start, each), self.datasets, self.judge_process.processes)
        rows = [
            self._row(name, made[k][i], start, each, i) for i in range(each) for k, name in enumerate(self.datasets)
        ]
        return rows[:count]

    def _make(self, name: str, seed: int, size: int) -> list[tuple[str, str]]:
        """Questions and answers, made where they are judged: some depend on Python's hash seed, which is fixed there."""
        made: list[tuple[str, str]] = []
        while len(made) < size:
            indices = list(range(len(made), min(size, len(made) + PORTION)))
            request = {"dataset": name, "config": self._config, "seed": seed, "size": size, "make": indices}
            try:
                reply = self.judge_process.ask(MAKING_SECONDS, request, judging=False)
            except Trouble as error:
                raise GearError(
                    f"reasoning_gym: {name} made no problem {indices[0]} to {indices[-1]}: {error}."
                ) from None
            if "raised" in reply:
                raise GearError(f"reasoning_gym: {name} with config {self.config}: {reply['raised']}.")
            made += [(question, answer) for question, answer in reply["made"]]
        return made

    def _row(self, name: str, made: tuple[str, str], seed: int, size: int, index: int) -> Row:
        question, answer = made
        text = f"{question.rstrip()}\n\n{self.instruction}" if self.instruction else question
        return {
            "prompt": [{"role": "user", "content": text}],
            "hint": answer,
            "answer": answer,
            "id": f"{name}-{seed + index}",
            "category": name,
            "seed": seed,
            "size": size,
            "index": index,
        }

    def judge(self, row: Row, completion: str) -> Verdict:
        found = last_answer(after_thought(completion))
        answer = (found or "").strip()
        score = 0.0
        empty_is_right = found is not None and not row["answer"]  # `ab` may leave nothing
        if (answer or empty_is_right) and len(answer) <= LONGEST_ANSWER:
            score = self.judge_process.score(
                dataset=row["category"], config=self._config, seed=row["seed"], size=row["size"], index=row["index"],
                answer=answer,
            )  # fmt: skip
        channels = {"score": score, "format": float(found is not None)}
        return Verdict(score, score == 1.0, channels=channels, first_wrong=None if score == 1.0 else 0)

    def reference(self, row: Row) -> str:
        if not row["answer"] and row["category"] in NO_REFERENCE:
            raise GearError(f"reasoning_gym: {row['category']} gives no answers, so its verifier cannot be checked.")
        return f"<answer>{row['answer']}</answer>"

    def close(self) -> None:
        self.judge_process.close()
