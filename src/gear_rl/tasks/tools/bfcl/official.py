"""The official BFCL checker; run by `workers/sandbox.py`. Imports the standard library and `bfcl_eval` only.

`bfcl_eval` runs calls with `eval`; the parent sends it nothing but known method names, identifiers and literals (`calls.py`).
It also remembers: simulated APIs are globals of its module, and `post_tweet` keeps a mutable default. So every step and
every verdict is computed in a fork of a process that has run nothing, from the rollout's own calls alone.

The AST checker asks `bfcl_eval.constants.model_config` for one flag of the model; that module imports every vendor's
client, so a stub with that flag stands in: dots in function names are underscores, as for the benchmark's own
function-calling models.
"""

from __future__ import annotations

import copy
import importlib
import sys
import types
from functools import partial, wraps
from typing import Any

MODEL = "policy"
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

    for name, module in multi_turn_utils.CLASS_FILE_PATH_MAPPING.items():  # here once, and not in every fork
        _forget_defaults(getattr(importlib.import_module(module), name))
    return {"ast": ast_checker.ast_checker, "turns": multi_turn_checker.multi_turn_checker, "utils": multi_turn_utils}


def _forget_defaults(api: type) -> None:
    """Give every call its own copy of a default that can change. `post_tweet(mentions=[])` stores its default in the tweet and
    `mention` extends it, in the reference's world as in the policy's: the same calls would not be judged equal."""
    for name, function in list(vars(api).items()):
        defaults = getattr(function, "__defaults__", None)
        if defaults and any(isinstance(value, (list, dict, set)) for value in defaults):
            setattr(api, name, _with_fresh(function, defaults))


def _with_fresh(function: Any, defaults: tuple[Any, ...]) -> Any:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        function.__defaults__ = copy.deepcopy(defaults)
        return function(*arguments, **named)

    return call


def start() -> Any:
    official = _load()

    def ast(functions: Any, calls: Any, reference: Any, language: str, category: str) -> dict[str, Any]:
        verdict = official["ast"](functions, calls, reference, language, category, MODEL)
        return {"valid": bool(verdict["valid"]), "why": str(verdict.get("error_type", ""))}

    def step(entry: dict[str, Any], history: list[list[str]]) -> dict[str, Any]:
        """The results of the last step, after all earlier ones."""
        results: list[str] = []
        for calls in history:
            results, _ = official["utils"].execute_multi_turn_func_call(
                calls,
                entry["initial_config"],
                entry["involved_classes"],
                MODEL,
                entry["id"],
                long_context="long_context" in entry["id"],
            )
        return {"results": [text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "…" for text in results]}

    def judge(entry: dict[str, Any], turns: list[list[list[str]]], reference: list[list[str]]) -> dict[str, Any]:
        verdict = official["turns"](turns, reference, entry, entry["id"].rsplit("_", 1)[0], MODEL)
        return {"valid": bool(verdict["valid"]), "why": str(verdict.get("error_type", ""))}

    def leading_turns(apart: Any, entry: dict[str, Any], turns: Any, reference: Any) -> dict[str, Any]:
        """How many user turns from the first on are right. The official checker stops at the first wrong one without
        saying which it was, so it is asked about prefixes, halving."""
        verdict = apart(judge, entry, turns, reference)
        if verdict["valid"]:
            return {"right": len(reference), "why": ""}
        right, wrong = 0, len(reference)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if apart(judge, entry, turns[:middle], reference[:middle])["valid"]:
                right = middle
            else:
                wrong = middle
        return {"right": right, "why": verdict["why"]}

    def handle(request: dict[str, Any], apart: Any) -> dict[str, Any]:
        kind = request.pop("kind")
        if kind == "turns":
            return leading_turns(apart, **request)
        return apart(partial(ast if kind == "ast" else step, **request))

    return handle
