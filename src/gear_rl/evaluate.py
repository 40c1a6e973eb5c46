"""Score a model on a task: reward and true success apart, sampled and greedy apart, each with its interval."""

from __future__ import annotations

import math
from typing import Any

import torch

from gear_rl.agent import Played, play
from gear_rl.hints import hinted_prompt
from gear_rl.tasks.base import Row, Task, Verdict


def judge_all(tokenizer: Any, task: Task, rows: list[Row], played: list[Played]) -> list[Verdict]:
    texts = tokenizer.batch_decode([p.completion_ids for p in played], skip_special_tokens=False)
    return [task.judge(row, text) for row, text in zip(rows, texts, strict=True)]


def wilson_interval(hits: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927): honest near 0 and 1, where the normal one is not."""
    if n == 0:
        return 0.0, 1.0
    share, scale = hits / n, 1 + z * z / n
    centre, spread = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def evaluate(
    model: Any,
    tokenizer: Any,
    task: Task,
    rows: list[Row],
    *,
    seed: int = 0,
    hinted: bool = False,
    batch_size: int = 512,
) -> dict[str, dict[str, Any]]:
    """{"sampled" | "greedy": {"reward", "success", "success_interval", "n"}}. The caller's random state is left alone."""
    prompts = [hinted_prompt(r["prompt"], r["hint"], task.hint_template) if hinted else r["prompt"] for r in rows]
    was_training = model.training
    model.eval()
    result = {}
    for how, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        generator = torch.Generator(device=model.device).manual_seed(seed)
        verdicts: list[Verdict] = []
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            played = play(
                model, tokenizer, task, rows[part], prompts=prompts[part], temperature=temperature, generator=generator
            )
            verdicts += judge_all(tokenizer, task, rows[part], played)
        hits = sum(v.success for v in verdicts)
        result[how] = {
            "reward": sum(v.reward for v in verdicts) / len(verdicts),
            "success": hits / len(verdicts),
            "success_interval": wilson_interval(hits, len(verdicts)),
            "n": len(verdicts),
        }
    model.train(was_training)
    return result
