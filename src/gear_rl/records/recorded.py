"""One line of a record: its fields and their checks. A record may come from anywhere, so every field is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from gear_rl.errors import GearError


@dataclass(frozen=True)
class RecordedRollout:
    """One line of a record. Every list has one entry per token of the completion."""

    step: int
    """The optimizer steps done when it was sampled."""
    group: int
    """Rollouts of one prompt share a step and a group."""
    reward: float | None
    """None: it could not be scored."""
    success: bool | None
    """True success, where the task knows it apart from the reward."""
    group_advantage: float | None
    """What the engine gave to the whole rollout; None where the method worked from rewards."""
    prompt: str
    hinted_prompt: str | None
    """What the teacher read instead; None without a teacher."""
    token_ids: list[int]
    token_texts: list[str]
    action_mask: list[int]
    """1 where the policy sampled the token, else 0."""
    turns: list[int]
    """The assistant turn a token belongs to, counted from 1; 0 where masked."""
    signals: dict[str, list[float | None]]
    """What the method saw, None where masked. A task's knowledge is among them, as "decision"."""
    segments: list[int]
    """Counted from 1; 0 where masked."""
    onsets: list[int]
    """1 at the first token of each adaptive segment, else 0."""
    weights: list[float]
    advantages: list[float]
    trained: bool = True
    """False: the engine did not train on it, such as a truncated completion that TRL masks."""
    verdict: dict[str, Any] | None = None
    """What the verifier said, where it says more than the reward: {"channels": {part: number}, "feedback": text}. A record has
    the key only then."""
    problem: str | None = None
    """The id of the task's row that it was played on; None where rows have none, and in records of earlier versions."""


def checked(content: dict[str, Any], where: str) -> RecordedRollout:
    """The line as a rollout: every field present, of its type, and all lists of one length."""
    content = {"trained": True, "problem": None, "verdict": None, **content}  # older records do not say
    names = [f.name for f in fields(RecordedRollout)]
    for name in names:
        if name not in content:
            raise GearError(f"{where}: corrupt, {name!r} is missing.")
        if name in _VALUE_CHECKS and not _VALUE_CHECKS[name](content[name]):
            raise GearError(f"{where}: corrupt, {name} is {str(content[name])[:40]!r}.")
    length = len(content["token_ids"])
    lists = [(name, content[name], check) for name, check in _LIST_CHECKS.items()]
    lists += [(f"signal {name!r}", row, _are_numbers_or_null) for name, row in content["signals"].items()]
    for name, row, fits in lists:
        if not isinstance(row, list) or len(row) != length:
            raise GearError(f"{where}: corrupt, {name} is not a list of {length} entries, one per token.")
        if not fits(row):
            raise GearError(f"{where}: corrupt, {name} has an entry of another type.")
    for name, row in content["signals"].items():
        for position, (value, sampled) in enumerate(zip(row, content["action_mask"], strict=True)):
            if value is None and sampled:
                raise GearError(f"{where}: corrupt, signal {name!r} is null at position {position}, an action token.")
    return RecordedRollout(**{name: content[name] for name in names})


def are_counts(row: list[Any]) -> bool:
    """Whole numbers that fit a tensor."""
    return all(type(x) is int and 0 <= x < 2**31 for x in row)


def _are_bits(row: list[Any]) -> bool:
    return all(type(x) is int and x in (0, 1) for x in row)


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) and abs(x) < 3e38  # fits float32; NaN and infinities do not


def _are_numbers(row: list[Any]) -> bool:
    return all(map(_is_number, row))


def _are_numbers_or_null(row: list[Any]) -> bool:
    return all(x is None or _is_number(x) for x in row)


def _is_verdict(x: Any) -> bool:
    if not isinstance(x, dict) or not x.keys() <= {"channels", "feedback"}:
        return False
    channels, feedback = x.get("channels", {}), x.get("feedback")
    fits = isinstance(channels, dict) and all(value is None or _is_number(value) for value in channels.values())
    return fits and (feedback is None or isinstance(feedback, str))


def _are_texts(row: list[Any]) -> bool:
    return all(isinstance(x, str) for x in row)


_LIST_CHECKS: dict[str, Callable[[list[Any]], bool]] = {
    "token_ids": are_counts,
    "token_texts": _are_texts,
    "action_mask": _are_bits,
    "turns": are_counts,
    "segments": are_counts,
    "onsets": _are_bits,
    "weights": _are_numbers,
    "advantages": _are_numbers,
}
_VALUE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "reward": lambda x: x is None or _is_number(x),
    "trained": lambda x: isinstance(x, bool),
    "verdict": lambda x: x is None or _is_verdict(x),
    "success": lambda x: x is None or isinstance(x, bool),
    "group_advantage": lambda x: x is None or _is_number(x),
    "prompt": lambda x: isinstance(x, str),
    "hinted_prompt": lambda x: x is None or isinstance(x, str),
    "problem": lambda x: x is None or isinstance(x, str),
    "token_ids": lambda x: isinstance(x, list),
    "signals": lambda x: isinstance(x, dict),
}
