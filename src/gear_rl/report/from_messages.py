"""Conversations without the texts of tokens (transcripts, Inspect logs, traces of verifiers) as the page shows rollouts. No
model is run: words stand for tokens. A word has the mean advantage of its message where the file has advantages, else its
rollout's, the reward less the mean of its group. `gear credit` gives
transcripts the tokens of a model, its signals and a method's credit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message, well_formed
from gear_rl.errors import GearError
from gear_rl.files import read_json
from gear_rl.records.inspect_log import is_inspect_log, read_inspect_log
from gear_rl.records.json_rows import LARGEST_FILE, read_rows
from gear_rl.records.messages import read_messages
from gear_rl.records.recorded import RecordedRollout
from gear_rl.records.transcripts import groups_of, read_transcripts
from gear_rl.records.verifiers_traces import is_verifiers_traces, read_verifiers_traces

METHOD, TRACED = "reward minus the group's mean", "advantages of the traces"
NOTE = "Read from messages: words stand for tokens, and each has its rollout's advantage. `gear credit` gives real credit."
TRACED_NOTE = "Read from traces: words stand for tokens, and each has the mean advantage of its message."
_WORDS = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Row:
    group: int
    messages: list[Message]
    reward: float | None
    success: bool | None = None
    advantage: float | None = None
    """Of the whole rollout, where the file has it."""
    of_messages: list[float] | None = None
    """The mean advantage of each message, where the file has advantages of tokens."""
    verdict: dict[str, Any] | None = None


class Conversations:
    """A file of messages, its header as a record would have it, and its rollouts."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.header: dict[str, Any] = {"method": METHOD, "task": path.name}
        self.note = NOTE
        self._known: dict[str, int] = {}
        if is_verifiers_traces(path):
            self._rows = _traced(path)
            if any(row.of_messages is not None for row in self._rows):
                self.header["method"], self.note = TRACED, TRACED_NOTE
        elif is_inspect_log(content):
            facts, samples = read_inspect_log(path, content)
            self.header |= {name: value for name, value in facts.items() if isinstance(value, str)}
            number = {problem: n for n, problem in enumerate(dict.fromkeys(s.problem for s in samples))}
            self._rows = [Row(number[s.problem], s.messages, s.reward, s.success, verdict=s.verdict) for s in samples]
        else:
            rows = read_transcripts(path)
            group = {i: n for n, members in enumerate(groups_of(rows)) for i in members}
            self._rows = [Row(group[i], r.messages, r.reward, r.success, r.advantage) for i, r in enumerate(rows)]

    def rollouts(self) -> Iterator[RecordedRollout]:
        """In groups, as a record has them."""
        rewards: dict[int, list[float]] = {}
        for row in self._rows:
            rewards.setdefault(row.group, []).extend([] if row.reward is None else [row.reward])
        for row in sorted(self._rows, key=lambda row: row.group):
            mean = sum(rewards[row.group]) / max(1, len(rewards[row.group]))
            given = row.advantage if row.advantage is not None else 0.0 if row.reward is None else row.reward - mean
            yield self._rollout(row, float(f"{given:.6g}"))

    def _rollout(self, row: Row, given: float) -> RecordedRollout:
        messages, first = row.messages, [message["role"] for message in row.messages].index("assistant")
        texts: list[str] = []
        turns: list[int] = []
        advantages: list[float] = []
        turn, before = 0, ""
        for number, message in enumerate(messages[first:], start=first):
            sampled = message["role"] == "assistant"
            turn += sampled and before != "assistant"  # two messages in a row are one turn
            before = message["role"]
            words = _WORDS.findall(_said(message) if sampled else f"{before}: {_said(message)}")
            texts += words
            turns += [turn if sampled else 0] * len(words)
            credit = given if row.of_messages is None else row.of_messages[number]
            advantages += [credit if sampled else 0.0] * len(words)
        mask = [int(turn > 0) for turn in turns]
        return RecordedRollout(
            step=0,
            group=row.group,
            reward=row.reward,
            success=row.success,
            group_advantage=given,
            prompt="".join(f"{message['role']}: {_said(message)}" for message in messages[:first]),
            hinted_prompt=None,
            token_ids=[self._known.setdefault(text, len(self._known)) for text in texts],
            token_texts=texts,
            action_mask=mask,
            turns=turns,
            signals={},
            segments=turns,
            onsets=[0] * len(texts),
            weights=[float(sampled) for sampled in mask],
            advantages=advantages,
            verdict=row.verdict,
        )


def _traced(path: Path) -> list[Row]:
    """Every branch that the policy of a trace took; a judge's traces are not rollouts."""
    if path.stat().st_size > LARGEST_FILE:
        raise GearError(f"{path} has more than {LARGEST_FILE >> 20} MiB, which is the most that is read at once. Split it.")
    rows: list[Row] = []
    number: dict[str, int] = {}
    for trace in read_verifiers_traces(path):
        for branch in trace.branches if trace.trainable else ():
            if not branch.trainable or all(message.get("role") != "assistant" for message in branch.messages):
                continue
            means = None if branch.advantages is None else _means(branch.advantages, branch.masks)
            group = number.setdefault(trace.group, len(number))
            verdict = {"channels": trace.channels} if trace.channels else None
            messages = read_messages(branch.messages, trace.where)
            rows.append(Row(group, messages, trace.reward, of_messages=means, verdict=verdict))
    if not rows:
        raise GearError(f"{path}: no trace has a message of the policy.")
    return rows


def _means(advantages: list[float], masks: list[list[int]]) -> list[float]:
    """Per message, over its sampled tokens; 0 where it has none."""
    means, start = [], 0
    for mask in masks:
        total = sum(advantages[start : start + len(mask)])
        means.append(float(f"{total / max(1, sum(mask)):.6g}"))
        start += len(mask)
    return means


def find_conversations(path: Path) -> Conversations | None:
    """What `path` holds, if it is a file of messages; None if it is something else."""
    if path.suffix == ".eval":
        raise GearError(f"{path} is an Inspect log in its packed form. `inspect log dump {path} > log.json` writes it as JSON.")
    try:
        content = next((row for _, row in read_rows(path)), {})
    except GearError:
        try:
            content = well_formed(read_json(path, strict=False))  # Inspect writes NaN where a sample has no score
        except (GearError, RecursionError):
            return None  # then it is read as a record, whose errors say more
    known = "messages" in content or is_inspect_log(content) or is_verifiers_traces(path)
    return Conversations(path, content) if known else None


def _said(message: Message) -> str:
    """The message's text, and its tool calls as chat templates write them."""
    lines = [str(message["content"])] if message["content"] else []
    for call in message.get("tool_calls", []):
        function = call["function"]
        content = json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)
        lines.append(f"<tool_call>\n{content}\n</tool_call>")
    return "\n".join(lines) + "\n"
