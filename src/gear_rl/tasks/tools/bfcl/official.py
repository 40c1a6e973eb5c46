"""The official BFCL checker, run in a process of its own: a JSON request a line in, a JSON answer a line out.

    python -I official.py MEMORY_BYTES [FOLDER_WITH_PACKAGES …]

Imports the standard library and `bfcl_eval` only, so that it starts quickly and can be killed without loss. `bfcl_eval`
runs calls with `eval`; the parent sends it nothing but known method names, identifiers and literals (`calls.py`), and this
process has little memory, no environment, an empty folder and may not write to files.

The AST checker asks `bfcl_eval.constants.model_config` for one flag of the model; that module imports every vendor's
client, so a stub with that flag stands in: dots in function names are underscores, as for the benchmark's own
function-calling models.
"""

from __future__ import annotations

import json
import resource
import sys
import types
from collections import OrderedDict
from typing import Any

MODEL = "policy"
MOST_WORLDS = 2048
MOST_OUTPUT = 20_000
"""Characters of one tool result that go back to the policy."""


class _Configuration(dict):
    """One flag for every model name."""

    def __missing__(self, name: str) -> Any:
        return types.SimpleNamespace(underscore_to_dot=True)


def _load() -> dict[str, Any]:
    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = _Configuration()  # type: ignore[attr-defined]
    sys.modules["bfcl_eval.constants.model_config"] = stub
    from bfcl_eval.eval_checker.ast_eval import ast_checker
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

    return {"ast": ast_checker.ast_checker, "turns": multi_turn_checker.multi_turn_checker, "utils": multi_turn_utils}


class Worlds:
    """Simulated APIs under way, one set per rollout. The official code keeps them as globals of its own module."""

    def __init__(self, official: dict[str, Any]) -> None:
        self.official, self.utils = official, official["utils"]
        self.steps: OrderedDict[str, int] = OrderedDict()

    def run(self, world: str, entry: dict[str, Any], calls: list[str]) -> list[str]:
        results, _ = self.utils.execute_multi_turn_func_call(
            calls,
            entry["initial_config"],
            entry["involved_classes"],
            f"{MODEL}_{world}",
            entry["id"],
            long_context="long_context" in entry["id"],
        )
        return [text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "…" for text in results]

    def step(self, world: str, entry: dict[str, Any], history: list[list[str]]) -> list[str]:
        """The results of the last step. Earlier steps run again only if this process has not seen them."""
        done = self.steps.pop(world, 0)
        if done > len(history) - 1:
            self.forget(world)
            done = 0
        results: list[str] = []
        for calls in history[done:]:
            results = self.run(world, entry, calls)
        self.steps[world] = len(history)
        while len(self.steps) > MOST_WORLDS:
            self.forget(self.steps.popitem(last=False)[0])
        return results

    def forget(self, world: str) -> None:
        names = vars(self.utils)
        for name in [name for name in names if name.startswith(f"{MODEL}_{world}_")]:
            del names[name]
        self.steps.pop(world, None)

    def judge(self, world: str, entry: dict[str, Any], turns: list[list[list[str]]], gold: list[list[str]]) -> Any:
        """The official multi-turn verdict, with worlds of its own that are thrown away afterwards."""
        try:
            verdict = self.official["turns"](turns, gold, entry, entry["id"].rsplit("_", 1)[0], f"{MODEL}_judge{world}")
        finally:
            self.forget(f"judge{world}")
        return verdict


def answer(official: dict[str, Any], worlds: Worlds, request: dict[str, Any]) -> Any:
    kind = request["kind"]
    if kind == "ast":
        verdict = official["ast"](
            request["functions"], request["calls"], request["gold"], request["language"], request["category"], MODEL
        )
        return {"valid": bool(verdict["valid"]), "why": str(verdict.get("error_type", ""))}
    if kind == "step":
        return {"results": worlds.step(request["world"], request["entry"], request["history"])}
    if kind == "turns":
        return leading_turns(worlds, **{key: request[key] for key in ("world", "entry", "turns", "gold")})
    if kind == "forget":
        worlds.forget(request["world"])
        return {}
    raise ValueError(f"unknown request {kind!r}")


def leading_turns(worlds: Worlds, world: str, entry: dict[str, Any], turns: Any, gold: Any) -> dict[str, Any]:
    """How many user turns from the first on are right. The official checker stops at the first wrong one without saying
    which it was, so it is asked about prefixes, halving."""
    verdict = worlds.judge(world, entry, turns, gold)
    if verdict["valid"]:
        return {"right": len(gold), "why": ""}
    right, wrong = 0, len(gold)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if worlds.judge(world, entry, turns[:middle], gold[:middle])["valid"]:
            right = middle
        else:
            wrong = middle
    return {"right": right, "why": str(verdict.get("error_type", ""))}


def main(memory: int) -> None:
    out = sys.stdout
    sys.stdout = sys.stderr  # the official code prints
    try:
        official = _load()
    except ImportError as error:
        print(json.dumps({"unavailable": str(error)}), file=out, flush=True)
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worlds = Worlds(official)
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin.buffer:
        try:
            reply = answer(official, worlds, json.loads(line))
        except MemoryError:
            raise
        except Exception as error:  # the official code raises on some malformed answers: they are wrong answers
            reply = {"raised": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    sys.path += [folder for folder in sys.argv[2:] if folder not in sys.path]  # wherever the parent finds its packages
    main(int(sys.argv[1]))
