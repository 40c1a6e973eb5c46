"""Is the blame causal? The turns that a method blames and praises most, beside what they did to the outcome, measured.

One turn of a rollout at most for each method and side: the same mistake blamed twice is one piece of evidence. Turns with the
same credit, as GRPO gives them, are taken at random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from torch import Tensor

from gear_rl.audition.groups import Groups
from gear_rl.audition.values import Interventions, TurnValue
from gear_rl.errors import GearError
from gear_rl.records.measured import SCHEMA, VERSION, token_digest
from gear_rl.records.recorded import RecordedRollout

Turn = tuple[int, int]
"""Rollout and turn, both from 0."""


def check(
    groups: Groups, lines: Sequence[RecordedRollout], advantages: Mapping[str, Tensor], count: int, most: int
) -> dict[str, Any]:
    """`advantages`: method → (B, T). `count`: turns of each side and method. `most`: continuations of a point at most.
    `lines`: the record's, in the order of `groups`."""
    if not groups.mixed:
        raise GearError(
            f"no group of step {lines[0].step} has different rewards: nothing was praised or blamed for the outcome there. "
            "Take another --step."
        )
    credit = {name: groups.turn_credit(values) for name, values in advantages.items()}
    sides = {name: _sides(table, count, groups.seed) for name, table in credit.items()}
    if not any(blamed or praised for blamed, praised in sides.values()):
        raise GearError(f"{', '.join(credit)}: every turn's credit is 0, so there is nothing to check.")
    chosen = sorted({turn for both in sides.values() for side in both for turn in side})
    work = Interventions(groups, most)
    measured = {(turn.rollout, turn.turn): turn for turn in work.measure(chosen)}
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "task": groups.task.name,
        "step": lines[0].step,
        "rollouts": len(lines),
        "continuations": work.continuations,
        "methods": {
            name: {
                side: _side([measured[turn] for turn in turns], work)
                for side, turns in zip(("blamed", "praised"), both, strict=True)
            }
            for name, both in sides.items()
        },
        "turns": [_described(groups, lines, measured[turn], credit) for turn in chosen],
    }


def _sides(table: list[list[float]], count: int, seed: int) -> tuple[list[Turn], list[Turn]]:
    """The `count` most blamed and most praised turns of different rollouts."""
    rng = random.Random(seed)
    turns = [(value, rng.random(), (i, t)) for i, row in enumerate(table) for t, value in enumerate(row)]

    def first(sign: int) -> list[Turn]:
        best: dict[int, tuple[float, Turn]] = {}
        for value, _, turn in sorted((-sign * value, lot, turn) for value, lot, turn in turns):
            if value < 0:
                best.setdefault(turn[0], (value, turn))
        return [turn for _, turn in sorted(best.values(), key=lambda one: one[0])[:count]]

    return first(-1), first(+1)


def _side(turns: Sequence[TurnValue], work: Interventions) -> dict[str, Any] | None:
    """What a method's most blamed, or most praised, turns did. The interval is that of the measurement of these very turns;
    other turns would differ by more. "average": what a turn of the same rollouts did on average, so that what is left is the
    choice of the turn and not that of the rollout. None: it has none."""
    if not turns:
        return None
    middle, half = mean(turn.advantage for turn in turns), math.hypot(*(turn.half_width for turn in turns)) / len(turns)
    return {
        "turns": len(turns),
        "advantage": middle,
        "interval": (middle - half, middle + half),
        "average": mean(work.average(turn) for turn in turns),
        "clearly_hurt": sum(turn.interval[1] < 0 for turn in turns),
        "clearly_helped": sum(turn.interval[0] > 0 for turn in turns),
    }


def _described(
    groups: Groups, lines: Sequence[RecordedRollout], turn: TurnValue, credit: Mapping[str, list[list[float]]]
) -> dict[str, Any]:
    line = lines[turn.rollout]
    return {
        "step": line.step,
        "group": line.group,
        "rollout": turn.rollout % groups.size,
        "turn": turn.turn + 1,
        "said": groups.played[turn.rollout].turns[turn.turn],
        "reward": line.reward,
        "advantage": turn.advantage,
        "interval": turn.interval,
        "before": turn.before.mean,
        "after": turn.after.mean,
        "continuations": sum(len(v.rewards) for v in (turn.before, turn.after) if not v.exact),
        "tokens": token_digest(line.token_ids),
        "credit": {name: table[turn.rollout][turn.turn] for name, table in credit.items()},
    }


def text(found: dict[str, Any], width: int = 24) -> str:
    """For people."""
    names = list(found["methods"])
    lines = [
        f"Step {found['step']}: {found['rollouts']} rollouts, {found['continuations']} continuations",
        "",
        "Measured advantage of the turns that each method blames and praises most (95 % intervals of the measurement)",
        "in brackets: the average turn of the same rollouts",
    ]
    for name, both in found["methods"].items():
        for side in ("blamed", "praised"):
            lines.append(f"  {name + ', ' + side:32} {_summary(both[side])}")
    lines += [
        "",
        f"{'group.rollout.turn':20} {'said':{width}} {'measured':24}" + "".join(f"{n[:14]:>15}" for n in names),
    ]
    for turn in sorted(found["turns"], key=lambda turn: turn["credit"][names[0]]):
        place = f"{turn['group']}.{turn['rollout']}.{turn['turn']}"
        said = " ".join("".join(c if c.isprintable() else " " for c in turn["said"]).split())
        said = said if len(said) <= width else said[: width - 1] + "…"
        low, high = turn["interval"]
        measured = f"{turn['advantage']:+.2f} ({low:+.2f} to {high:+.2f})"
        lines.append(
            f"{place:20} {said:{width}} {measured:24}" + "".join(f"{turn['credit'][n]:>+15.2f}" for n in names)
        )
    return "\n".join(lines)


def _summary(side: dict[str, Any] | None) -> str:
    if side is None:
        return "none"
    low, high = side["interval"]
    clear = f"{side['clearly_hurt']} clearly hurt, {side['clearly_helped']} clearly helped"
    return f"{side['advantage']:+.3f} ({low:+.3f} to {high:+.3f}) [{side['average']:+.3f}], {side['turns']} turns: {clear}"
