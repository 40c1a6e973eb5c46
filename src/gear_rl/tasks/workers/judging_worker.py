"""Judges answers with math-verify or reasoning-gym's verifiers; run by `sandbox.py` as `judging_worker.py KIND`.

Problems are made in the long-lived process: their settings are ours. Every answer is read in a fork (`apart`).
"""

import json
import logging
from functools import lru_cache
from typing import Any

FAMILIAR = (
    "12", "3.5", "1{,}234", r"\frac{1}{2}", r"\dfrac{3\pi}{4}", r"2\sqrt{3}", r"\frac{1+\sqrt{5}}{2}", "x^2+2x-1",
    "x=2y+5", r"(1,-\frac{2}{3})", r"[0,\infty)", r"(-\infty,2)\cup(3,5]", r"\{1,2,3\}",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\text{even}", r"50\%", r"90^\circ", "3!", "2^{10}", "e^{2x}",
    r"\log_2 8", r"\ln x", r"\sin\frac{\pi}{6}", "3+4i", r"x\le 3", "1<x<2", r"\binom{5}{2}", "|x-1|", "1/3",
)  # fmt: skip
"""LaTeX as answers are written."""


def start(kind: str) -> Any:
    logging.disable(logging.CRITICAL)
    return {"math": math_judge, "reasoning_gym": gym_judge}[kind]()


def math_judge() -> Any:
    """{"reference", "answer"} → {"score"}; {"text"} → {"found"}: what in the text is its answer, empty if nothing is."""
    from dataclasses import replace

    import sympy
    from math_verify import LatexExtractionConfig, parse, verify

    whole = LatexExtractionConfig()
    # Of a box all is read or nothing, and no letter at its end is left out as a unit (`2t`).
    whole = replace(whole, normalization_config=replace(whole.normalization_config, units=False))

    def boxed(text: str) -> Any:
        read = parse(f"\\boxed{{{text}}}", [whole], extraction_mode="first_match", parsing_timeout=None)
        return [with_imaginary_unit(each) for each in read]

    def with_imaginary_unit(read: Any) -> Any:
        """math-verify leaves `i` a letter, whose square is no number."""
        letters = [letter for letter in getattr(read, "free_symbols", ()) if letter.name == "i"]
        return read.subs(letters[0], sympy.I) if letters else read

    parsed_reference = lru_cache(maxsize=4096)(boxed)  # a group of rollouts shares its reference

    def score(reference: Any, answer: str) -> float:
        return float(verify(reference, boxed(answer), timeout_seconds=None))

    def find(text: str) -> str:
        found = parse(text, parsing_timeout=None)
        return found[-1] if found and isinstance(found[-1], str) else ""

    def handle(request: dict[str, Any], apart: Any) -> dict[str, Any]:
        apart.guard_here()
        if "text" in request:
            return {"found": apart(find, request["text"])}
        return {"score": apart(score, parsed_reference(request["reference"]), request["answer"])}

    # What is loaded or learnt when first needed (the LaTeX parser builds its tables as it reads) is there in every fork.
    for text in FAMILIAR:
        score(boxed(text), f"{text}+0")
        find(f"It is ${text}$.")
    return handle


def gym_judge() -> Any:
    """{"dataset", "config", "seed", "size"} and {"make": [indices]} → {"made": [[question, answer], …]}, or
    {"index", "answer"} → {"score"} by the generator's own verifier."""
    import reasoning_gym
    import sympy

    sympy.simplify(sympy.parse_expr("2*x + sin(x)**2").diff("x"))  # as above

    @lru_cache(maxsize=128)  # one of each kind
    def generator(dataset: str, config: str, seed: int, size: int) -> Any:
        return reasoning_gym.create_dataset(dataset, seed=seed, size=size, **json.loads(config))

    @lru_cache(maxsize=4096)  # a group of rollouts shares its problem
    def entry(index: int, *which: Any) -> Any:
        return generator(*which)[index]

    def score(which: Any, index: int, answer: str) -> float:
        return float(generator(*which).score_answer(answer, entry(index, *which)))

    def handle(request: dict[str, Any], apart: Any) -> dict[str, Any]:
        which = (request["dataset"], request["config"], request["seed"], request["size"])
        if "make" in request:
            return {"made": [_question_and_answer(entry(index, *which)) for index in request["make"]]}
        entry(request["index"], *which)  # made here, so that it is there for the next answer to it
        return {"score": apart(score, which, request["index"], request["answer"])}

    return handle


def _question_and_answer(entry: Any) -> list[str]:
    """The answer is empty where the generator gives none; some that accept many keep an example aside."""
    answer = entry["answer"]
    if answer is None:
        kept = ("possible_answer", "example_answer", "example_correct_answer")
        answer = next((entry["metadata"][key] for key in kept if entry["metadata"].get(key)), "")
    return [entry["question"], answer if isinstance(answer, str) else json.dumps(answer)]
