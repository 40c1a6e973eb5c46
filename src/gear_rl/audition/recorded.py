"""Rollouts of a record as groups that can be measured: their problems found, their worlds played again, their rewards judged.

A record holds tokens, not problems. The problem of a rollout is the row of the task with its id or, where rows have none, with
its prompt. Everything else is checked by playing the rollout again: the world must answer as it did, and the judge must give
the reward that was recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gear_rl.audition.groups import Groups
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.engines.record import token_texts
from gear_rl.errors import GearError
from gear_rl.records.recorded import RecordedRollout
from gear_rl.sampling.play import Played, judge_all
from gear_rl.sampling.rewind import replay
from gear_rl.tasks.base import Row, Task, tools_of

NOT_ITS_IDENTITY = ("hint",)
"""Columns of a row in which two rows of the same problem may differ."""
ROUNDING = 1e-4
"""A record keeps six digits of a reward."""


def recorded_groups(
    lines: Sequence[RecordedRollout],
    task: Task,
    rows: Sequence[Row],
    model: Any,
    tokenizer: Any,
    *,
    seed: int = 0,
    temperature: float = 1.0,
) -> Groups:
    """Rollouts of one step as they were played. `rows`: the problems of `task`, theirs among them."""
    lines = sorted(lines, key=lambda line: line.group)
    sizes = Counter(line.group for line in lines)
    if len(set(sizes.values())) > 1 or min(sizes.values()) < 2:
        raise GearError(f"the record's groups have {_listed(sizes)} rollouts: all need the same number, at least 2.")
    found = _problems(lines, task, rows, tokenizer)
    groups = Groups(task, model, tokenizer, found, next(iter(sizes.values())), seed, temperature)
    prompts = tokenized_prompts(tokenizer, [row["prompt"] for row in found], [tools_of(task, row) for row in found])
    replies, ends = Replies(tokenizer), end_tokens(model, tokenizer)
    for line, row, prompt in zip(lines, found, prompts, strict=True):
        where = f"step {line.step}, group {line.group}"
        if not sum(line.action_mask):
            raise GearError(f"{where}: a rollout without a token of the policy's has no turn to measure.")
        if tokenizer.decode(prompt) != line.prompt or token_texts(line.token_ids, tokenizer) != line.token_texts:
            raise GearError(
                f"{where}: the model's tokenizer or chat template writes its prompt or tokens differently than the record. "
                "Give --model the model that sampled it."
            )
        played = Played(prompt, list(line.token_ids), list(line.action_mask))
        groups.played.append(replay(task, row, played, tokenizer, replies, ends))
    groups.verdicts = judge_all(tokenizer, task, found, groups.played)
    for line, verdict in zip(lines, groups.verdicts, strict=True):
        if line.reward is not None and abs(line.reward - verdict.reward) > ROUNDING * max(1.0, abs(line.reward)):
            raise GearError(
                f"step {line.step}, group {line.group}: the record has a reward of {line.reward:g}, and the same rollout "
                f"played again one of {verdict.reward:g}. Task {task.name} was given other options, or it judges the same "
                "rollout differently; such a task cannot be measured."
            )
    return groups


def _problems(lines: Sequence[RecordedRollout], task: Task, rows: Sequence[Row], tokenizer: Any) -> list[Row]:
    """The row of each rollout."""
    by_id = {row["id"]: row for row in rows if isinstance(row.get("id"), str)}
    named = [line.problem is not None for line in lines]
    by_prompt: dict[str, list[Row]] = defaultdict(list)
    if not all(named):
        texts = tokenizer.batch_decode(
            tokenized_prompts(tokenizer, [row["prompt"] for row in rows], [tools_of(task, row) for row in rows])
        )
        for text, row in zip(texts, rows, strict=True):
            by_prompt[text].append(row)
    found = []
    for line in lines:
        where = f"step {line.step}, group {line.group}"
        known = [by_id[line.problem]] if line.problem in by_id else []
        if line.problem is None:
            known = by_prompt.get(line.prompt, [])
        if not known:
            what = "a prompt that none of them has" if line.problem is None else f"problem {line.problem[:60]!r}"
            raise GearError(
                f"{where}: the record is not of these {len(rows)} problems of task {task.name}: it has {what}. Give the "
                "task, its options, the seed and the model that it was sampled with."
            )
        if any(_identity(row) != _identity(known[0]) for row in known):
            raise GearError(
                f"{where}: {len(known)} problems of task {task.name} have its prompt, and the record does not say which it "
                "is: it is of an earlier version, or rows of the task have no `id`."
            )
        found.append(known[0])
    return found


def _identity(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in NOT_ITS_IDENTITY}


def _listed(sizes: Counter[int]) -> str:
    return " and ".join(str(n) for n in sorted(set(sizes.values()))[:4])
