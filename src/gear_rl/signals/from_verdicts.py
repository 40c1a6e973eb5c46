"""What a task's verdicts know about single tokens and turns, in the form in which an engine takes it.

A verdict is about one finished rollout (`gear_rl.tasks.base.Verdict`). Beyond its reward it may hold

    decisions      per token       signal "decision"
    turn_rewards   per turn        signal "turn_reward", on the last token of the turn
    states         per turn        signal "anchor_state", on every token of the turn
    calls          per token       signal "tool_call"
    channels       per rollout     the reward's parts, by name
    feedback       per rollout     text, what the environment said about it

Rows reach these functions as the engine hands them on: with their `verdict`, and `actions`, 1 where the policy spoke.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.tasks.base import Row, Task, Transcript

Ids = list[list[int]]
_FIELDS = {"decision": "decisions", "turn_reward": "turn_rewards", "anchor_state": "states", "tool_call": "calls"}
_ANSWER_READERS = ("answer_logprob", "answer_logprob_start", "saliency_mask", "saliency_grad", "saliency_act")


def asked_of_task(method: Method) -> list[str]:
    """What `method` needs that only a task's verdicts can tell, and cannot do without."""
    asked = [need for need in method.needs if need in _FIELDS and need != "tool_call"]
    return asked + ["channels"] * bool(method.fewest_channels) + ["feedback"] * (method.hint == "feedback")


def known_signals(task: Task, row: Row, method: Method) -> set[str]:
    """What this task's verdicts tell. Where `method` has a use for it, by asking for one on a rollout that said nothing."""
    known = {"decision"} if task.judge_knows_decisions else set()
    if not asked_of_task(method) and method.hint != "sibling":
        return known
    try:
        verdict = task.verdict(row, Transcript("", [], task.episode(row)))
    except GearError:
        raise
    except Exception as error:
        raise GearError(f"task {type(task).__name__} cannot judge a rollout that says nothing: {error!r}.") from error
    fields = {signal for signal, field in _FIELDS.items() if getattr(verdict, field) is not None}
    parts = verdict.channels.keys() - {"generic"}
    known |= fields - {"decision"} | ({"channels"} if len(parts) >= max(1, method.fewest_channels) else set())
    return known | ({"feedback"} if verdict.feedback is not None else set())


def refuse_what_the_task_cannot_say(task: Task, name: str, row: Row, method: Method) -> None:
    """Before a model is loaded: `method` needs something that no rollout of the task `name` could tell."""
    known = known_signals(task, row, method)
    for need in asked_of_task(method):
        if need not in known:
            raise GearError(
                f"{method.name} needs {need}, and task {name!r} cannot say it: its verdicts would have to hold "
                f"`{_FIELDS.get(need, need)}` (gear_rl.signals.from_verdicts)."
            )
    if any(need in _ANSWER_READERS for need in method.needs) and not str(row.get("answer") or "").strip():
        raise GearError(f"{method.name} reads the gold answer, and the rows of task {name!r} have no text in `answer`.")


def token_signals(names: set[str]) -> Callable[[list[Row], Ids], dict[str, list[list[float]]]]:
    """For the engine: rows, completions → the signals `names` that verdicts can tell, per token."""
    spread = {
        "decision": lambda row: row["verdict"].decisions,
        "turn_reward": lambda row: at_turns(row["actions"], row["verdict"].turn_rewards, last_only=True),
        "anchor_state": lambda row: at_turns(row["actions"], row["verdict"].states, last_only=False),
        "tool_call": lambda row: row["verdict"].calls,
    }

    def signals(rows: list[Row], completions: Ids) -> dict[str, list[list[float]]]:
        return {name: [list(map(float, spread[name](row))) for row in rows] for name in sorted(names)}

    return signals


def at_turns(actions: list[int], values: list[Any], last_only: bool) -> list[float]:
    """A value per turn → per token: on the turn's last token, or on each of them. A turn is a run of action tokens."""
    runs = [(speaks, len(list(run))) for speaks, run in groupby(actions)]
    turns = sum(bool(speaks) for speaks, _ in runs)
    if turns != len(values):
        raise GearError(f"the verdict speaks of {len(values)} turns, but the policy took {turns}.")
    spread: list[float] = []
    waiting = iter(values)
    for speaks, length in runs:
        value = float(next(waiting)) if speaks else 0.0
        spread += [0.0] * (length - 1) + [value] if last_only else [value] * length
    return spread


def channels(rows: list[Row], completions: Ids) -> dict[str, list[float]]:
    """For the engine: the parts of each rollout's reward."""
    names = sorted({name for row in rows for name in row["verdict"].channels})
    for row in rows:
        if len(row["verdict"].channels) != len(names):
            lacking = ", ".join(name for name in names if name not in row["verdict"].channels)
            raise GearError(f"a verdict lacks the reward channel {lacking}: all rollouts of a batch need the same.")
    return {name: [row["verdict"].channels[name] for row in rows] for name in names}


def feedback(rows: list[Row], completions: Ids) -> list[str | None]:
    """For the engine: what the environment said about each rollout."""
    return [row["verdict"].feedback for row in rows]
