"""Shared by several test modules."""

from __future__ import annotations

import torch

from gear_rl import Rollouts
from gear_rl.localize.labelled import Labelled, token_units


def labelled(decision, signals=None, advantages=None, wrong_hint=None):
    decision = torch.tensor(decision, dtype=torch.float32)
    mask = torch.ones(decision.shape, dtype=torch.bool)
    n = len(decision)
    tensors = {name: torch.tensor(rows, dtype=torch.float32) for name, rows in (signals or {}).items()}
    rollouts = Rollouts(
        mask,
        torch.zeros(n),
        torch.arange(n),
        advantages=torch.tensor(advantages or [-1.0] * n),
        token_ids=torch.zeros(decision.shape, dtype=torch.long),
        signals={"decision": decision, **tensors},
    )
    other = {name: torch.tensor(rows, dtype=torch.float32) for name, rows in (wrong_hint or {}).items()}
    return Labelled(rollouts, token_units(mask), decision < 0, [str(i) for i in range(n)], other)


def prm800k(*steps, answer="7"):
    return {"question": {"problem": "p", "ground_truth_answer": answer}, "label": {"steps": list(steps)}}


def offered(*ratings, chosen=None, human=None):
    completions = [{"text": f"c{i}", "rating": rating} for i, rating in enumerate(ratings)]
    return {"completions": completions or None, "chosen_completion": chosen, "human_completion": human}


def row_of(part, name):
    return next(row for row in part["rows"] if row["name"] == name)
