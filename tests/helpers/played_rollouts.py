"""Real rollouts of the embedded model for tests of signals: prompts and completions as ids, and which tokens are actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gear_rl.sampling.play import play
from gear_rl.scoring.answers import Answer, AnswerReading


class Rolled(NamedTuple):
    model: Any
    tokenizer: Any
    task: Any
    rows: list[dict]
    prompts: list[list[int]]
    completions: list[list[int]]
    mask: Tensor
    """(B, T) bool"""

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def answers(self) -> list[Answer]:
        return [Answer(self.ids(f"answer {row['answer']}"), 1) for row in self.rows]

    def readings(self) -> list[AnswerReading | None]:
        """The reference answer in place of the last turn."""
        found: list[AnswerReading | None] = []
        rollouts = zip(self.prompts, self.completions, self.mask, self.answers(), strict=True)
        for prompt, completion, mask, answer in rollouts:
            starts = [t for t in range(len(completion)) if mask[t] and (t == 0 or not mask[t - 1])]
            found.append(AnswerReading(prompt, completion, starts[-1], answer))
        return found


def rolled(workshop: Any, model_and_tokenizer: Any, prompts: int = 2, each: int = 3, seed: int = 0) -> Rolled:
    """`prompts` groups of `each` rollouts. Lengths differ: free talk is of any length."""
    model, tokenizer = model_and_tokenizer
    rows = [row for row in workshop.rows("train", prompts, seed) for _ in range(each)]
    generator = torch.Generator().manual_seed(seed)
    played = play(model, tokenizer, workshop, rows, temperature=1.5, generator=generator)
    width = max(len(p.completion_ids) for p in played)
    mask = torch.tensor([p.action_mask + [0] * (width - len(p.action_mask)) for p in played]).bool()
    return Rolled(
        model, tokenizer, workshop, rows, [p.prompt_ids for p in played], [p.completion_ids for p in played], mask
    )
