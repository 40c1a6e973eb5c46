"""A task as a source: rollouts played now, labelled by the task's own judge, scored by hinted teachers.

A task that labels tokens (`Verdict.decisions`) is searched token by token; one that names the first wrong turn
(`Verdict.first_wrong`) turn by turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.localize.labelled import Labelled, token_units, turn_units
from gear_rl.localize.teachers import Scored, Teachers
from gear_rl.sampling.play import Played, judge_all, play
from gear_rl.scoring.padding import padded
from gear_rl.signals.hint_texts import other_hints
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import Row, Task, Verdict, tools_of

AT_ONCE = 256
"""Rollouts played in one batch."""


def from_task(
    task: Task,
    rows: list[Row],
    model: Any,
    tokenizer: Any,
    teachers: Teachers,
    *,
    hinted: bool,
    seed: int,
    temperature: float,
) -> tuple[list[Scored], dict[str, float]]:
    """One rollout per row, as each of `teachers` sees it; and the share that truly succeeded, and the mean reward.

    `hinted`: teachers are shown the ground truth; without, only the student's own signals mean anything.
    """
    hints = [str(row.get("hint") or "") for row in rows]
    if hinted and not all(hint.strip() for hint in hints):
        raise GearError(f"task {task.name}: a row has no ground truth for the teacher's hint.")
    played, verdicts = _played(task, rows, model, tokenizer, seed, temperature)
    device = model.device
    sampled = Sampled(
        rows=rows,
        prompts=[row["prompt"] for row in rows],
        prompt_ids=[p.prompt_ids for p in played],
        completion_ids=[p.completion_ids for p in played],
        token_ids=padded([p.completion_ids for p in played], torch.long).to(device),
        action_mask=padded([p.action_mask for p in played], torch.bool).to(device),
        rewards=torch.tensor([v.reward for v in verdicts], dtype=torch.float32, device=device),
        group_ids=torch.arange(len(rows), device=device),
        verdicts=verdicts,
    )
    labelled = _labelled(task, sampled)
    tools = [tools_of(task, row) for row in rows]

    def prompts(hints: Sequence[str]) -> list[list[int]]:
        asked: list[Prompt] = [
            hinted_prompt(row["prompt"], hint, task.hint_template) for row, hint in zip(rows, hints, strict=True)
        ]
        return tokenized_prompts(tokenizer, asked, tools)

    misled = prompts(other_hints(hints)) if hinted and len(set(hints)) > 1 else None
    scored = teachers.score(
        labelled, sampled, prompts(hints) if hinted else None, misled,
        lambda asked, of: tokenized_prompts(tokenizer, list(asked), [tools_of(task, row) for row in of]),
    )  # fmt: skip
    n = len(verdicts)
    return scored, {"success": sum(v.success for v in verdicts) / n, "reward": sum(v.reward for v in verdicts) / n}


def _played(
    task: Task, rows: list[Row], model: Any, tokenizer: Any, seed: int, temperature: float
) -> tuple[list[Played], list[Verdict]]:
    model.eval()
    generator = torch.Generator(device=model.device).manual_seed(seed)
    played: list[Played] = []
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        played += play(model, tokenizer, task, part, temperature=temperature, generator=generator)
    return played, judge_all(tokenizer, task, rows, played)


def _labelled(task: Task, sampled: Sampled) -> Labelled:
    mask, verdicts = sampled.action_mask, sampled.verdicts or ()
    if task.judge_knows_decisions:
        decision = padded([v.decisions for v in verdicts], torch.float32).to(mask.device)
        units = token_units(mask)
    else:
        if all(v.first_wrong is None for v in verdicts) and not all(v.success for v in verdicts):
            raise GearError(f"task {task.name!r} does not say where a rollout went wrong, so there is nothing to find.")
        units = turn_units(mask)
        first = torch.tensor([-2 if v.first_wrong is None else v.first_wrong for v in verdicts], device=mask.device)
        decision = -(units == first[:, None]).float()
    won = torch.tensor([v.reward > 0 for v in verdicts], device=mask.device)
    rollouts = Rollouts(
        action_mask=mask,
        rewards=sampled.rewards,
        group_ids=sampled.group_ids,
        advantages=torch.where(won, 1.0, -1.0),  # one rollout a problem: it won, or it lost
        token_ids=sampled.token_ids,
        signals={"decision": decision},
    )
    return Labelled(rollouts, units, (decision < 0) & mask, [json.dumps(row["prompt"]) for row in sampled.rows])
