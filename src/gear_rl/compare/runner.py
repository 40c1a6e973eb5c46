"""Runs the jobs of a plan in parallel processes. Every job is an ordinary run folder: killed, it resumes exactly."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gear_rl.compare.plan import Job, Plan
from gear_rl.errors import GearError


class Quiet:
    """The progress of one job among many: none of its own."""

    def line(self, text: str) -> None: ...
    def step(self, step: int, logs: dict[str, float]) -> None: ...
    def summary(self, evaluation: dict[str, Any], folder: Any) -> None: ...

    @contextlib.contextmanager
    def progress(self, total: int, done: int) -> Iterator[None]:
        yield


def run_job(work: tuple[Plan, Job, Path]) -> tuple[Job, str | None]:
    """Train one job to its end, or go on where it was interrupted; the job, and why it failed. Runs in a worker process."""
    plan, job, parent = work
    try:
        _train(plan, job, parent / job.name)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return job, f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    return job, None


def _train(plan: Plan, job: Job, path: Path) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from gear_rl.files import write_json
    from gear_rl.training.run import prepare, run
    from gear_rl.training.run_folder import RunFolder

    config = plan.config(job.method, job.learning_rate, job.seed)
    task, model = prepare(config)
    folder = RunFolder.open(path)[0] if (path / "config.json").is_file() else RunFolder.create(path, config.as_dict())
    began = time.time()
    before = path.parent / "before.json"  # the same model on the same problems in every run: evaluated once
    if before.is_file() and not folder.evaluation.exists():
        write_json(folder.evaluation, json.loads(before.read_text()))
    run(config, folder, task, model, Quiet())
    if not before.is_file():
        own = path / before.name  # not written in place: another worker may be doing the same
        write_json(own, {"before": json.loads(folder.evaluation.read_text())["before"]})
        os.replace(own, before)
    seconds = path / "seconds.json"
    spent = json.loads(seconds.read_text()) if seconds.is_file() else 0.0
    seconds.write_text(json.dumps(spent + time.time() - began))


def is_finished(path: Path) -> bool:
    evaluation = path / "evaluation.json"
    return evaluation.is_file() and "after" in json.loads(evaluation.read_text())


def run_all(plan: Plan, jobs: list[Job], folder: Path, workers: int, told: Callable[[int, int, Job], None]) -> None:
    """All jobs that are not finished yet. `told(done, of, job)` after each. One that fails does not stop the others."""
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    left = [job for job in jobs if not is_finished(runs / job.name)]
    done = len(jobs) - len(left)
    if not left:
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited: one core per worker, or the workers would fight over cores
    with multiprocessing.get_context("spawn").Pool(min(workers, len(left))) as pool:
        failed = []
        for job, why in pool.imap_unordered(run_job, [(plan, job, runs) for job in left]):
            done += 1
            told(done, len(jobs), job)
            if why is not None:
                failed.append(f"{job.name}: {why}")
    if failed:
        raise GearError(
            f"{len(failed)} of {len(jobs)} runs failed; the others are kept. `gear compare --resume {folder}` tries these "
            "again:\n  " + "\n  ".join(failed)
        )
