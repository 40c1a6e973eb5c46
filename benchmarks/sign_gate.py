"""How often the hinted self alone knows which decisions are wrong: `python benchmarks/sign_gate.py RUN…`.

GEAR's default direction reads the sign of log q − log p of the sampled token (`gear_rl.methods.gear`). Where a task labels its
decisions, this counts on how many of them the sign is the label's, of those that the two do not find equally likely: where
both are certain, the sign is rounding and there is no credit to give. All of them: credit by that sign is an oracle's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gear_rl.records.record import open_record

EQUAL = 1e-3
"""Nats. Below it the divergence is too small to weigh anything."""


def count(run: Path) -> tuple[int, int]:
    """(Decisions where the sign is the label's, decisions) in a run's record."""
    agree = decisions = 0
    for rollout in open_record(run / "rollouts.jsonl")[1]:
        signals = rollout.signals
        rows = zip(signals["decision"], signals["teacher_logprob"], signals["student_logprob"], strict=True)
        for label, teacher, student in rows:
            if label and teacher is not None and student is not None and abs(teacher - student) > EQUAL:
                decisions += 1
                agree += (teacher > student) == (label > 0)
    return agree, decisions


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("{}: {:,} of {:,} decisions".format(name, *count(Path(name))))
