"""Runs the jobs of a plan in parallel processes. Every job is an ordinary run folder, so a killed job resumes exactly."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from gear_rl.compare.plan import Job, Plan
from gear_rl.errors import GearError


def run_job(work: tuple[Plan, Job, Path]) -> tuple[Job, str | None]:
    """Train one job to its end, or resume it. Returns the job, and why it failed. Runs in a worker process."""
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
    from gear_rl.training.progress import NoProgress
    from gear_rl.training.run import prepare, run
    from gear_rl.training.run_folder import RunFolder

    config = plan.config(job.method, job.learning_rate, job.seed)
    task, model = prepare(config)
    folder = RunFolder.open(path)[0] if (path / "config.json").is_file() else RunFolder.create(path, config.as_dict())
    began = time.time()
    before = path.parent / "before.json"  # the same model on the same problems in every run: evaluated once
    if before.is_file() and not folder.evaluation.exists():
        write_json(folder.evaluation, json.loads(before.read_text()))
    run(config, folder, task, model, NoProgress())
    if not before.is_file():
        write_json(before, {"before": json.loads(folder.evaluation.read_text())["before"]})
    seconds = path / "seconds.json"
    spent = json.loads(seconds.read_text()) if seconds.is_file() else 0.0
    write_json(seconds, spent + time.time() - began)


def is_finished(path: Path) -> bool:
    evaluation = path / "evaluation.json"
    return evaluation.is_file() and "after" in json.loads(evaluation.read_text())


def run_all(plan: Plan, jobs: list[Job], folder: Path, workers: int, finished: Callable[[int, int, Job], None]) -> None:
    """All jobs that are not finished yet. Calls `finished(done, of, job)` after each. A failed job does not stop the others."""
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    left = [job for job in jobs if not is_finished(runs / job.name)]
    done = len(jobs) - len(left)
    if not left:
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers: one core each
    with multiprocessing.get_context("spawn").Pool(min(workers, len(left))) as pool:
        failed = []
        for job, why in pool.imap_unordered(run_job, [(plan, job, runs) for job in left]):
            done += 1
            finished(done, len(jobs), job)
            if why is not None:
                failed.append(f"{job.name}: {why}")
    if failed:
        raise GearError(
            f"{len(failed)} of {len(jobs)} runs failed; the others are kept. `gear compare --resume {folder}` runs these "
            "again:\n  " + "\n  ".join(failed)
        )
