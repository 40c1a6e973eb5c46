"""Do the guards ring? Runs that are built to fail and runs that are not, each a real training on the embedded task.

    python tests/chaos/guards_proven.py --ordinary 60 --workers 16 --out guards.json

A failing run should ring, a healthy one should not. Runs with ordinary settings fail now and then as well. So what is healthy
is read from success alone, without a look at the guards: it never fell below half of what it had been. Of those that fell, the
ones that lost success for good should ring. Beside the step of the first alarm stands the step at which success was lost for
good: where the reward pays for something else that is soon, and the rest of the run is what an alarm saves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1",
                    "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():  # fmt: skip
    os.environ.setdefault(name, value)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

from gear_child import gear
from scenes import settings
from tally import Tally

FEW = ["train.eval_rows=1", "train.record_every=100000", "train.checkpoint_every=100000"]
METHODS = ("gear", "grpo", "rlsd", "token", "checked_hints")
ORDINARY = ((), ("task.world=1",), ("train.learning_rate=3e-4",), ("task.answer=quarter",), ("train.generations=4",))
"""Settings of ordinary runs, in turns: an alarm that is right for the defaults alone is of little use."""
FIRST_SEED = 100
"""The rules were made with runs of seeds below ten."""
LOSS, FALL = 10, 20
"""Steps over which success is averaged, for a loss and for a fall. Over ten, chance alone halves a success of 15 % at times."""


@dataclass(frozen=True)
class Case:
    name: str
    rings: tuple[str, ...]
    """Guards one of which should ring; none: an ordinary run."""
    settings: tuple[str, ...] = ()
    task: str = "workshop"
    credit: str = "gear"


FAST = ("train.learning_rate=2e-3", "train.schedule=constant")
UNBOUND = ("train.learning_rate=3e-3", "train.kl=0", "train.schedule=constant")
WARM, HOT = (*UNBOUND, "train.temperature=1.5"), (*UNBOUND, "train.temperature=2.0")
"""At temperature 1 all rollouts of the embedded model are of one length, and none says what these rewards pay for."""
FAILING = [
    Case("collapse: three times the rate", ("drift",), FAST),
    Case("collapse: three times the rate, grpo", ("drift",), FAST, credit="grpo"),
    Case("collapse: ten times the rate, no KL", ("entropy", "length", "stuck"),
         ("train.kl=0", "train.learning_rate=6e-3", "train.schedule=constant")),
    Case("entropy collapse: one word pays", ("entropy",), WARM, "guard_tasks:CopyIsGood", "grpo"),
    # With hints that teach short answers GEAR's rollouts may stay short; then it is the hints that do not fit the reward.
    Case("length explosion: a reward for length", ("length", "trust"), HOT, "guard_tasks:LongIsGood"),
    Case("length explosion: a reward for length, grpo", ("length",), HOT, "guard_tasks:LongIsGood", "grpo"),
    Case("length vanishes: a reward for brevity", ("length",), WARM, "guard_tasks:ShortIsGood"),
    Case("the policy copies its hint", ("leak",), WARM, "guard_tasks:CopyIsGood"),
    Case("all credit on one token", ("focus", "tokens"), ("credit.share=0.01",), credit="high_entropy"),
    Case("zero variance: one reward for all", ("stuck",), task="guard_tasks:SameReward"),
    Case("float residue: rewards differ by rounding", ("stuck",), task="guard_tasks:FloatResidue"),
    Case("a teacher that went bad", ("trust",), task="guard_tasks:TurningHints"),
    Case("wrong hints: a faulty answer key", ("trust",), ("task.hint_errors=1.0",)),
    Case("wrong hints: another problem's", ("trust",), ("task.hint_form=other",)),
]  # fmt: skip


def played(case: Case, seed: int, steps: int, folder: Path, limit: float) -> dict[str, Any]:
    """One training: at which step each guard rang first, and at which step success was lost for good."""
    home = folder / re.sub(r"\W+", "-", f"{case.name}-{case.credit}-{seed}")
    home.mkdir()
    words = ["train", "--task", case.task, "--credit", case.credit, "--seed", str(seed), "--out", "run"]
    ended = gear([*words, *settings(*FEW, f"train.steps={steps}", *case.settings)], home, limit)
    metrics = home / "run" / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    rang, success = first_alarms(rows), [row.get("success", 0.0) for row in rows]
    found = {
        "case": case.name, "credit": case.credit, "seed": seed, "steps": len(rows), "rang": rang,
        "lost_at": lost_at(success), "fell_at": fell_at(success), "code": ended.code,
        "last": {key: round(value, 4) for key, value in (rows[-1] if rows else {}).items() if key.startswith("guards/")},
    }  # fmt: skip
    if ended.code != 0:
        found["said"] = ended.last_line
    shutil.rmtree(home, ignore_errors=True)
    return found


def first_alarms(rows: list[dict[str, float]]) -> dict[str, int]:
    """Guard → the step it rang at first, by the report's own reading of the log."""
    from gear_rl.report.curves import alarms

    return {kind["guard"]: kind["steps"][0] for kind in alarms(rows)["kinds"]}


def _means(success: list[float], window: int) -> list[float]:
    return [sum(success[i : i + window]) / window for i in range(len(success) - window + 1)]


def lost_at(success: list[float]) -> int | None:
    """The first step from which the mean of ten steps stays below half of the best one; None: it never does, or only in the
    last ten, which may be chance."""
    means = _means(success, LOSS)
    above = [i for i, mean in enumerate(means) if mean >= max(means) / 2]
    return above[-1] + LOSS + 1 if means and max(means) > 0 and above[-1] + LOSS < len(means) else None


def fell_at(success: list[float]) -> int | None:
    """The first step at which the mean of twenty steps is below half of an earlier one, whether it recovers or not."""
    means = _means(success, FALL)
    return next((i + FALL for i, mean in enumerate(means) if mean < max(means[: i + 1]) / 2), None)


def verdict(case: Case, found: dict[str, Any]) -> str:
    if found["code"] != 0:
        return "did not end"
    if case.rings:
        return "rang" if set(case.rings) & found["rang"].keys() else "missed"
    if found["fell_at"] is None:
        return "false alarm" if found["rang"] else "silent"
    if found["rang"]:
        return "rang"
    return "recovered" if found["lost_at"] is None else "missed"  # a fall from which it recovers need not ring


def kind(case: Case, found: dict[str, Any]) -> str:
    """The name of its row: an ordinary run's says how it went."""
    if case.rings:
        return case.name
    return ("healthy" if found["fell_at"] is None else "fell on its own") + case.name.removeprefix("ordinary")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ordinary", type=int, default=60, help="runs with ordinary settings, over methods and seeds in turns")
    add("--seeds", type=int, default=3, help="runs of each way to fail")
    add("--steps", type=int, default=150, help="of a failing run")
    add("--ordinary-steps", type=int, default=400, help="of an ordinary run: to its usual end")
    add("--first-seed", type=int, default=FIRST_SEED)
    add("--workers", type=int, default=min(2, os.cpu_count() or 1))
    add("--limit", type=float, default=3600.0, help="seconds a run may take")
    add("--only", default="", help="cases whose name contains this")
    add("--out", type=Path)
    args = parser.parse_args()
    import gear_rl.cli.train
    import gear_rl.training.trainer  # noqa: F401  once, for all runs

    jobs = [(case, args.first_seed + i, args.steps) for i in range(args.seeds) for case in FAILING]
    for i in range(args.ordinary):
        turn = i // len(METHODS)
        of_seed = ORDINARY[turn % len(ORDINARY)]
        case = Case(" ".join(["ordinary", *of_seed]), (), of_seed, credit=METHODS[i % len(METHODS)])
        jobs.append((case, args.first_seed + turn, args.ordinary_steps))
    jobs = [job for job in jobs if args.only in job[0].name]
    tally, runs, folder = Tally("guards", ("rang", "silent", "recovered")), [], Path(tempfile.mkdtemp(prefix="gear-guards-"))
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("fork")) as pool:
        futures = {pool.submit(played, *job, folder, args.limit): job[0] for job in jobs}
        for future in as_completed(futures):
            case, found = futures[future], future.result()
            found["case"], found["verdict"] = kind(case, found), verdict(case, found)
            tally.add(found["case"], found["verdict"], found)
            runs.append(found)
            print(json.dumps(found, ensure_ascii=False), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return tally.finish(args.out, runs=runs)


if __name__ == "__main__":
    sys.exit(main())
