"""Score a model on a task: reward and true success apart, sampled and greedy apart, each with its interval.

    rows ──plan──► jobs ──player──► judged samples ──summarise──► scores

`gear eval` and training's evaluation before and after are the same `evaluate`. Every sample has random numbers of its own,
and an evaluation that resumes plays the batches that it would have played. When memory runs out they are cut smaller: up to
rounding the samples are then the same (docs/evaluation.md); they are always samples of the same model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from gear_rl.chat.hints import hinted_prompt
from gear_rl.errors import GearError
from gear_rl.evaluation.estimates import summarise
from gear_rl.sampling.players import Job, Key, LocalPlayer, Player, Sample
from gear_rl.tasks.base import Row, Task, check_rows

Say = Callable[[str], None]
SECONDS_BETWEEN_LINES = 10


class Results(Protocol):
    """Where samples are kept: a folder (`ResultFolder`), or memory."""

    name: str
    """For messages."""
    samples: list[Sample]

    @property
    def summarised(self) -> bool:
        """Whether `finish` was called before, by this process or an earlier one."""

    def add(self, sample: Sample) -> None: ...
    def finish(self, summary: dict[str, Any]) -> None: ...


class InMemory:
    """Samples that nobody resumes."""

    name = "this evaluation"
    summarised = False

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def finish(self, summary: dict[str, Any]) -> None: ...


def with_ids(rows: list[Row], split: str) -> list[Row]:
    """Rows with an id each: the task's own, or their place in the split."""
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
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    hinted: bool = False,
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


def key_of(sample: Sample) -> Key:
    return sample["how"], sample["id"], sample["k"]


def evaluate(player: Player, task: Task, jobs: list[Job], results: Results, say: Say | None = None) -> dict[str, Any]:
    """Play the jobs whose samples `results` does not have yet, and summarise all: {"sampled": …, "greedy": …, "speed": …}.

    `say` gets a line about every ten seconds.
    """
    wanted = {job.key: job for job in jobs}
    done = {key_of(sample) for sample in results.samples}
    if done - wanted.keys():
        raise GearError(f"{results.name} has samples that were not asked for. Give another --out.")
    left = len(wanted) - len(done)
    began = last_line = time.monotonic()
    tokens = 0
    for count, sample in enumerate(player.play(task, list(wanted.values()), done) if left else (), 1):
        results.add(sample)
        tokens += sample["tokens"]
        now = time.monotonic()
        if say is not None and now - last_line > SECONDS_BETWEEN_LINES:
            last_line = now
            remaining = (now - began) / count * (left - count)
            say(f"{len(done) + count} of {len(jobs)} samples, about {remaining:.0f} s left")
    seconds = time.monotonic() - began
    summary: dict[str, Any] = {}
    for how in dict.fromkeys(job.how for job in jobs):
        summary[how] = summarise(sample for sample in results.samples if sample["how"] == how)
    summary["speed"] = {
        "samples": left,
        "tokens": tokens,
        "seconds": seconds,
        "judged": player.judging.answers,
        "judging_seconds": player.judging.seconds,
    }
    if left or not results.summarised:  # an earlier process may have ended between its last sample and its summary
        results.finish(summary)
    return summary


def evaluate_model(
    model: Any,
    tokenizer: Any,
    task: Task,
    rows: list[Row],
    *,
    seed: int = 0,
    hinted: bool = False,
    say: Say | None = None,
) -> dict[str, dict[str, Any]]:
    """A model in memory, one sample and one greedy rollout of each row, as training does before and after:
    {"sampled" | "greedy": {"reward", "success", "success_interval", "n"}}, and "parts" where the task counts some decisions
    apart, "categories" where its rows have some. Torch's random state is not used."""
    jobs = plan(task, with_ids(rows, "test"), samples=1, greedy=True, seed=seed, hinted=hinted)
    was_training = model.training
    model.eval()
    try:
        summary = evaluate(LocalPlayer(model, tokenizer), task, jobs, InMemory(), say)
    finally:
        model.train(was_training)
    names = ("reward", "success", "success_interval", "n", "parts", "categories")
    return {how: {name: summary[how][name] for name in names if name in summary[how]} for how in ("sampled", "greedy")}
