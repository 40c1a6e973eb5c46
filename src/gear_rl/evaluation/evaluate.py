"""Score a model on a task: reward and true success apart, sampled and greedy apart, each with its interval.

`evaluate` is the short way, for a model in memory: training's before and after. `run_evaluation` is `gear eval`: any number
of samples by any player, every one kept, resumed where it was interrupted.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from gear_rl.chat.hints import hinted_prompt
from gear_rl.errors import GearError
from gear_rl.evaluation.estimates import summarise, wilson_interval
from gear_rl.evaluation.result_folder import ResultFolder, key_of
from gear_rl.sampling.play import Played, play, transcripts
from gear_rl.sampling.players import Job, Player
from gear_rl.tasks.base import Row, Task, Verdict, check_rows, verdicts

__all__ = ["evaluate", "judge_all", "run_evaluation", "wilson_interval"]


def judge_all(tokenizer: Any, task: Task, rows: list[Row], played: list[Played]) -> list[Verdict]:
    return verdicts(task, rows, transcripts(tokenizer, played))


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
        judged: list[Verdict] = []
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            played = play(
                model, tokenizer, task, rows[part], prompts=prompts[part], temperature=temperature, generator=generator
            )
            judged += judge_all(tokenizer, task, rows[part], played)
        hits = sum(v.success for v in judged)
        result[how] = {
            "reward": sum(v.reward for v in judged) / len(judged),
            "success": hits / len(judged),
            "success_interval": wilson_interval(hits, len(judged)),
            "n": len(judged),
        }
    model.train(was_training)
    return result


def with_ids(rows: list[Row], split: str) -> list[Row]:
    """Rows whose ids can file their samples: a task's own, or their place in the split."""
    check_rows(rows, split)
    named = [{**row, "id": str(row.get("id") or f"{split}-{i}")} for i, row in enumerate(rows)]
    seen: set[str] = set()
    for row in named:
        if row["id"] in seen:
            raise GearError(f"two problems of the {split} split have the id {row['id']!r}.")
        seen.add(row["id"])
    return named


def plan(
    task: Task,
    rows: list[Row],
    *,
    samples: int,
    greedy: bool,
    temperature: float,
    top_p: float,
    seed: int,
    hinted: bool,
) -> list[Job]:
    """Every rollout of an evaluation: `samples` of each row, and one greedy."""
    jobs = []
    for row in rows:
        prompt = row["prompt"]
        if hinted:
            if not row.get("hint"):
                raise GearError(f"--hinted: {row['id']} has no hint.")
            prompt = hinted_prompt(prompt, row["hint"], task.hint_template)
        jobs += [Job(row, prompt, "sampled", k, temperature, top_p, seed) for k in range(samples)]
        if greedy:
            jobs.append(Job(row, prompt, "greedy", 0, 0.0, 1.0, seed))
    return jobs


def run_evaluation(
    player: Player, task: Task, jobs: list[Job], folder: ResultFolder, quiet: bool = False
) -> dict[str, Any]:
    """Play what is not in `folder` yet, and sum up: {"sampled": …, "greedy": …, "speed": …}."""
    wanted = {(job.how, job.row["id"], job.k): job for job in jobs}
    done = {key_of(sample) for sample in folder.samples}
    if done - wanted.keys():
        raise GearError(f"{folder.path} holds samples that were not asked for. Give another --out.")
    left = [job for key, job in wanted.items() if key not in done]
    began = last_said = time.monotonic()
    tokens = 0
    for count, sample in enumerate(player.play(task, left) if left else (), 1):
        folder.add(sample)
        tokens += sample["tokens"]
        now = time.monotonic()
        if not quiet and now - last_said > 10:
            last_said = now
            remaining = (now - began) / count * (len(left) - count)
            print(f"{len(done) + count} of {len(jobs)} samples, about {remaining:.0f} s left", file=sys.stderr)
    seconds = time.monotonic() - began
    summary: dict[str, Any] = {}
    for how in dict.fromkeys(job.how for job in jobs):
        summary[how] = summarise(sample for sample in folder.samples if sample["how"] == how)
    summary["speed"] = {
        "samples": len(left),
        "tokens": tokens,
        "seconds": seconds,
        "judged": player.judging.answers,
        "judging_seconds": player.judging.seconds,
    }
    if left:
        folder.finish(summary)
    return summary
