"""Groups of rollouts of a task, and every method's credit of them: the same step that training takes, without an update."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor

from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import tokenized_prompts
from gear_rl.engines.step import CreditStep, Scored, teacher_of
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.sampling.answers import by_model
from gear_rl.sampling.play import Played, judge_all, play
from gear_rl.sampling.rewind import Span, turns_of
from gear_rl.scoring.guards import copied_tokens, share_of
from gear_rl.scoring.padding import padded
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.from_verdicts import VerdictKnowledge
from gear_rl.signals.providers import missing_source
from gear_rl.signals.reader import Reader
from gear_rl.signals.sampled import Sampled
from gear_rl.signals.sources import Sources
from gear_rl.tasks.base import Row, Task, Verdict, tools_of
from gear_rl.training.config import TrainOptions
from gear_rl.training.judged_turns import JUDGED_TURN, JudgedTurns

Points = Literal["turns", "tokens"]
AT_ONCE = 256
"""Rollouts played in one batch."""


@dataclass
class Groups:
    """Rollouts of `task` by `model`, `size` of each prompt, one prompt after the other."""

    task: Task
    model: Any
    tokenizer: Any
    rows: list[Row]
    """One for each rollout."""
    size: int
    seed: int = 0
    temperature: float = 1.0
    points: Points = "turns"
    """What is measured and compared: whole turns, or each of the policy's tokens."""
    played: list[Played] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0
    """That sampling and judging took."""
    _credit: dict[Any, Scored] = field(default_factory=dict)

    @property
    def rewards(self) -> list[float]:
        return [v.reward for v in self.verdicts]

    @property
    def group_of(self) -> list[int]:
        return [i // self.size for i in range(len(self.rows))]

    def siblings(self, rollout: int) -> range:
        """The rollout's group, itself included."""
        first = rollout - rollout % self.size
        return range(first, first + self.size)

    def spans(self, rollout: int) -> list[Span]:
        """Its turns, or its tokens."""
        turns = turns_of(self.played[rollout].action_mask)
        return turns if self.points == "turns" else [Span(i, i + 1) for turn in turns for i in range(*turn)]

    @property
    def mixed(self) -> list[int]:
        """Groups whose rewards differ: the others teach a group-relative method nothing."""
        rewards = self.rewards
        groups = range(len(rewards) // self.size)
        return [g for g in groups if len(set(rewards[g * self.size : (g + 1) * self.size])) > 1]

    @cached_property
    def sampled(self) -> Sampled:
        device = self.model.device
        return Sampled(
            rows=self.rows,
            prompts=[row["prompt"] for row in self.rows],
            prompt_ids=[p.prompt_ids for p in self.played],
            completion_ids=[p.completion_ids for p in self.played],
            token_ids=padded([p.completion_ids for p in self.played], torch.long).to(device),
            action_mask=padded([p.action_mask for p in self.played], torch.bool).to(device),
            rewards=torch.tensor(self.rewards, dtype=torch.float32, device=device),
            group_ids=torch.tensor(self.group_of, device=device),
            verdicts=self.verdicts,
        )

    def credit(self, method: Method) -> Scored:
        """As `gear train` would assign it at its first step, computed once. Raises where the task or the model has not what
        it needs."""
        key = method.name, method.options
        if key not in self._credit:
            self._credit[key] = self._assign(method)
        return self._credit[key]

    def _assign(self, method: Method) -> Scored:
        sources = Sources(
            hint="hint",
            hint_template=self.task.hint_template,
            answer="answer" if self.rows[0].get("answer") else None,
            answer_prefix=self.task.answer_prefix,
            knowledge=self._knowledge(method),
        )
        for need in method.needs:
            if (why := missing_source(need, sources)) is not None:
                raise GearError(f"{method.name} {why}.")
        if method.hint in ("own", "other") and not self.has_hints:
            raise GearError(f"{method.name} reads a hint, and that of a problem of task {self.task.name} is empty.")
        scorer = Scorer(self.model, self.temperature)
        teacher, name = teacher_of(method, self.model), method.name
        reader = Reader(scorer, teacher, self.tokenizer, sources, self._tokenized, name, method.success_at)
        return CreditStep(method, reader, mix_steps=0)(self.sampled)

    def _knowledge(self, method: Method) -> VerdictKnowledge:
        if JUDGED_TURN not in method.needs:
            return VerdictKnowledge(self.task, self.rows[0], method, self.tokenizer)
        ask = partial(by_model, self.model, self.tokenizer, most=TrainOptions.judge_tokens)
        return JudgedTurns(self.task, self.rows[0], method, self.tokenizer, ask)

    def _tokenized(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> list[list[int]]:
        return tokenized_prompts(self.tokenizer, list(prompts), [tools_of(self.task, row) for row in rows])

    def told(self, task: Task, rows: Sequence[Row]) -> Groups:
        """The same rollouts with the hints of `rows` (one for each prompt), which `task` wrote."""
        return replace(self, task=task, rows=[row for row in rows for _ in range(self.size)], _credit={})

    @property
    def has_hints(self) -> bool:
        return not any(map(_is_without_hint, self.rows))

    def hinted(self) -> tuple[list[Verdict], float]:
        """One rollout of each prompt by the policy that has read the hint: the verdicts, and the share of its tokens that it
        copied from there."""
        rows = self.rows[:: self.size]
        prompts = [hinted_prompt(row["prompt"], str(row.get("hint") or ""), self.task.hint_template) for row in rows]
        generator = torch.Generator(device=self.model.device).manual_seed(self.seed + 1)
        played: list[Played] = []
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            played += play(
                self.model, self.tokenizer, self.task, rows[part], prompts=prompts[part], temperature=self.temperature,
                generator=generator,
            )  # fmt: skip
        hints = self.tokenizer([str(row.get("hint") or "") for row in rows], add_special_tokens=False)["input_ids"]
        masks = padded([p.action_mask for p in played])
        copied = share_of(copied_tokens([p.completion_ids for p in played], hints, masks))
        return judge_all(self.tokenizer, self.task, rows, played), copied

    def turn_credit(self, advantages: Tensor) -> list[list[float]]:
        """Advantages (B, T) for each rollout and turn: the mean of its tokens, each counted by how uncertain the policy was
        there. A token that could hardly have been another one learns nothing from its advantage."""
        weight = (self._entropy + 1e-6) * self.sampled.action_mask  # (B, T)
        total = advantages * weight
        return [
            [float(total[i, a:b].sum() / weight[i, a:b].sum().clamp(min=1e-12)) for a, b in self.spans(i)]
            for i in range(len(self.rows))
        ]

    @cached_property
    def _entropy(self) -> Tensor:
        """(B, T) of the policy."""
        sampled = self.sampled
        scorer = Scorer(self.model, self.temperature)
        teacher = Teacher(self.model, "live")
        return scorer.score(
            sampled.prompt_ids, sampled.prompt_ids, sampled.token_ids, sampled.action_mask, teacher, ("entropy",)
        )["entropy"]


def _is_without_hint(row: Row) -> bool:
    return not str(row.get("hint") or "").strip()


def play_groups(
    task: Task,
    model: Any,
    tokenizer: Any,
    rows: list[Row],
    size: int,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    points: Points = "turns",
) -> Groups:
    """`size` rollouts of each row. Some rows without a hint are an error, all are not."""
    empty = [row.get("id", f"problem {i}") for i, row in enumerate(rows) if _is_without_hint(row)]
    if 0 < len(empty) < len(rows):
        raise GearError(
            f"{empty[0]}: its hint is empty ({len(empty)} of {len(rows)} problems of task {task.name} have none). Leave such "
            "problems out, or give all a hint."
        )
    model.eval()
    each = [row for row in rows for _ in range(size)]
    groups = Groups(task, model, tokenizer, each, size, seed, temperature, points)
    generator = torch.Generator(device=model.device).manual_seed(seed)
    began = time.monotonic()
    for start in range(0, len(each), AT_ONCE):
        part = each[start : start + AT_ONCE]
        groups.played += play(model, tokenizer, task, part, temperature=temperature, generator=generator)
    groups.verdicts = judge_all(tokenizer, task, each, groups.played)
    groups.seconds = time.monotonic() - began
    return groups
