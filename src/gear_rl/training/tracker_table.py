"""A table of tokens for wandb and trackio, through their own `Table`: where the credit of a recorded step went, beside its
curves. The best and the worst rollout of the group with the most contrast; the record has all of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from gear_rl.engines.step import Scored

TRACKERS = ("wandb", "trackio")
KEY = "rollouts/tokens"
COLUMNS = ["step", "group", "rollout", "reward", "position", "text", "sampled", "advantage", "weight"]
MOST_TOKENS = 1000
"""Of each of the two rollouts."""


def log_tokens(tracker: str, scored: Scored, texts: Sequence[Sequence[str]]) -> None:
    """Send the table to `tracker`, which TRL's callback has started. `texts`: of every token of every completion."""
    if tracker not in TRACKERS:
        return
    backend = importlib.import_module(tracker)
    if tracker == "wandb" and backend.run is None:  # on every process but the first
        return
    rows = token_rows(scored, texts)
    if tracker == "trackio":  # shows text as Markdown, and a rollout must not be able to have a picture fetched
        at = COLUMNS.index("text")
        rows = [[*row[:at], _code(row[at]), *row[at + 1 :]] for row in rows]
    backend.log({KEY: backend.Table(columns=COLUMNS, data=rows)})


def token_rows(scored: Scored, texts: Sequence[Sequence[str]]) -> list[list[Any]]:
    """A row per token, in the order of `COLUMNS`."""
    rollouts, credit = scored.rollouts, scored.credit
    rewards, groups = rollouts.rewards.tolist(), rollouts.group_ids.tolist()
    rows: list[list[Any]] = []
    for i in _most_contrast(rewards, groups, rollouts.scorable.tolist()):
        mask, advantages, weights = (x[i].tolist() for x in (rollouts.action_mask, credit.advantages, credit.weights))
        for position, text in enumerate(texts[i][:MOST_TOKENS]):
            at = [scored.step, groups[i], i, rewards[i], position, text, int(mask[position])]
            rows.append([*at, float(f"{advantages[position]:.6g}"), float(f"{weights[position]:.6g}")])
    return rows


def _most_contrast(rewards: list[float], groups: list[int], scorable: list[bool]) -> list[int]:
    """The rollouts with the highest and the lowest reward of the group in which these differ most."""
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        if scorable[i]:
            members.setdefault(group, []).append(i)
    if not members:
        return []
    pairs = [[max(m, key=lambda i: rewards[i]), min(m, key=lambda i: rewards[i])] for m in members.values()]
    best = max(pairs, key=lambda pair: rewards[pair[0]] - rewards[pair[1]])
    return list(dict.fromkeys(best))


def _code(text: str) -> str:
    return "`" + json.dumps(text).replace("`", "\\u0060") + "`"
