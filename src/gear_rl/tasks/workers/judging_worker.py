"""The process in which answers are judged: a script of its own, started by `judging.Judge`, one JSON line in, one out.

It reads what a model wrote with libraries that evaluate expressions (math-verify, reasoning-gym's verifiers), so it is a
process that may hang, crash or fill its memory without anyone else noticing: it cannot write files or start processes, and
its parent ends it when an answer takes too long. It imports nothing of gear_rl.
"""

import json
import logging
import math
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

MEMORY = 4 * 2**30
GRACE = 2
"""Seconds after which it ends itself, should its parent be gone and no longer there to end it."""


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints must not speak into the protocol
    logging.disable(logging.CRITICAL)
    kind = sys.argv[1]
    try:
        judge = {"math": math_judge, "reasoning_gym": gym_judge}[kind]()
    except ModuleNotFoundError as error:
        out.write(json.dumps({"missing": error.name}) + "\n")
        return
    _lock_up()
    out.write(json.dumps({"ready": kind}) + "\n")
    out.flush()
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(math.ceil(request.pop("within")) + GRACE)
        try:
            answer = judge(request)
        except Exception as error:  # whatever an expression can provoke: the answer is not right
            answer = {"score": 0.0, "error": f"{type(error).__name__}: {error}"[:200]}
        signal.alarm(0)
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _lock_up() -> None:
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a system without this limit, or with a lower one already
            resource.setrlimit(limit, (value, value))
    if hasattr(resource, "RLIMIT_NPROC"):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # no new processes (root is exempt)


def math_judge() -> Any:
    """{"gold", "answer", "boxed"} → {"score"}. `boxed`: the answer was set apart; else it is looked for in the text."""
    from math_verify import parse, verify

    @lru_cache(maxsize=4096)  # a group of rollouts shares its gold
    def parsed(text: str) -> Any:
        return parse(f"\\boxed{{{text}}}", parsing_timeout=None)

    def judge(request: dict[str, Any]) -> dict[str, float]:
        answer = request["answer"]
        read = parsed(answer) if request["boxed"] else parse(answer, parsing_timeout=None)
        return {"score": float(verify(parsed(request["gold"]), read, timeout_seconds=None))}

    return judge


def gym_judge() -> Any:
    """{"dataset", "config", "seed", "size"} and {"make": [indices]} → {"made": [[question, answer], …]}, or
    {"index", "answer"} → {"score"} by the generator's own verifier."""
    import reasoning_gym

    @lru_cache(maxsize=128)  # one of each kind
    def generator(dataset: str, config: str, seed: int, size: int) -> Any:
        return reasoning_gym.create_dataset(dataset, seed=seed, size=size, **json.loads(config))

    @lru_cache(maxsize=4096)  # a group of rollouts shares its problem
    def entry(index: int, *which: Any) -> Any:
        return generator(*which)[index]

    def judge(request: dict[str, Any]) -> dict[str, Any]:
        which = (request["dataset"], request["config"], request["seed"], request["size"])
        if "make" in request:
            return {"made": [_question_and_answer(entry(index, *which)) for index in request["make"]]}
        return {"score": float(generator(*which).score_answer(request["answer"], entry(request["index"], *which)))}

    return judge


def _question_and_answer(entry: Any) -> list[str]:
    """The answer is empty where the generator gives none; some that accept many keep an example aside."""
    answer = entry["answer"]
    if answer is None:
        kept = ("possible_answer", "example_answer", "example_correct_answer")
        answer = next((entry["metadata"][key] for key in kept if entry["metadata"].get(key)), "")
    return [entry["question"], answer if isinstance(answer, str) else json.dumps(answer)]


if __name__ == "__main__":
    main()
