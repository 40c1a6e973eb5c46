"""`make chaos`: faults injected into real commands, each continued and compared with an undisturbed run, and counted.

    python tests/chaos/chaos.py --short                            a minute, as in CI
    python tests/chaos/chaos.py --workers 16 --out chaos.json      every file event of every command: thousands of faults
    python tests/chaos/chaos.py --only "full disk" --scenes train  a part

Everything is imported once; each command then runs in a forked child.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1",
                    "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():  # fmt: skip
    os.environ.setdefault(name, value)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from faults import Fault, chosen_faults, inject
from hostile_endpoint import HostileServer
from judged import GOOD
from scenes import SCENES, Stage
from tally import Tally

SHORT_SCENES, SHORT_FAULTS = ("train", "credit", "report"), 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--short", action="store_true", help="a dozen faults, under a minute")
    add("--faults", type=int, help="how many; default: every one that can be listed, and a third as many random ones")
    add("--workers", type=int, default=min(2, os.cpu_count() or 1), help="faults at a time")
    add("--seed", type=int, default=0)
    add("--scenes", default=",".join(SCENES), help="commands to disturb, by commas")
    add("--only", default="", help="kinds whose name contains this")
    add("--limit", type=float, default=60.0, help="seconds after which a command counts as hanging")
    add("--seconds", type=float, help="start no fault after so long")
    add("--out", type=Path, help="the report as JSON")
    args = parser.parse_args()
    if args.short:
        args.scenes, args.faults = ",".join(SHORT_SCENES), args.faults or SHORT_FAULTS
    tally = Tally("chaos", GOOD)
    import_everything()
    folder = Path(tempfile.mkdtemp(prefix="gear-chaos-"))  # no TemporaryDirectory: a forked child would remove it at its end
    try:
        stage = undisturbed(folder, args)
        faults = chosen_faults(stage, args.faults, args.seed, args.only)
        print(f"{len(faults)} faults, {args.workers} at a time", flush=True)
        tried = run_all(stage, faults, args, tally)
        events = {name: len(found) for name, found in stage.events.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally.finish(args.out, seed=args.seed, planned=len(faults), file_events=events, scenes=dict(sorted(tried.items())))


def import_everything() -> None:
    """What commands import, before the first fork. Nothing is computed here: threads do not survive a fork."""
    import gear_rl.audition.findings
    import gear_rl.cli.audition
    import gear_rl.cli.compare
    import gear_rl.cli.credit
    import gear_rl.cli.eval
    import gear_rl.cli.report
    import gear_rl.cli.train
    import gear_rl.cli.warmstart
    import gear_rl.compare.runner
    import gear_rl.engines.sft
    import gear_rl.report
    import gear_rl.training.trainer  # noqa: F401


def undisturbed(folder: Path, args: argparse.Namespace) -> Stage:
    stage = Stage(folder / "undisturbed", max(args.limit, 120))
    server = HostileServer()
    stage.url = server.url
    wanted = [name for name in SCENES if name in args.scenes.split(",") or name == "train"]
    for name in wanted:
        stage.make(name)
        print(f"{name}: {len(stage.events[name])} file events, {stage.seconds[name]:.1f} s", flush=True)
    server.close()
    if "train" not in args.scenes.split(","):
        del stage.events["train"]
    stage.limit = args.limit
    return stage


def run_all(stage: Stage, faults: list[Fault], args: argparse.Namespace, tally: Tally) -> Counter[str]:
    """Returns how many were tried in each scene."""
    pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("fork"))
    until, tried = time.time() + args.seconds if args.seconds else float("inf"), Counter[str]()
    futures = {pool.submit(one, stage, fault, i, until): fault for i, fault in enumerate(faults)}
    for done, future in enumerate(as_completed(futures), 1):
        fault, found = futures[future], future.result()
        if found is None:
            continue
        result, seen = found
        tried[fault.scene] += 1
        failure = {"scene": fault.scene, **fault.detail, "event_is": event_of(stage, fault), "seen": seen}
        tally.add(fault.kind, result, failure)
        if result not in GOOD:
            print(f"{result}: {json.dumps(asdict(fault))} {seen[:200]}", flush=True)
        if done % 100 == 0:
            print(f"{done}/{len(faults)}  {time.time() - tally.began:.0f} s", flush=True)
    pool.shutdown()
    if tried.total() < len(faults):
        print(f"the time was up: {len(faults) - tried.total()} of {len(faults)} faults were not tried", flush=True)
    return tried


def one(stage: Stage, fault: Fault, number: int, until: float) -> tuple[str, str] | None:
    return inject(stage, fault, stage.folder.parent / f"fault-{number}") if time.time() < until else None


def event_of(stage: Stage, fault: Fault) -> str | None:
    events = stage.events[fault.scene]
    place = fault.detail.get("event")
    return " ".join(events[place]) if place is not None and place < len(events) else None


if __name__ == "__main__":
    sys.exit(main())
