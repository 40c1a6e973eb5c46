"""What is lost when GEAR collapses with the answer alone as its hint: `python benchmarks/answer_only_cause.py --out FILE`.

Trains GEAR on the embedded task whose hint is the answer, and reads every twentieth step's rollouts from its record: how many
tools, parts and answers were right (an answer is right if it reads the gauge as it stands), how far the hinted self is from the
policy at the tools, and which way credit pushes: the mean advantage of right tools less that of wrong ones. Each run is made
with a teacher that has the policy's weights (`live`, GEAR's default) and with one that keeps the starting weights (`base`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from embedded_run import train

from gear_rl.files import write_json
from gear_rl.records.record import open_record
from gear_rl.records.recorded import RecordedRollout
from gear_rl.tasks.workshop.tokenizer import ANSWER
from gear_rl.tasks.workshop.world import PARTS, TOOLS

EVERY = 20
FAR = 0.05
"""Nats at the tools, in two records in a row, from which on the hinted self has left the policy. Before, it is about 0.001."""
LOST = 0.5
"""Tools (answers) are lost when, in two records in a row, less than this share of those of the first record is right."""


def measure(teacher: str, alpha: float, world: int, seed: int, steps: int, eval_rows: int = 500) -> dict[str, Any]:
    settings = {
        "train.steps": steps, "train.eval_rows": eval_rows, "train.record_every": EVERY, "train.mix_steps": 0,
        "train.teacher": teacher, "task.world": world, "task.hint_form": "answer", "credit.alpha": alpha,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(run, "gear", seed, settings)
        after = json.loads((run / "evaluation.json").read_text())
        points = read(open_record(run / "rollouts.jsonl")[1])
    named = {"teacher": teacher, "alpha": alpha, "world": world, "seed": seed}
    shares = {"before": after["before"]["sampled"]["success"], "success": after["after"]["sampled"]["success"]}
    print(named, shares, flush=True)
    return named | shares | {"points": points}


def read(rollouts: Iterable[RecordedRollout]) -> list[dict[str, float]]:
    """A point for each recorded step. Steps are counted from 0."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        at = found[rollout.step]
        at["reward"].append(rollout.reward or 0.0)
        for i, word in enumerate(map(str.strip, rollout.token_texts)):
            kind = _kind(word, rollout.token_texts[i - 1].strip() if i else "")
            if kind and rollout.action_mask[i]:
                right = (rollout.signals["decision"][i] or 0) > 0
                at[kind].append(right)
                if kind == "tool":
                    at["divergence"].append(rollout.signals["reverse_kl"][i] or 0.0)
                    at["right" if right else "wrong"].append(rollout.advantages[i])
    points = []
    for step, at in sorted(found.items()):
        names = ("reward", "tool", "part", "answer", "divergence")
        means = {name: round(mean(at[name]), 4) for name in names if at[name]}
        push = {"push": round(mean(at["right"]) - mean(at["wrong"]), 4)} if at["right"] and at["wrong"] else {}
        points.append({"step": step, **means, **push})
    return points


def _kind(word: str, before: str) -> str | None:
    if word in TOOLS:
        return "tool"
    if word in PARTS:
        return "part"
    return "answer" if before == ANSWER else None


def lasting(points: list[dict[str, float]], holds: Callable[[dict[str, float]], bool]) -> str:
    """The first step of two records in a row for which it holds."""
    found = (int(one["step"]) for one, following in pairwise(points) if holds(one) and holds(following))
    return next((f"step {step}" for step in found), "never")


def table(runs: list[dict[str, Any]]) -> str:
    heads = ["teacher, α", "world, seed", "success", "tools right", "parts right", "answers right"]
    heads += ["hinted self is far from", "tools are lost from", "answers are lost from"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for run in sorted(runs, key=lambda one: (one["teacher"] == "base", one["alpha"], one["world"], one["seed"])):
        points = run["points"]
        start, end = points[0], points[-1]

        def lost(kind: str, points: list[dict[str, float]] = points) -> str:
            return lasting(points, lambda point: point.get(kind, 0.0) < LOST * points[0][kind])

        cells = [f"{run['teacher']}, {run['alpha']:g}", f"{run['world']}, {run['seed']}"]
        cells += [f"{100 * run['before']:.1f} → {100 * run['success']:.1f}"]
        cells += [f"{100 * start[kind]:.0f} → {100 * end.get(kind, 0.0):.0f}" for kind in ("tool", "part", "answer")]
        cells += [lasting(points, lambda point: point["divergence"] > FAR), lost("tool"), lost("answer")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def push(runs: list[dict[str, Any]], teacher: str, far: bool) -> float:
    """Mean over the records in which the hinted self is `far`, or near. Above 0: credit pushes towards right tools."""
    points = [point for run in runs if run["teacher"] == teacher for point in run["points"] if "push" in point]
    chosen = [point["push"] for point in points if (point["divergence"] > FAR) == far]
    return mean(chosen) if chosen else 0.0


def pushes(runs: list[dict[str, Any]]) -> str:
    lines = ["| teacher | push while the hinted self is near | while it is far |", "|---" * 3 + "|"]
    for teacher in dict.fromkeys(run["teacher"] for run in runs):
        near, far = (f"{push(runs, teacher, far):+.2f}".replace("-", "−") for far in (False, True))
        lines.append(f"| {teacher} | {near} | {far} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", nargs="+", default=["live", "base"], choices=["live", "sync", "ema", "base"])
    parser.add_argument("--alphas", type=float, nargs="+", default=[2.0, 8.0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    cells = [(t, a, w, s) for s in args.seeds for w in args.worlds for a in args.alphas for t in args.teachers]
    with ThreadPoolExecutor(args.workers) as pool:
        runs = list(pool.map(lambda cell: measure(*cell, args.steps), cells))
    write_json(args.out, {"steps": args.steps, "every": EVERY, "runs": runs})
    print(table(runs) + "\n\n" + pushes(runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
