"""Divergence where a rollout of the workshop in words goes wrong: around the first wrong token, and by kind of token."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from gear_rl.localize.tasks import from_task
from gear_rl.localize.teachers import Teachers
from gear_rl.scoring.scorer import SIGNALS
from gear_rl.tasks import Task
from gear_rl.tasks.base import Row
from gear_rl.tasks.workshop_words.language import KINDS, kinds_of

BEFORE, AFTER = 5, 40


def measure(model: Any, tokenizer: Any, task: Task, rows: list[Row], seed: int) -> dict[str, Any]:
    """One rollout per row, read by the model itself with the hint. D: KL(student ‖ hinted) in nats. Gap: log p − log q of
    the token that was sampled; above 0, the hinted self would rather not have said it."""
    teachers = Teachers(model, tokenizer, None, str(model.device), needs=SIGNALS)
    (scored,), facts = from_task(task, rows, model, tokenizer, teachers, hinted=True, seed=seed, temperature=1.0)
    rollouts = scored.labelled.rollouts
    signals = {name: rollouts.signals[name].float().cpu() for name in (*SIGNALS, "decision")}
    assert rollouts.token_ids is not None
    ids, mask = rollouts.token_ids.cpu(), rollouts.action_mask.cpu()
    values = {"D": signals["reverse_kl"], "gap": signals["student_logprob"] - signals["teacher_logprob"]}
    decision, lost = signals["decision"], rollouts.rewards.cpu() <= 0
    kinds, turns = _kinds(tokenizer, ids, mask), _turns(mask)
    first = _first_wrong(decision, mask)
    kind_of_first = [KINDS[int(kinds[i, t])] if t >= 0 else None for i, t in enumerate(first.tolist())]
    around = {}
    for name in ("all", "thought", "tool", "argument"):
        chosen = [i for i, kind in enumerate(kind_of_first) if lost[i] and kind and name in ("all", kind)]
        around[name] = {"rollouts": len(chosen), **{k: _around(v, turns, first, chosen) for k, v in values.items()}}
    return {
        "rollouts": len(rows),
        **facts,
        "with_mistake": int((first >= 0).sum()),
        "lost_with_mistake": sum(bool(lost[i]) for i, kind in enumerate(kind_of_first) if kind),
        "offsets": [-BEFORE, AFTER],
        "around_first_wrong": around,
        "within_mistake": _within(values, decision, mask, turns, first),
        "by_kind": {kind: _by_label(values, decision, mask & (kinds == number)) for number, kind in enumerate(KINDS)},
    }


def _kinds(tokenizer: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """(B, T): the number of each action token's kind, −1 elsewhere."""
    known = ids[mask].unique().tolist()
    text = dict(zip(known, tokenizer.batch_decode([[token] for token in known]), strict=True))
    kinds = torch.full_like(ids, -1)
    for i in range(len(ids)):
        place = 0
        for acts, run in groupby(mask[i].tolist()):
            count = len(list(run))
            if acts:
                tokens = ids[i, place : place + count].tolist()
                pieces = [text[token] for token in tokens]
                ended = tokens[-1] in tokenizer.all_special_ids
                of, at = [*kinds_of("".join(pieces[:-1] if ended else pieces)), *["form"] * len(pieces[-1]) * ended], 0
                for j, piece in enumerate(pieces):
                    # the last character's: a token such as ' "rear' is what it ends as
                    kinds[i, place + j] = KINDS.index(of[at + len(piece) - 1]) if piece else KINDS.index("form")
                    at += len(piece)
            place += count
    return kinds


def _turns(mask: Tensor) -> Tensor:
    """(B, T): the number of each action token's turn, −1 elsewhere."""
    starts = mask.clone()
    starts[:, 1:] &= ~mask[:, :-1]
    return torch.where(mask, starts.cumsum(1) - 1, -1)


def _first_wrong(decision: Tensor, mask: Tensor) -> Tensor:
    """(B,): the place of the first wrong token, −1 where there is none."""
    wrong = (decision < 0) & mask
    return torch.where(wrong.any(1), wrong.int().argmax(1), -1)


def _around(values: Tensor, turns: Tensor, first: Tensor, chosen: list[int]) -> list[dict[str, float]]:
    """Mean, standard error and number at each offset from the first wrong token, within its turn."""
    points = []
    for offset in range(-BEFORE, AFTER + 1):
        found = []
        for i in chosen:
            at, start = int(first[i]) + offset, int(first[i])
            if 0 <= at < values.size(1) and turns[i, at] == turns[i, start]:
                found.append(float(values[i, at]))
        points.append({"offset": offset, **_summary(torch.tensor(found))})
    return points


def _summary(values: Tensor) -> dict[str, float]:
    n = len(values)
    if not n:
        return {"n": 0}
    error = float(values.std() / n**0.5) if n > 1 else 0.0
    return {"n": n, "mean": round(float(values.mean()), 5), "error": round(error, 5)}


def _within(values: dict[str, Tensor], decision: Tensor, mask: Tensor, turns: Tensor, first: Tensor) -> dict[str, Any]:
    """The first wrong token against all wrong tokens that follow it in the same turn."""
    rows = (first >= 0).nonzero()[:, 0]
    begins = torch.zeros_like(mask)
    begins[rows, first[rows]] = True
    same = turns == turns.gather(1, first.clamp(min=0)[:, None])
    later = (decision < 0) & mask & same & ~begins & (first >= 0)[:, None]
    return {name: {"first": _summary(value[begins]), "later": _summary(value[later])} for name, value in values.items()}


def _by_label(values: dict[str, Tensor], decision: Tensor, chosen: Tensor) -> dict[str, Any]:
    labels = {"wrong": chosen & (decision < 0), "right": chosen & (decision > 0), "neither": chosen & (decision == 0)}
    return {
        label: {name: _summary(value[where]) for name, value in values.items()}
        for label, where in labels.items()
        if where.any()
    }


def in_words(result: dict[str, Any]) -> str:
    lines = [f"{result['rollouts']} rollouts, {result['with_mistake']} with a mistake, success {result['success']:.3f}"]
    for name, value in result["within_mistake"].items():
        first, later = (f"{value[k].get('mean', 0):.3f} (n {value[k]['n']})" for k in ("first", "later"))
        lines.append(f"{name}: first wrong token {first}, later wrong tokens of its turn {later}")
    for kind, labels in result["by_kind"].items():
        means = ", ".join(f"{label} {v['D']['mean']:.4f} (n {v['D']['n']})" for label, v in labels.items())
        lines.append(f"mean D, {kind}: {means}")
    return "\n".join(lines)
