"""Shared by several test modules."""

from __future__ import annotations

import torch

from gear_rl import Rollouts, credit
from gear_rl.records.writer import RecordWriter

HEADER = {"method": "gear", "options": {"alpha": 2.0}, "task": "workshop", "model": "embedded"}


LENGTHS = (9, 6, 0, 9)  # of the completions; the third is empty


def make_batch(seed=0, lengths=LENGTHS, advantages=True):
    """Two groups of two; a tool speaks at positions 3 and 4; NaN wherever no method may look."""
    draw = torch.Generator().manual_seed(seed)
    size = (len(lengths), max(*lengths, 1) + 2)
    mask = torch.arange(size[1]) < torch.tensor(lengths)[:, None]
    mask[:, 3:5] = False
    names = ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")
    return Rollouts(
        action_mask=mask,
        rewards=torch.rand(size[0], generator=draw),
        group_ids=torch.arange(size[0]) // 2,
        advantages=torch.randn(size[0], generator=draw) if advantages else None,
        token_ids=torch.randint(100, size, generator=draw),
        signals={name: torch.rand(size, generator=draw).where(mask, torch.nan) for name in names},
    )


def write(writer, step, rollouts=None, texts=None, **more):
    rollouts = rollouts or make_batch(step)
    lengths = LENGTHS[: len(rollouts.rewards)]
    writer.write(
        step=step,
        rollouts=rollouts,
        credit=credit("gear", rollouts),
        prompts=[f"prompt {i}" for i in range(len(lengths))],
        hinted_prompts=[f"prompt {i} hint" for i in range(len(lengths))],
        token_texts=texts or [[f"t{k}" for k in range(n)] for n in lengths],
        **more,
    )


def new_record(path, steps=3):
    with RecordWriter(path, HEADER) as writer:
        for step in range(steps):
            write(writer, step)
    return path
