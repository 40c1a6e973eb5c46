r"""Mathematics: one question, one answer in \boxed{}, judged by math-verify in a process of its own (`workers`).

What is taken for the answer: the last \boxed{…} after the model's thoughts; where there is none, what math-verify finds in
the last 1000 characters. Right away right: the reference's own characters, or the same number. Everything else is compared by
math-verify, within 5 seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gear_rl.chat.hints import DEFAULT_TEMPLATE
from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, SingleTurn, Verdict, choose
from gear_rl.tasks.maths.answers import after_thought, last_boxed
from gear_rl.tasks.maths.data import SETS, Problem, problems, without
from gear_rl.tasks.maths.judging import is_right
from gear_rl.tasks.workers.judging import Judge

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass
class Maths(SingleTurn):
    """What the mathematical tasks have in common; each names its sets."""

    sets: ClassVar[dict[str, str]]
    """Split → name in `maths_data.SETS`."""
    hint_forms: ClassVar[tuple[str, ...]] = ("answer",)

    data: str | None = None
    """Folder with the set's files, or with folders of sets. None: the hub's data set."""
    hint: str | None = None
    """What the teacher reads: solution (where the set has them) or answer. None: the first of these the set has."""
    instruction: str = INSTRUCTION
    """Follows every problem."""
    max_turn_tokens: int = option(1024, at_least=1)
    judges: int | None = option(None, at_least=1)
    """Processes that judge answers. None: one for each core, at most 4."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        self.hint = self.hint or self.hint_forms[0]
        if self.hint not in self.hint_forms:
            raise unknown_name(f"hint of task {self.name}", self.hint, self.hint_forms)
        self.hint_template = DEFAULT_TEMPLATE
        self.judge_process = Judge("math", self.judges)
        self.concurrent_verdicts = self.judge_process.processes
        self._loaded: dict[str, list[Row]] = {}

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in self.sets:
            if split == "train":
                raise GearError(f"{self.name} is an evaluation set; train on gsm8k, math or dapo.")
            raise unknown_name(f"split of task {self.name}", split, self.sets)
        if split not in self._loaded:
            self._loaded[split] = [self._row(problem) for problem in self.problems(split)]
        return choose(self._loaded[split], split, count, seed)

    def problems(self, split: str) -> list[Problem]:
        return problems(self.sets[split], self.data)

    def _row(self, problem: Problem) -> Row:
        text = f"{problem.text}\n\n{self.instruction}" if self.instruction else problem.text
        hint = problem.solution if self.hint == "solution" and problem.solution else problem.answer
        return {
            "prompt": [{"role": "user", "content": text}],
            "hint": hint,
            "answer": problem.answer,
            "solution": problem.solution,
            "id": problem.id,
            "category": problem.category,
            "tolerance": problem.tolerance,
        }

    def judge(self, row: Row, completion: str) -> Verdict:
        said = after_thought(completion)
        boxed = last_boxed(said)
        answer, is_boxed = (said, False) if boxed is None else (boxed, True)
        right = is_right(self.judge_process, row["answer"], answer, is_boxed, row["tolerance"])
        channels = {"correct": float(right), "boxed": float(boxed is not None)}
        return Verdict(float(right), right, channels=channels, first_wrong=None if right else 0)

    def reference(self, row: Row) -> str:
        return f"{row['solution']}\n\nThe answer is \\boxed{{{row['answer']}}}."

    def close(self) -> None:
        self.judge_process.close()


@dataclass
class Gsm8k(Maths):
    name: ClassVar[str] = "gsm8k"
    summary: ClassVar[str] = "grade-school word problems: 7,473 train, 1,319 test"
    sets: ClassVar[dict[str, str]] = {"train": "gsm8k_train", "test": "gsm8k_test"}
    splits: ClassVar[tuple[str, ...]] = tuple(sets)
    hint_forms: ClassVar[tuple[str, ...]] = ("solution", "answer")

    max_turn_tokens: int = option(512, at_least=1)


@dataclass
class TrainingMaths(Maths):
    """A set to train on: what evaluation sets hold is removed first."""

    remove: str = ""
    """Sets whose problems are taken out of the training split, with commas between; none: keep all."""

    def problems(self, split: str) -> list[Problem]:
        found = super().problems(split)
        if split != "train":
            return found
        names = [name.strip() for name in self.remove.split(",") if name.strip() not in ("", "none")]
        return without(found, self.sets[split], names, self.data)


@dataclass
class Math(TrainingMaths):
    name: ClassVar[str] = "math"
    summary: ClassVar[str] = "competition mathematics: 7,500 train, 5,000 test, MATH-500"
    sets: ClassVar[dict[str, str]] = {"train": "math_train", "test": "math_test", "math500": "math500"}
    splits: ClassVar[tuple[str, ...]] = tuple(sets)
    hint_forms: ClassVar[tuple[str, ...]] = ("solution", "answer")

    remove: str = "math_test,math500,olympiadbench"

    def reference(self, row: Row) -> str:
        return row["solution"]  # with its own \boxed{}: how the answer is found is checked as well


@dataclass
class Dapo(TrainingMaths):
    name: ClassVar[str] = "dapo"
    summary: ClassVar[str] = "DAPO-Math-17k, to train on; evaluated on MATH-500 or another set"
    sets: ClassVar[dict[str, str]] = {"train": "dapo", "test": "math500"}

    remove: str = "math_test,math500,amc23,aime24,olympiadbench,aime_1983_2023"
    test: str = option("math500", choices=tuple(SETS))
    """The set that stands in for a test split: dapo has none."""

    def problems(self, split: str) -> list[Problem]:
        return problems(self.test, self.data) if split == "test" else super().problems(split)


def _contest(set_name: str, about: str) -> type[Maths]:
    """An evaluation set: no training split."""

    @dataclass
    class Contest(Maths):
        name: ClassVar[str] = set_name
        summary: ClassVar[str] = about
        sets: ClassVar[dict[str, str]] = {"test": set_name}
        splits: ClassVar[tuple[str, ...]] = ("test",)

        max_turn_tokens: int = option(4096, at_least=1)

    return Contest


Aime24 = _contest("aime24", "AIME 2024, 30 problems (evaluation)")
Aime25 = _contest("aime25", "AIME 2025, 30 problems (evaluation)")
Amc23 = _contest("amc23", "AMC 2023, 40 problems, answers as numbers (evaluation)")
OlympiadBench = _contest("olympiadbench", "olympiad problems with a final answer, 675 (evaluation)")
