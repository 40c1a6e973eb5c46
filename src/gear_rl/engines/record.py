"""Scored batches into a record: what training and `gear credit` write alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gear_rl.engines.step import Scored
from gear_rl.records.record import RecordWriter


def write_scored(
    writer: RecordWriter, scored: Scored, tokenizer: Any, successes: Sequence[bool | None] | None
) -> list[list[str]]:
    """Writes the batch; returns the text of each token of each completion."""
    sampled, decode = scored.sampled, tokenizer.batch_decode
    texts = [decode([[token] for token in ids]) for ids in sampled.completion_ids]
    writer.write(
        step=scored.step,
        rollouts=scored.rollouts,
        credit=scored.credit,
        prompts=decode(sampled.prompt_ids),
        hinted_prompts=None if scored.hinted is None else decode(scored.hinted.prompt_ids),
        token_texts=texts,
        successes=successes,
    )
    return texts
