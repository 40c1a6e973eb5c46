"""From a signal, a control or a credit method to blame: how strongly each token is suspected.

    reverse_kl      D_t = KL(student ‖ teacher), the teacher having read the ground truth
    gap             log p_t(y_t) − log q_t(y_t): how much less likely the teacher finds the token that was sampled
    entropy         H_t of the student
    surprisal       −log p_t(y_t)
    wrong_hint_kl   reverse_kl and gap with a teacher that read another problem's ground truth: what is left of them
    wrong_hint_gap  does not come from what the hint says
    position        later is more suspicious: what the place alone gives away
    random          chance, exactly: all tokens tie, and ties are shared out

A method's blame is −A_t in rollouts that lost (A_i < 0); in those that won it blames nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gear_rl.assignment.baselines import group_advantages
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError, unknown_name
from gear_rl.localize.labelled import Labelled
from gear_rl.methods import Method, all_methods


@dataclass(frozen=True)
class Kind:
    """What a signal is made of, and whose ground truth the teacher read."""

    needs: tuple[str, ...] = ()
    hint: str | None = None


SIGNALS = {
    "reverse_kl": Kind(("reverse_kl",), "own"),
    "gap": Kind(("student_logprob", "teacher_logprob"), "own"),
    "entropy": Kind(("entropy",)),
    "surprisal": Kind(("student_logprob",)),
    "wrong_hint_kl": Kind(("reverse_kl",), "other"),
    "wrong_hint_gap": Kind(("student_logprob", "teacher_logprob"), "other"),
    "position": Kind(),
    "random": Kind(),
}


def check_signals(names: Sequence[str]) -> None:
    for name in names:
        if name not in SIGNALS:
            hint = " It is a method: name it with --credit." if name in all_methods() else ""
            raise GearError(f"{unknown_name('signal', name, SIGNALS)}{hint}")


def lacks(what: str | Method, labelled: Labelled) -> list[str]:
    """What would have to be known to measure `what` here; empty: nothing."""
    kind = SIGNALS[what] if isinstance(what, str) else Kind(what.needs, what.hint)
    there = {*labelled.rollouts.signals}
    if kind.hint == "other":
        there = {"decision", *labelled.wrong_hint}
    missing = [name for name in kind.needs if name not in there]
    if missing and kind.hint == "other" and not labelled.wrong_hint:
        return ["a teacher with another problem's hint"]
    if not isinstance(what, str) and what.fewest_channels > len(labelled.rollouts.channels):
        missing.append("reward channels")
    if not isinstance(what, str) and what.hint not in (None, "own", "other"):
        missing.append(f"a teacher that reads {what.hint}")
    return missing


def depends_on_teacher(what: str | Method) -> bool:
    return (SIGNALS[what].hint if isinstance(what, str) else what.hint) is not None


def blame(what: str | Method, labelled: Labelled) -> tuple[Tensor, Tensor]:
    """(B, T) blame, and (B,) bool: the rollouts in which `what` blames anybody."""
    if not isinstance(what, str):
        return _blame_of_method(what, labelled)
    signals = labelled.wrong_hint if SIGNALS[what].hint == "other" else labelled.rollouts.signals
    mask = labelled.rollouts.action_mask
    if what in ("reverse_kl", "wrong_hint_kl"):
        found = signals["reverse_kl"]
    elif what in ("gap", "wrong_hint_gap"):
        found = signals["student_logprob"] - signals["teacher_logprob"]
    elif what == "entropy":
        found = signals["entropy"]
    elif what == "surprisal":
        found = -signals["student_logprob"]
    elif what == "position":
        found = mask.cumsum(1).float()
    else:
        found = torch.zeros(mask.shape, device=mask.device)
    return found, torch.ones(len(mask), dtype=torch.bool, device=mask.device)


def _blame_of_method(method: Method, labelled: Labelled) -> tuple[Tensor, Tensor]:
    rollouts: Rollouts = labelled.rollouts
    if method.hint == "other":
        rollouts = replace(rollouts, signals={**rollouts.signals, **labelled.wrong_hint})
    return -method.assign(rollouts).advantages, group_advantages(rollouts) < 0
