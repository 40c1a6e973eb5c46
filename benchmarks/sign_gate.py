"""How often the hinted self alone knows which decisions are wrong: `python benchmarks/sign_gate.py RUN…`.

GEAR's default direction reads the sign of log q − log p of the sampled token (`gear_rl.methods.gear`). Where a task labels its
decisions, this counts on how many of them the sign is the label's, of those that the two do not find equally likely: where
both are certain, the sign is rounding and there is no credit to give. All of them: credit by that sign is an oracle's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from gear_rl.records.record import open_record

EQUAL = 1e-3
"""Nats. Below it the divergence is too small to weigh anything."""


class Counts(NamedTuple):
    agree: int
    """Decisions where the sign is the label's."""
    differ: int
    """Decisions that the two do not find equally likely: all that can agree."""
    decisions: int


def count(run: Path) -> Counts:
    """In a run's record."""
    agree = differ = decisions = 0
    for rollout in open_record(run / "rollouts.jsonl")[1]:
        signals = rollout.signals
        rows = zip(signals["decision"], signals["teacher_logprob"], signals["student_logprob"], strict=True)
        for label, teacher, student in rows:
            if label and teacher is not None and student is not None:
                decisions += 1
                differ += abs(teacher - student) > EQUAL
                agree += abs(teacher - student) > EQUAL and (teacher > student) == (label > 0)
    return Counts(agree, differ, decisions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of `gear train --set train.record_every=1`")
    for name in parser.parse_args().runs:
        found = count(name)
        print(f"{name}: right in {found.agree:,} of {found.differ:,} that differ, of {found.decisions:,} decisions")
