"""From a model to signals: student and teacher read the same sampled tokens, and their distributions are compared.

    student input = prompt ids        + completion ids
    teacher input = hinted prompt ids + the same completion ids, verbatim (never decoded and tokenised again)

The hidden state *before* a token predicts it, so token j of the completion is scored at position P + j − 1, with P the
length of that side's own prompt. Being off by one here is the classic bug of this family; `self_check` looks for it.
Only action tokens go through the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gear_rl.errors import GearError
from gear_rl.scoring.divergence import token_divergence
from gear_rl.scoring.head import Head
from gear_rl.scoring.teacher import Teacher

SIGNALS = ("reverse_kl", "entropy", "student_logprob", "teacher_logprob")
Ids = list[list[int]]


def body_of(model: Any) -> Any:
    """The transformer without its head: ids in, final hidden states (B, T, D) out. Adapters stay in place."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT injects adapters into it
    body = base.get_decoder() if hasattr(base, "get_decoder") else getattr(base, "base_model", None)
    if body is None or body is base:
        raise GearError(f"{type(base).__name__} has no separate body: scoring needs hidden states before the head.")
    return body


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients, and the caller's mode restored: scoring must not move the random state."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


class Scorer:
    """Signals for rollouts. `token_budget` bounds the padded tokens of one micro-batch, and so the memory."""

    def __init__(
        self, model: nn.Module, pad_token_id: int, temperature: float = 1.0, token_budget: int = 65_536
    ) -> None:
        self.model, self.pad, self.temperature, self.token_budget = model, pad_token_id, temperature, token_budget

    def score(
        self, prompts: Ids, hinted_prompts: Ids, completions: Ids, action_mask: Tensor, teacher: Teacher
    ) -> dict[str, Tensor]:
        """`action_mask` (B, T) over the padded completions → each of `SIGNALS` as (B, T) float32, 0 where masked."""
        signals = {name: torch.zeros(action_mask.shape, device=action_mask.device) for name in SIGNALS}
        head = Head.of(self.model)
        for rows in self._micro_batches(
            [max(len(p), len(h)) + len(c) for p, h, c in zip(prompts, hinted_prompts, completions, strict=True)]
        ):
            mask = action_mask[rows]
            if not mask.any():
                continue
            picked = [completions[i] for i in rows]
            ids = _right_padded(picked, self.pad, mask.shape[1], mask.device)
            with evaluating(self.model):
                student = self._hidden([prompts[i] for i in rows], picked, mask).to(head.weight.dtype)
                with teacher.in_place():
                    read = self._hidden([hinted_prompts[i] for i in rows], picked, mask).to(head.weight.dtype)
                    # A head holds the tensors it was made from, so this one stays the teacher's after the swap back.
                    teacher_head = head if teacher.kind == "live" else Head.of(self.model)
                result = token_divergence(student, read, head, ids[mask], teacher_head, self.temperature)
            for name in SIGNALS:
                part = torch.zeros(mask.shape, device=mask.device)
                part[mask] = getattr(result, name)
                signals[name][rows] = part
        return signals

    def _hidden(self, prompts: Ids, completions: Ids, mask: Tensor) -> Tensor:
        """The hidden state before each action token: (N, D), in the order of `mask`'s True positions."""
        longest = max(len(p) for p in prompts)
        width = longest + max(len(c) for c in completions)
        rows = [[self.pad] * (longest - len(p)) + p + c for p, c in zip(prompts, completions, strict=True)]
        attended = [
            [0] * (longest - len(p)) + [1] * (len(p) + len(c)) for p, c in zip(prompts, completions, strict=True)
        ]
        ids = _right_padded(rows, self.pad, width, mask.device)
        attention = _right_padded(attended, 0, width, mask.device)
        positions = (attention.cumsum(1) - 1).clamp(min=0)
        hidden = body_of(self.model)(input_ids=ids, attention_mask=attention, position_ids=positions, use_cache=False)
        before = hidden.last_hidden_state[:, longest - 1 : -1]  # prompts end at column `longest`: left-padded
        return before[mask[:, : before.shape[1]]]

    def _micro_batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows of like length together, at most `token_budget` padded tokens each."""
        batch: list[int] = []
        for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            if batch and lengths[batch[0]] * (len(batch) + 1) > self.token_budget:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def self_check(
        self, prompts: Ids, hinted_prompts: Ids, completions: Ids, action_mask: Tensor, teacher: Teacher
    ) -> None:
        """Before the first step: stop the run unless teacher and student read what they should, where they should.

        (a) With an empty hint the teacher must be the student. (b) With the hint, both must agree with one plain forward
        over each unpadded sequence. (a) alone would not see both being shifted together.
        """
        tolerance = 2e-3 if next(self.model.parameters()).dtype == torch.float32 else 5e-2
        # (a) is about what is read, so with the same weights: after a resume an older teacher rightly differs.
        same = self.score(prompts, prompts, completions, action_mask, Teacher(self.model, "live"))
        hinted = self.score(prompts, hinted_prompts, completions, action_mask, teacher)
        with evaluating(self.model):
            plain_student = self._plain_logprobs(prompts, completions, action_mask)
            with teacher.in_place():
                plain_teacher = self._plain_logprobs(hinted_prompts, completions, action_mask)
        n = action_mask.sum().clamp(min=1)
        for what, left, right in (
            ("the teacher with an empty hint and the student", same["teacher_logprob"], same["student_logprob"]),
            ("the student's scores and a plain forward", hinted["student_logprob"], plain_student),
            ("the hinted teacher's scores and a plain forward", hinted["teacher_logprob"], plain_teacher),
        ):
            gap = float(((left - right).abs() * action_mask).sum() / n)
            if not gap <= tolerance:
                raise GearError(
                    f"start-up self-check failed: {what} differ by {gap:.3g} nats a token on average (allowed {tolerance}). "
                    "The usual causes: positions shifted by one, a prompt template that differs between the two, or "
                    "dropout left on. Training would learn from wrong signals, so it was stopped."
                )

    def _plain_logprobs(self, prompts: Ids, completions: Ids, action_mask: Tensor) -> Tensor:
        """The naive twin: one sequence at a time, full logits. (B, T)"""
        out = torch.zeros(action_mask.shape, device=action_mask.device)
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            if not completion:
                continue
            ids = torch.tensor([prompt + completion], device=action_mask.device)
            logits = self.model(input_ids=ids).logits[0].float() / self.temperature
            logps = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            out[i, : len(completion)] = logps[len(prompt) - 1 :]
        return out * action_mask


def _right_padded(rows: Ids, pad: int, width: int, device: Any) -> Tensor:
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=device)
