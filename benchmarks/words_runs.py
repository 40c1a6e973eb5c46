"""Training runs on the workshop in words: arms × hints × learning rates × seeds, several processes on one device, a file for
each finished run."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import multiprocessing
import os
import queue
import shutil
import statistics
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gear_rl.compare.runner import end_with_parent
from gear_rl.compare.statistics import difference_ends, plus_two_interval, sign_flip_p
from gear_rl.files import write_json

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {}),
    "gear": ("gear", {}),
    "gear_outcome": ("gear", {"direction": "outcome"}),
    "gear_teacher": ("gear", {"direction": "teacher"}),
    "token": ("token", {}),
    "random_segments": ("random_segments", {}),
    "fixed_segments": ("fixed_segments", {}),
    "turn_segments": ("turn_segments", {}),
    "rlsd": ("rlsd", {"mix": 1.0, "clip": 1.0}),
    "opsd": ("opsd", {"beta": 0.5, "entry_clip": 0.0, "coefficient": 10.0}),
    "checked_hints": ("checked_hints", {}),
    "oracle": ("oracle", {}),
    **{
        f"{arm}_alpha4": (method, {"alpha": 4.0, **options})
        for arm, method, options in (
            ("gear", "gear", {}), ("gear_outcome", "gear", {"direction": "outcome"}), ("token", "token", {}),
            ("gear_teacher", "gear", {"direction": "teacher"}), ("random_segments", "random_segments", {}),
            ("fixed_segments", "fixed_segments", {}), ("turn_segments", "turn_segments", {}),
        )
    },
    **{f"{method}_alpha8": (method, {"alpha": 8.0}) for method in ("gear", "token", "random_segments")},
    "rlsd_half": ("rlsd", {"mix": 0.5, "clip": 1.0}),
    "opsd_coefficient30": ("opsd", {"beta": 0.5, "entry_clip": 0.0, "coefficient": 30.0}),
    "checked_hints_coefficient30": ("checked_hints", {"coefficient": 30.0, "full_trust": 0.05}),
}  # fmt: skip
"""Name → method and its options. OPSD as in its repository's first state: the later one's clip leaves nothing to learn here.
α 4 of GEAR, `token`, fixed and turn segments and the strengths of RLSD and OPSD are what equal tuning chose on one world of the
embedded task; it chose others for random segments, the other directions and `checked_hints` (docs/evidence.md). α 8 and
coefficient 30 are what it chose over three worlds. The last arms are for words_settings.py."""
WITHOUT_HINT = ("grpo", "oracle")
"""Arms that read no hint: run with the first form of hint only."""
HINTS: dict[str, dict[str, Any]] = {
    "calls": {},
    "noise15": {"hint_errors": 0.15},
    "noise30": {"hint_errors": 0.30},
    "noise50": {"hint_errors": 0.50},
    "bias15": {"hint_errors": 0.15, "hint_error_kind": "bias"},
    "bias30": {"hint_errors": 0.30, "hint_error_kind": "bias"},
    "other": {"hint_errors": 1.0, "hint_error_kind": "other"},
    "answer": {"hint": "answer"},
}
"""Name → options of the task."""
TRAIN: dict[str, Any] = {
    "steps": 40, "prompts": 8, "generations": 8, "rollouts_per_pass": 16, "precision": "bfloat16", "eval_rows": 256,
    "kl": 0.04, "mix_steps": 0, "checkpoint_every": 10**6, "record_every": 10**6,
}  # fmt: skip
"""On one H200 a process needs about 7 GB, and four of them together take 1.1 s per step of one run."""


KEPT = {
    "success": "success", "reward": "reward", "kl": "kl", "entropy": "entropy",
    "divergence": "signals/reverse_kl", "trust": "hints/trust",
}  # fmt: skip
"""Curve of a run → its metric."""


@dataclass(frozen=True)
class Run:
    arm: str
    hint: str
    learning_rate: float
    seed: int
    config: dict[str, Any]
    """As `TrainConfig.from_dict` reads it."""

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.hint}-{self.learning_rate:g}-{self.seed}"


def plan(args: argparse.Namespace, train: dict[str, Any], task: dict[str, Any]) -> list[Run]:
    """Seed by seed, so that all arms have as many when time is over."""
    every = [(arm, hint) for hint in args.hints for arm in args.arms if arm not in WITHOUT_HINT or hint == args.hints[0]]
    return [
        make_run(args, train, task, arm, hint, rate, seed)
        for seed, rate, (arm, hint) in itertools.product(args.seeds, args.learning_rates, args.cells or every)
    ]


def _refuse_other_runs(planned: Sequence[Run], folder: Path) -> None:
    """A file is known by arm, hint, rate and seed alone: one of another warm start must not pass for this one's."""
    for one in planned:
        path = folder / f"{one.name}.json"
        if path.is_file() and json.loads(path.read_text()).get("config", one.config) != one.config:
            raise SystemExit(f"{path} is a run with another model or other settings: use another --folder.")


def make_run(
    args: argparse.Namespace, train: dict[str, Any], task: dict[str, Any], arm: str, hint: str, rate: float, seed: int
) -> Run:
    method, options = ARMS[arm]
    config = {
        "task": {"name": "workshop_words", **HINTS[hint], **task},
        "model": args.model,
        "credit": {"name": method, **options},
        "seed": seed,
        "train": {**TRAIN, "device": args.device, **train, "learning_rate": rate},
    }
    return Run(arm, hint, rate, seed, config)


def cell(text: str) -> tuple[str, str]:
    """ARM:HINT, as the command line has it."""
    arm, _, hint = text.partition(":")
    if arm not in ARMS or hint not in HINTS:
        raise argparse.ArgumentTypeError(f"{text}: write ARM:HINT. Arms: {', '.join(ARMS)}. Hints: {', '.join(HINTS)}.")
    return arm, hint


def run(
    runs: Sequence[Run],
    folder: Path,
    minutes: float,
    processes: int,
    then: Callable[[list[dict[str, Any]]], list[Run]] | None = None,
) -> None:
    """Those that are not finished yet, until `minutes` are over; with 0, none. `then`: from the finished runs to the runs that
    depend on them, in the order in which they are to start."""
    deadline = time.time() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)

    def known() -> list[Run]:
        return [*runs, *(then(results(folder)) if then else [])]

    planned = known()
    _refuse_other_runs(planned, folder)
    left = [one for one in planned if not (folder / f"{one.name}.json").is_file()]
    print(f"{len(planned) - len(left)} of {len(planned)} runs are finished", flush=True)
    if not left or minutes <= 0:
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the processes
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    context = multiprocessing.get_context("spawn")
    waiting, ended, over = context.Queue(maxsize=1), context.Queue(), context.Event()
    count = processes if then else min(processes, len(left))
    workers = [context.Process(target=_work, args=(waiting, ended, over, folder, deadline)) for _ in range(count)]
    for worker in workers:
        worker.start()
    started: set[str] = set()
    busy = 0
    while time.time() < deadline + 5 and any(worker.is_alive() for worker in workers):
        if not ended.empty():
            ended.get()
            busy -= 1
            left = known()
            continue
        left = [one for one in left if one.name not in started and not (folder / f"{one.name}.json").is_file()]
        killed = sum(worker.exitcode not in (None, 0) for worker in workers)  # in the middle of a run, for lack of memory
        if not left and busy <= killed:
            break
        try:
            if left:
                waiting.put(left[0], timeout=1)
                started.add(left[0].name)
                busy += 1
            else:
                time.sleep(1)
        except queue.Full:
            pass
    over.set()
    for worker in workers:
        worker.join(max(5.0, deadline + 5 - time.time()))
        if worker.is_alive():  # in the middle of a step
            worker.terminate()
            worker.join()
    waiting.cancel_join_thread()  # a run that nobody took must not keep this process from ending


def _work(waiting: Any, ended: Any, over: Any, folder: Path, deadline: float) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    longest = 0.0
    while time.time() + longest < deadline and not over.is_set():
        try:
            one = waiting.get(timeout=1)
        except queue.Empty:
            continue
        began = time.time()
        try:
            result = train(one, deadline)
        except Exception:
            print(f"{one.name} failed:\n{traceback.format_exc()}", flush=True)
            ended.put(one.name)
            continue
        longest = max(longest, time.time() - began)
        if result is None:
            print(f"{one.name}: time is over", flush=True)
            ended.put(one.name)
            return
        write_json(folder / f"{one.name}.json", result)
        ended.put(one.name)
        after = result["after"]
        print(
            f"{one.name}: success {after['sampled']['success']:.3f} sampled, {after['greedy']['success']:.3f} greedy, "
            f"{result['seconds']:.0f} s, {result['seconds_per_step']:.2f} s a step",
            flush=True,
        )


def train(one: Run, deadline: float) -> dict[str, Any] | None:
    """One run and its evaluation; no checkpoints, no record. None: it could not end in time."""
    import torch
    from transformers import TrainerCallback

    from gear_rl.evaluation.evaluate import evaluate_model
    from gear_rl.models import choose_device, load_model
    from gear_rl.sampling.sampler import Sampler
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.progress import NoProgress
    from gear_rl.training.run import prepare
    from gear_rl.training.run_folder import RunFolder
    from gear_rl.training.trainer import build_trainer

    class Deadline(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            spent = time.time() - began
            control.should_training_stop |= time.time() + spent / state.global_step > deadline
            return control

    config = TrainConfig.from_dict(one.config)
    task, path = prepare(config)
    model, tokenizer = load_model(path, choose_device(config.train.device))
    scratch = Path(tempfile.mkdtemp())
    try:
        trainer = build_trainer(config, RunFolder(scratch), task, model, tokenizer, None, NoProgress())
        trainer.args.save_strategy = "no"  # a checkpoint of the optimizer for every run would fill the disk
        trainer.add_callback(Deadline())
        began = time.time()
        trainer.train()
        seconds = time.time() - began
        if trainer.steps_taken < config.train.steps:
            return None
        policy = Sampler(config.train.precision)(trainer.policy)
        after = evaluate_model(policy, tokenizer, task, task.rows("test", config.train.eval_rows))
        logs = [json.loads(line) for line in (scratch / "metrics.jsonl").read_text().splitlines()]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    del trainer, policy, model
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    curves = {name: read_curve(logs, key) for name, key in KEPT.items() if any(key in log for log in logs)}
    per_step = statistics.median(log["step_time"] for log in logs)
    return {**asdict(one), "after": after, "curves": curves, "seconds": seconds, "seconds_per_step": per_step}


def read_curve(logs: Sequence[dict[str, Any]], key: str) -> list[float | None]:
    """A value for each step. Methods that need no divergence of their own measure it, and trust, at every fourth step."""
    return [round(log[key], 6) if key in log else None for log in logs]


def late_reward(run: dict[str, Any]) -> float:
    """By which rates are chosen, as in `gear compare`: the mean over the second half of the steps."""
    rewards = run["curves"]["reward"]
    return statistics.mean(rewards[len(rewards) // 2 :])


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def collect(folder: Path) -> dict[str, Any]:
    """All finished runs, compact: what all share is said once."""
    runs, shared = results(folder), set()
    for run in runs:
        config = run.pop("config")
        run["world"] = config["task"].get("world", 0)
        run["start"] = Path(config["model"]).name
        shared.add(json.dumps(config["train"] | {"learning_rate": None}))
    return {"train": [json.loads(train) for train in sorted(shared)], "runs": runs}


def table(results: dict[str, Any]) -> str:
    """True success, sampled and greedy, per arm, hint and rate; and the paired difference from grpo at the same rate."""
    cells: dict[tuple[str, float, str], dict[int, dict[str, Any]]] = {}
    for one in results["runs"]:
        cells.setdefault((one["hint"], one["learning_rate"], one["arm"]), {})[one["seed"]] = one["after"]
    grpo = {rate: seeds for (_, rate, arm), seeds in cells.items() if arm == "grpo"}
    lines = ["hint      rate    arm              seeds  sampled  greedy  over grpo (95 %), p"]
    for (hint, rate, arm), seeds in sorted(cells.items()):
        sampled, greedy = ([100 * v[how]["success"] for v in seeds.values()] for how in ("sampled", "greedy"))
        line = f"{hint:9} {rate:<7g} {arm:16} {len(seeds):5}  {statistics.mean(sampled):7.1f} {statistics.mean(greedy):7.1f}"
        pairs = [s for s in seeds if s in grpo.get(rate, {})]
        ours, theirs = ([100 * run[s]["sampled"]["success"] for s in pairs] for run in (seeds, grpo.get(rate, {})))
        over = [a - b for a, b in zip(ours, theirs, strict=True)]
        if arm != "grpo" and len(over) > 1:
            low, high = plus_two_interval([over], difference_ends([ours], [theirs], 100.0))
            line += f"  {statistics.mean(over):+.1f} ({low:+.1f} to {high:+.1f}), p {sign_flip_p(over):.3f}"
        lines.append(line)
    return "\n".join(lines)
