"""Conversations without tokens (transcripts, Inspect logs) as the page shows rollouts. No model is run: words stand for
tokens, and every word of a rollout has the rollout's advantage, its reward less the mean of its group. `gear credit` gives
transcripts the tokens of a model, its signals and a method's credit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message, well_formed
from gear_rl.errors import GearError
from gear_rl.files import read_json
from gear_rl.records.inspect_log import is_inspect_log, read_inspect_log
from gear_rl.records.json_rows import read_rows
from gear_rl.records.recorded import RecordedRollout
from gear_rl.records.transcripts import groups_of, read_transcripts

METHOD = "reward less the group's mean"
NOTE = "Read from messages: words stand for tokens, and each has its rollout's advantage. `gear credit` gives real credit."
Row = tuple[int, list[Message], float | None, float | None, bool | None, dict[str, Any] | None]
"""Group, messages, reward, advantage where it is given, success, verdict."""
_WORDS = re.compile(r"\s*\S+|\s+")


class Conversations:
    """A file of messages, its header as a record would have it, and its rollouts."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.header: dict[str, Any] = {"method": METHOD, "task": path.name, "model": "unknown model"}
        self._known: dict[str, int] = {}
        self._rows: list[Row]
        if is_inspect_log(content):
            facts, samples = read_inspect_log(path, content)
            self.header |= {name: value for name, value in facts.items() if isinstance(value, str)}
            number = {problem: n for n, problem in enumerate(dict.fromkeys(s.problem for s in samples))}
            self._rows = [(number[s.problem], s.messages, s.reward, None, s.success, s.verdict) for s in samples]
        else:
            rows = read_transcripts(path)
            group = {i: n for n, members in enumerate(groups_of(rows)) for i in members}
            self._rows = [(group[i], r.messages, r.reward, r.advantage, r.success, None) for i, r in enumerate(rows)]

    def rollouts(self) -> Iterator[RecordedRollout]:
        """In groups, as a record has them."""
        rewards: dict[int, list[float]] = {}
        for group, _, reward, *_ in self._rows:
            rewards.setdefault(group, []).extend([] if reward is None else [reward])
        for group, messages, reward, advantage, success, verdict in sorted(self._rows, key=lambda row: row[0]):
            mean = sum(rewards[group]) / max(1, len(rewards[group]))
            given = advantage if advantage is not None else 0.0 if reward is None else reward - mean
            yield self._rollout(group, messages, reward, float(f"{given:.6g}"), success, verdict)

    def _rollout(
        self, group: int, messages: list[Message], reward: float | None, given: float, success: bool | None, verdict: Any
    ) -> RecordedRollout:
        first = [message["role"] for message in messages].index("assistant")
        texts: list[str] = []
        turns: list[int] = []
        turn, before = 0, ""
        for message in messages[first:]:
            sampled = message["role"] == "assistant"
            turn += sampled and before != "assistant"  # two messages in a row are one turn
            before = message["role"]
            words = _WORDS.findall(_said(message) if sampled else f"{before}: {_said(message)}")
            texts += words
            turns += [turn if sampled else 0] * len(words)
        mask = [int(turn > 0) for turn in turns]
        return RecordedRollout(
            step=0,
            group=group,
            reward=reward,
            success=success,
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
            advantages=[given * sampled for sampled in mask],
            verdict=verdict,
        )


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
    return Conversations(path, content) if "messages" in content or is_inspect_log(content) else None


def _said(message: Message) -> str:
    """The message's text, and its tool calls as chat templates write them."""
    lines = [str(message["content"])] if message["content"] else []
    for call in message.get("tool_calls", []):
        function = call["function"]
        content = json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)
        lines.append(f"<tool_call>\n{content}\n</tool_call>")
    return "\n".join(lines) + "\n"
