"""Runs the jobs of a plan in parallel processes. Every job is an ordinary run folder, so a killed job resumes exactly."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from gear_rl.compare.jobs import Job
from gear_rl.compare.plan import Plan
from gear_rl.errors import GearError
from gear_rl.files import alone_in, read_json, write_json

TOO_LATE = "not started: the time is up"
MARGIN = 1.5
"""What a run may take, as a multiple of what they took so far, when there is an end to the time."""


Work = tuple[Plan, Job, Path, float, float]


def run_job(work: Work) -> tuple[Job, str | None]:
    """Train one job to its end, or resume it. Returns the job, and why it failed. Runs in a worker process.

    `until`: no run starts that would end after this time, if it takes somewhat longer than they did so far."""
    plan, job, parent, until, typical = work
    if until < math.inf and time.time() + MARGIN * max(typical, typical_run(parent)) > until:
        return job, TOO_LATE
    try:
        _train(plan, job, parent / job.name)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return job, f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    return job, None


def _train(plan: Plan, job: Job, path: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from gear_rl.training.progress import NoProgress
    from gear_rl.training.run import prepare, run
    from gear_rl.training.run_folder import RunFolder

    config = plan.config(job)
    task, model = prepare(config)
    folder = RunFolder.open(path)[0] if (path / "config.json").is_file() else RunFolder.create(path, config.as_dict())
    began = time.time()
    before = path.parent / f"before{'' if job.world is None else job.world}.json"  # alike in all runs of a world
    if before.is_file() and not folder.evaluation.exists():
        write_json(folder.evaluation, read_json(before, strict=False))
    run(config, folder, task, model, NoProgress())
    if not before.is_file():
        write_json(before, {"before": read_json(folder.evaluation, strict=False)["before"]})
    seconds = path / "seconds.json"
    spent = read_json(seconds, (int, float)) if seconds.is_file() else 0.0
    write_json(seconds, spent + time.time() - began)


def typical_run(runs: Path) -> float:
    """Seconds that the finished runs in `runs` took, the median: some may be from a busier machine. 0: there is none."""
    took = [float(read_json(file, (int, float))) for file in runs.glob("*/seconds.json")]
    return median(took) if took else 0.0


def is_finished(path: Path) -> bool:
    evaluation = path / "evaluation.json"
    return evaluation.is_file() and "after" in read_json(evaluation, strict=False)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that end with this block, and with this process however it ends."""
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if isinstance(context, multiprocessing.context.ForkServerContext):
        context.set_forkserver_preload(["gear_rl.training.trainer"])  # seconds of imports, once for all workers
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()
            child.join()


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """However this process's parent ends. (The kernel's signal at a parent's death would be about the fork server, which
    lives as long as its workers.)"""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _results(pool: ProcessPoolExecutor, work: list[Work], folder: Path) -> Iterator[tuple[Job, str | None]]:
    """What `run_job` returns of each, in the order in which they end."""
    try:
        for future in as_completed([pool.submit(run_job, one) for one in work]):
            yield future.result()
    except BrokenProcessPool:
        raise GearError(
            "a worker process was killed from outside, most likely because memory ran out. Finished runs are kept: "
            f"`gear compare --resume {folder} --workers N` goes on, with fewer workers."
        ) from None


def run_all(
    plan: Plan,
    jobs: list[Job],
    folder: Path,
    workers: int,
    finished: Callable[[int, int, Job], None],
    until: float = math.inf,
    typical: float = 0.0,
) -> int:
    """All jobs that are not finished yet. Calls `finished(done, of, job)` after each. A failed job does not stop the others.
    Returns how many were not started because they would not have ended at the time `until`. `typical`: seconds of a run, where
    that is known from elsewhere."""
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    left = [job for job in jobs if not is_finished(runs / job.name)]
    done = len(jobs) - len(left)
    if not left:
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers: one core each
    failed, waiting = [], 0
    with alone_in(folder), _pool(min(workers, len(left))) as pool:
        for job, why in _results(pool, [(plan, job, runs, until, typical) for job in left], folder):
            if why == TOO_LATE:
                waiting += 1
                continue
            done += 1
            finished(done, len(jobs), job)
            if why is not None:
                failed.append(f"{job.name}: {why}")
    if failed:
        raise GearError(
            f"{len(failed)} of {len(jobs)} runs failed; the others are kept. `gear compare --resume {folder}` runs these "
            "again:\n  " + "\n  ".join(failed)
        )
    return waiting
