"""What a task's verdicts know about single tokens and turns, as the step takes it.

A verdict is about one finished rollout (`gear_rl.tasks.base.Verdict`). Beyond its reward it may hold

    decisions      per token       signal "decision"
    turn_rewards   per turn        signal "turn_reward", on the last token of the turn
    states         per turn        signal "anchor_state", on every token of the turn
    calls          per token       signal "tool_call"
    requests       per turn        signal "request_ids", on every token of the turn
    answer_span    per token       signal "answer_span"
    channels       per rollout     the reward's parts, by name
    feedback       per rollout     text, what the environment said about it
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gear_rl.assignment.signals import find_signal, how_to_get
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.methods.base import SIBLINGS
from gear_rl.signals.providers import ANSWER_READERS, OWN_ANSWER
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import TaskKnowledge
from gear_rl.tasks.base import Row, Task, Transcript, Verdict

FIELDS = {
    "decision": "decisions",
    "turn_reward": "turn_rewards",
    "anchor_state": "states",
    "tool_call": "calls",
    "request_ids": "requests",
    "answer_span": "answer_span",
}
"""Signal → the field of a verdict that it is made from."""
PER_TURN = ("turn_reward", "anchor_state", "request_ids")
OPTIONAL = ("tool_call", "answer_span")
"""Signals that a method can do without: there is another way to them."""


class VerdictKnowledge(TaskKnowledge):
    """Reads `Sampled.verdicts`."""

    has_channels = True

    def __init__(self, task: Task, row: Row, method: Method, tokenizer: Any) -> None:
        known = known_signals(task, row, method)
        spans = {"answer_span"} if set(method.needs) & set(OWN_ANSWER) else set()
        self.signals = frozenset(({*method.needs, "decision"} | spans) & known)
        self.has_feedback = "feedback" in known
        self._task, self._tokenizer = task, tokenizer

    def token_signals(self, sampled: Sampled) -> dict[str, list[list[float]]]:
        return {name: signal_of(name, sampled) for name in sorted(self.signals)}

    def channels(self, sampled: Sampled) -> dict[str, list[float]]:
        return channels_of(_verdicts(sampled))

    def feedback(self, sampled: Sampled) -> list[str | None]:
        return [v.feedback if self.has_feedback else None for v in _verdicts(sampled)]

    def sibling_hint(self, sampled: Sampled, rollout: int, sibling: int) -> str | None:
        return self._task.as_hint(self._tokenizer.decode(sampled.completion_ids[sibling]))


def _verdicts(sampled: Sampled) -> Sequence[Verdict]:
    if sampled.verdicts is None:
        raise GearError("these rollouts were not judged by a task, so there are no verdicts to read.")
    return sampled.verdicts


def signal_of(name: str, sampled: Sampled) -> list[list[float]]:
    """One of `FIELDS` for each rollout, per token of its completion."""
    rows = []
    for i, (verdict, ids) in enumerate(zip(_verdicts(sampled), sampled.completion_ids, strict=True)):
        values = getattr(verdict, FIELDS[name])
        if name in PER_TURN:
            actions = sampled.action_mask[i, : len(ids)].int().tolist()
            values = at_turns(actions, values, last_only=name == "turn_reward")
        rows.append([float(value) for value in values])
    return rows


def at_turns(actions: list[int], values: list[Any], last_only: bool) -> list[float]:
    """A value per turn → per token: on the turn's last token, or on each of them. A turn is a run of action tokens."""
    runs = [(acts, len(list(run))) for acts, run in groupby(actions)]
    turns = sum(bool(acts) for acts, _ in runs)
    if turns != len(values):
        raise GearError(f"the verdict speaks of {len(values)} turns, but the policy took {turns}.")
    spread: list[float] = []
    waiting = iter(values)
    for acts, length in runs:
        value = float(next(waiting)) if acts else 0.0
        spread += [0.0] * (length - 1) + [value] if last_only else [value] * length
    return spread


def channels_of(verdicts: Sequence[Verdict]) -> dict[str, list[float]]:
    """The parts of each rollout's reward, by name. All rollouts must have the same."""
    names = sorted({name for verdict in verdicts for name in verdict.channels})
    for verdict in verdicts:
        if len(verdict.channels) != len(names):
            lacking = ", ".join(name for name in names if name not in verdict.channels)
            raise GearError(f"a verdict lacks the reward channel {lacking}: all rollouts of a batch need the same.")
    return {name: [verdict.channels[name] for verdict in verdicts] for name in names}


# ------------------------------------------------------------------------------------------------ before anything runs
def asked_of_task(method: Method) -> list[str]:
    """What `method` needs that only a task's verdicts can tell, and cannot do without."""
    known = [(need, find_signal(need)) for need in method.needs if need not in OPTIONAL]
    asked = [need for need, signal in known if signal is not None and signal.source == "task"]
    return asked + ["channels"] * bool(method.fewest_channels) + ["feedback"] * (method.hint == "feedback")


def known_signals(task: Task, row: Row, method: Method) -> set[str]:
    """What this task's verdicts tell. Where `method` has a use for it, by asking for one on a rollout that said nothing."""
    known = {"decision"} if task.judge_knows_decisions else set()
    has_use = asked_of_task(method) or set(method.needs) & {*OPTIONAL, *OWN_ANSWER} or method.hint in SIBLINGS
    if not has_use:
        return known
    try:
        verdict = task.verdict(row, Transcript("", [], task.episode(row)))
    except GearError:
        raise
    except Exception as error:
        raise GearError(f"task {type(task).__name__} cannot judge a rollout that says nothing: {error!r}.") from error
    fields = {signal for signal, field in FIELDS.items() if getattr(verdict, field) is not None}
    parts = verdict.channels.keys() - {"generic"}
    known |= fields - {"decision"} | ({"channels"} if len(parts) >= max(1, method.fewest_channels) else set())
    return known | ({"feedback"} if verdict.feedback is not None else set())


def refuse_what_the_task_cannot_say(
    task: Task, name: str, row: Row, method: Method, measured: Sequence[str] = ()
) -> None:
    """Before a model is loaded: `method` needs something that no rollout of the task `name` could tell. `measured`: signals
    that the caller gets in another way."""
    known = known_signals(task, row, method) | set(measured)
    for need in asked_of_task(method):
        if need not in known and need not in FIELDS and need not in ("channels", "feedback"):
            raise GearError(
                f"{method.name} needs {need}, and no verdict of task {name!r} can hold it{how_to_get(need)}. Train with "
                "CreditGRPOTrainer and knowledge= that gives it."
            )
        if need not in known:
            raise GearError(
                f"{method.name} needs {need}, and task {name!r} cannot say it: its verdicts would have to hold "
                f"`{FIELDS.get(need, need)}` (gear_rl.signals.from_verdicts)."
            )
    if any(need in ANSWER_READERS for need in method.needs) and not str(row.get("answer") or "").strip():
        raise GearError(
            f"{method.name} reads the reference answer, and the rows of task {name!r} have no text in `answer`."
        )
