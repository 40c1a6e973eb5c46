"""Signals for a method: `collect` asks the families that it needs (`gear_rl.signals.families`), and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from gear_rl.assignment.signals import SIGNALS, find_signal, how_to_get
from gear_rl.errors import GearError
from gear_rl.signals.families import FAMILIES, OWN_ANSWER, REFERENCE_ANSWER, SALIENCY
from gear_rl.signals.reader import Reader, Reading, from_task
from gear_rl.signals.sources import Sources

__all__ = [
    "ANSWER_READERS", "OWN_ANSWER", "Reader", "Reading", "collect", "compares_group", "from_task", "missing_source",
]  # fmt: skip

ANSWER_READERS = (*REFERENCE_ANSWER, *SALIENCY)
"""Signals that read the reference answer."""
COMPUTED = frozenset(name for family, _ in FAMILIES for name in family)
"""Every signal that a model, or no one at all, has to be asked for."""


def collect(reading: Reading, needs: Iterable[str]) -> dict[str, Tensor]:
    """Name → (B, T): what the task says, and those of `needs` that it does not say."""
    signals, needs = dict(reading.from_task), list(needs)
    for family, compute in FAMILIES:
        if wanted := [name for name in needs if name in family and name not in signals]:
            signals |= compute(reading, wanted)
    for name in needs:
        if name not in signals:
            known = find_signal(name)
            if known is None or known.compute is None:
                raise GearError(f"method {reading.reader.method!r} needs the signal {name!r}{how_to_get(name)}.")
            signals[name] = known.compute(reading)
    signals.pop("answer_span", None)  # a place in the rollout, no signal of its own
    return signals


def missing_source(name: str, sources: Sources) -> str | None:
    """What the user has to give before the signal `name` can be had; None: nothing."""
    if name in sources.knowledge.signals:
        return None
    if name in REFERENCE_ANSWER:
        return (
            None
            if sources.answer is not None
            else "reads the reference answer after each turn: pass answer='column name'"
        )
    if name in SALIENCY:
        if sources.answer is not None or "answer_span" in sources.knowledge.signals:
            return None
        return (
            "asks what the final answer depends on: pass answer='column name', or knowledge= that marks each rollout's own "
            "answer as 'answer_span'"
        )
    known = find_signal(name)
    if name in COMPUTED or (known is not None and known.compute is not None):
        return None
    return f"needs {name!r}{how_to_get(name)}: pass knowledge=, whose `signals` and `token_signals` give it"


def compares_group(name: str) -> bool:
    """Whether the signal means something only where whole groups lie together."""
    known = SIGNALS.get(name)
    return known is not None and (
        known.scope == "group" or name in ("turn_reward", "anchor_state", "request_ids", *REFERENCE_ANSWER)
    )


def needs_group_here(name: str) -> bool:
    """Whether one process must hold whole groups: a plugin's signal that compares rollouts. Ours gather what they need."""
    known = find_signal(name)
    return known is not None and known.scope == "group" and known.compute is not None
