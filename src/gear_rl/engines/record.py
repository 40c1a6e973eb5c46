"""Scored batches into a record: what training and `gear credit` write alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gear_rl.engines.step import Scored
from gear_rl.records.writer import RecordWriter
from gear_rl.signals.sampled import Sampled

UNKNOWN = "\ufffd"
LONGEST_FEEDBACK = 10_000
"""Characters of it that a record keeps."""
LONGEST_CHARACTER = 4
"""Tokens. UTF-8 writes a character in at most four bytes."""


def write_scored(
    writer: RecordWriter, scored: Scored, tokenizer: Any, successes: Sequence[bool | None] | None
) -> list[list[str]]:
    """Writes the batch; returns the text of each token of each completion."""
    sampled, decode = scored.sampled, tokenizer.batch_decode
    texts = [token_texts(ids, tokenizer) for ids in sampled.completion_ids]
    writer.write(
        step=scored.step,
        rollouts=scored.rollouts,
        credit=scored.credit,
        prompts=decode(sampled.prompt_ids),
        hinted_prompts=None if scored.hinted is None else decode(scored.hinted.prompt_ids),
        token_texts=texts,
        successes=successes,
        verdicts=_verdicts(sampled),
        problems=[name if isinstance(name := row.get("id"), str) else None for row in sampled.rows],
    )
    return texts


def _verdicts(sampled: Sampled) -> list[dict[str, Any] | None]:
    """What the judge said beyond the reward: its parts, and its words."""
    said: list[dict[str, Any] | None] = []
    for i in range(len(sampled)):
        verdict = sampled.verdicts[i] if sampled.verdicts is not None else None
        parts = verdict.channels if verdict is not None else {n: float(v[i]) for n, v in sampled.channels.items()}
        known = {name: float(f"{value:.6g}") if math.isfinite(value) else None for name, value in parts.items()}
        words = verdict.feedback[:LONGEST_FEEDBACK] if verdict is not None and verdict.feedback else None
        said.append({"channels": known, "feedback": words} if known or words else None)
    return said


def token_texts(ids: list[int], tokenizer: Any) -> list[str]:
    """The text of each token. A character that several tokens make up together stands on the last of them; the others are
    empty. Bytes that make no character stay the replacement character."""
    texts = tokenizer.batch_decode([[token] for token in ids])
    start: int | None = None
    for i, text in enumerate(texts):
        if not text.endswith(UNKNOWN) and start is None:
            continue
        start = i if start is None else start
        whole = tokenizer.decode(ids[start : i + 1])
        if UNKNOWN not in whole:
            texts[start : i + 1] = [*[""] * (i - start), whole]
            start = None
        elif UNKNOWN not in text or i - start + 1 >= LONGEST_CHARACTER:
            start = None
    return texts
