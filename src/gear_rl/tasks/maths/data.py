"""The mathematical data sets: where each lies, how its records read, and which problems a training set must not hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gear_rl.errors import GearError, unknown_name
from gear_rl.tasks.maths.answers import fingerprint, last_boxed
from gear_rl.tasks.sources import Record, Source, announce, load

_QWEN = "https://github.com/QwenLM/Qwen2.5-Math, evaluation/data"
_GSM8K = "https://github.com/openai/grade-school-math, grade_school_math/data"
_MATH = "https://github.com/hendrycks/math"
_HUB = "https://huggingface.co/datasets"


@dataclass(frozen=True)
class Problem:
    id: str
    text: str
    answer: str
    solution: str
    """A worked solution; empty where the set has none."""
    category: str
    tolerance: float = 0.0
    """How far a number may be off, where the set says so."""


def _gsm8k(record: Record, id: str) -> Problem:
    solution, mark, answer = record.text("answer").partition("####")
    if not mark:
        raise record.fail("the answer lacks its '####'")
    solution = re.sub(r"<<.*?>>", "", solution).strip()  # the set's notes for a calculator
    return Problem(id, record.text("question"), answer.strip().replace(",", ""), solution, "gsm8k")


def _math(record: Record, id: str) -> Problem:
    solution = record.text("solution")
    # The solution before the column: MATH itself has no answer column, and copies that do have mangled some ("{October30}").
    answer = last_boxed(solution) or record.optional("answer")
    return Problem(id, record.text("problem"), answer.strip(), solution, record.text("subject", "type"))


def _contest(record: Record, id: str) -> Problem:
    answer = record.text("answer", "Answer")
    return Problem(id, record.text("problem", "question", "Question"), answer, record.optional("solution"), "contest")


def _olympiad(record: Record, id: str) -> Problem:
    finals, worked = record.values.get("final_answer"), record.values.get("solution")
    if not isinstance(finals, list) or not finals or not all(isinstance(a, str) for a in finals):
        raise record.fail("final_answer must be a list of texts")
    context = record.optional("context")
    text = f"{context}\n\n{record.text('question')}" if context else record.text("question")
    answer = ", ".join(finals).replace("$", "").strip().rstrip(".")
    solution = "\n\n".join(s for s in worked if isinstance(s, str)) if isinstance(worked, list) else ""
    error = record.values.get("error")
    try:
        tolerance = float(error) if error else 0.0
    except (TypeError, ValueError):
        raise record.fail(f"error={error!r} is no number") from None
    return Problem(id, text, answer, solution, record.text("subfield"), tolerance)


def _dapo(record: Record, id: str) -> Problem:
    return Problem(id, record.text("problem", "prompt"), record.text("answer", "solution"), "", "dapo")


Reader = Callable[[Record, str], Problem]


def _files(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{ending}" for name in names for ending in (".jsonl", ".jsonl.gz"))


def _evaluation(name: str) -> tuple[str, ...]:
    return _files(name, f"{name}/test", f"math_eval/{name}")


SETS: dict[str, tuple[Source, Reader]] = {
    "gsm8k_train": (
        Source("gsm8k train", _files("train", "gsm8k/train"), _GSM8K, "openai/gsm8k", "main", "train"),
        _gsm8k,
    ),
    "gsm8k_test": (Source("gsm8k test", _files("test", "gsm8k/test"), _GSM8K, "openai/gsm8k", "main"), _gsm8k),
    "math_train": (
        Source("math train", _files("train", "math/train"), _MATH, "DigitalLearningGmbH/MATH-lighteval", split="train"),
        _math,
    ),
    "math_test": (
        Source("math test", _files("test", "math/test"), _MATH, "DigitalLearningGmbH/MATH-lighteval"),
        _math,
    ),
    "math500": (
        Source(
            "math500",
            _files("math500", "math/math500", "math500/test"),
            f"{_HUB}/HuggingFaceH4/MATH-500",
            "HuggingFaceH4/MATH-500",
        ),
        _math,
    ),
    "aime24": (Source("aime24", _evaluation("aime24"), _QWEN, "HuggingFaceH4/aime_2024", split="train"), _contest),
    "aime25": (Source("aime25", _evaluation("aime25"), f"{_HUB}/math-ai/aime25", "math-ai/aime25"), _contest),
    "amc23": (Source("amc23", _evaluation("amc23"), _QWEN, "math-ai/amc23"), _contest),
    "olympiadbench": (
        Source(
            "olympiadbench",
            _evaluation("olympiadbench"),
            _QWEN,
            "Hothan/OlympiadBench",
            "OE_TO_maths_en_COMP",
            "train",
        ),
        _olympiad,
    ),
    "aime_1983_2023": (
        Source(
            "aime_1983_2023",
            ("aime_1983_2023_train.json", "math_eval/aime_1983_2023_train.json", "aime.json"),
            "https://github.com/agentica-project/rllm, rllm/data/train/math/aime.json",
            "di-zhang-fdu/AIME_1983_2024",
            split="train",
        ),
        _contest,
    ),
    "dapo": (
        Source(
            "dapo",
            _files("train", "dapo_math_17k/train", "dapo"),
            f"{_HUB}/open-r1/DAPO-Math-17k-Processed",
            "open-r1/DAPO-Math-17k-Processed",
            "en",
            "train",
        ),
        _dapo,
    ),
}
"""Name → where it lies and how it reads. `gear` has tried the folders; the hub's names are recalled from their pages."""


def problems(name: str, data: str | None) -> list[Problem]:
    """A whole set. Problems without an answer cannot be judged and are left out, which is said."""
    source, read = SETS[name]
    found = [read(record, f"{name}-{i}") for i, record in enumerate(load(source, data))]
    answered = [problem for problem in found if problem.answer]
    if len(answered) < len(found):
        lost = ", ".join(problem.id for problem in found if not problem.answer)
        announce(
            f"{name}: {len(found) - len(answered)} of {len(found)} problems have no answer and are left out: {lost}"
        )
    return answered


def without(kept: list[Problem], name: str, remove: Iterable[str], data: str | None) -> list[Problem]:
    """`kept` less every problem that one of the sets `remove` holds too, compared by `fingerprint`. Says how many."""
    known = [(fingerprint(problem.text), problem) for problem in kept]
    everything, removed, shown = {mark for mark, _ in known}, set[str](), list[str]()
    for other in remove:
        if other not in SETS or other in (name, "dapo"):
            raise unknown_name("evaluation set to remove", other, [n for n in SETS if n not in (name, "dapo")])
        try:
            held = [fingerprint(problem.text) for problem in problems(other, data)]
        except GearError as error:
            raise GearError(
                f"{name} is cleaned of evaluation problems before it is trained on, and one set is not to be had. {error} "
                f"To clean it of others only: --set task.remove=math_test,math500, or none."
            ) from None
        shown.append(f"{other}: {sum(mark in everything for mark in held)} of {len(held)}")
        removed.update(held)
    left = [problem for mark, problem in known if mark not in removed]
    announce(
        f"{name}: removed {len(known) - len(left)} of {len(known)} training problems that evaluation sets hold "
        f"({'; '.join(shown) or 'none was looked for'})"
    )
    if not left:
        raise GearError(f"{name}: no problem is left to train on.")
    return left
