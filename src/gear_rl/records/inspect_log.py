"""Logs of Inspect (the UK AI Security Institute's `inspect_ai`) in their JSON form: samples with messages and scores.

Read from the published schema, version 2 of the log: `eval.task`, `eval.model`, and per sample `id`, `messages`, `scores`
and `attachments`. Repeats of a sample (epochs) are attempts at one problem. Nothing of Inspect is imported.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.errors import GearError
from gear_rl.files import kind_of
from gear_rl.records.messages import read_messages

VERSION = 2
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's letters: correct, partially correct, incorrect, no answer."""
ATTACHMENT = "attachment://"


@dataclass(frozen=True)
class InspectSample:
    where: str
    problem: str
    messages: list[Message]
    reward: float | None
    """The first score, where it is a number or a grade."""
    success: bool | None
    verdict: dict[str, Any] | None
    """As in `RecordedRollout.verdict`: all scores, and what their scorers explained."""


def is_inspect_log(content: dict[str, Any]) -> bool:
    return isinstance(content.get("eval"), dict) and "status" in content and "version" in content


def read_inspect_log(path: Path, content: dict[str, Any]) -> tuple[dict[str, Any], list[InspectSample]]:
    """Task and model, and every sample that has an answer of the model. `content`: the file, parsed."""
    if content.get("version") != VERSION:
        raise GearError(f"{path} is an Inspect log of version {content.get('version')!r}; version {VERSION} is read.")
    samples = content.get("samples")
    if not isinstance(samples, list) or not samples:
        raise GearError(f"{path} is an Inspect log without samples.")
    read = [_sample(sample, f"{path}, sample {number}") for number, sample in enumerate(samples, start=1)]
    answered = [sample for sample in read if any(message["role"] == "assistant" for message in sample.messages)]
    if not answered:
        raise GearError(f"{path}: no sample has a message of the assistant.")
    return {"task": content["eval"].get("task"), "model": content["eval"].get("model")}, answered


def _sample(sample: Any, where: str) -> InspectSample:
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        raise GearError(f"{where}: must be an object with messages.")
    attachments = sample.get("attachments")
    texts = attachments if isinstance(attachments, dict) else {}
    messages = [_message(message, texts) for message in sample["messages"]]
    scores = sample.get("scores") or {}
    if not isinstance(scores, dict) or not all(isinstance(score, dict) for score in scores.values()):
        raise GearError(f"{where}: scores must be an object of scores, not {kind_of(scores)}.")
    values = {name: score.get("value") for name, score in scores.items()}
    first = next(iter(values.values()), None)
    said = [f"{name}: {s['explanation']}" for name, s in scores.items() if isinstance(s.get("explanation"), str)]
    parts = {name: number for name, value in values.items() for name, number in _parts(name, value)}
    return InspectSample(
        where=where,
        problem=json.dumps(sample.get("id")),
        messages=read_messages(messages, where) if messages else [],
        reward=_number(first),
        success={"C": True, "I": False}.get(first) if isinstance(first, str) else None,
        verdict={"channels": parts, "feedback": "\n".join(said) or None} if parts or said else None,
    )


def _message(message: Any, attachments: dict[str, Any]) -> Any:
    """As OpenAI's API writes it; `read_messages` checks it."""
    if not isinstance(message, dict):
        return message
    kept = {"role": message.get("role"), "content": _text(message.get("content"), attachments)}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        kept["tool_calls"] = [
            {"function": {"name": call.get("function"), "arguments": call.get("arguments", {})}}
            if isinstance(call, dict)
            else call
            for call in calls
        ]
    return kept


def _text(content: Any, attachments: dict[str, Any]) -> Any:
    """Text and reasoning; of anything else only its kind."""
    if isinstance(content, str) and content.startswith(ATTACHMENT):
        return attachments.get(content.removeprefix(ATTACHMENT), content)
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            parts.append(str(_text(part.get("text"), attachments)))
        elif kind == "reasoning":
            parts.append(f"<think>{_text(part.get('reasoning'), attachments)}</think>")
        else:
            parts.append(f"[{kind}]")
    return "".join(parts)


def _parts(name: str, value: Any) -> list[tuple[str, float | None]]:
    if isinstance(value, dict):
        return [(f"{name}/{key}", _number(each)) for key, each in value.items()]
    return [(name, _number(value))]


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return GRADES.get(value)
    number = float(value) if isinstance(value, bool | int | float) and abs(value) < 3e38 else None
    return number if number is None or math.isfinite(number) else None
