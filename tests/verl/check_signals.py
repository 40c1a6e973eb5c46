"""The same rollouts give the same signals, credit and weights, in verl's workers and in this process, in one worker and in two.

    python tests/verl/check_signals.py [--workers 1 2] [--teacher ema] [--packed] [--strategy fsdp] [--credit rlsd]

Takes a few steps on a CPU-only Ray cluster, by verl's own entry point, for each number of workers. Then scores the rollouts of
every step in this process, with the weights that the rollout replicas were given and a teacher computed from these, and
compares the weights that the numbers of workers end with. Needs verl's environment, which `make verl-smoke` makes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2] / "src")]

import torch  # noqa: E402
from verl_command import MODEL, command, environment, write_mixed_data  # noqa: E402

from gear_rl.scoring.teacher import KINDS  # noqa: E402

SIGNALS_AGREE, ADVANTAGES_AGREE, WEIGHTS_AGREE = 1e-5, 3e-5, 1e-5
STEPS, EVERY, DECAY = 3, 2, 0.5
Weights = dict[str, torch.Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--packed", action="store_true", help="verl without padding (use_remove_padding)")
    parser.add_argument("--strategy", default="fsdp2")
    parser.add_argument("--credit", default="gear")
    parser.add_argument("--teacher", choices=KINDS, default="live")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = {workers: take_steps(Path(scratch) / str(workers), workers, args) for workers in args.workers}
        fine = True
        for workers, folder in runs.items():
            print(f"{args.credit}, {args.teacher} teacher, {workers} worker{'s' * (workers > 1)}")
            teacher = Reproduced(args.teacher, loaded(folder, 0))
            for step in range(STEPS):
                student = loaded(folder, step)
                content = torch.load(folder / f"step-{step}.pt", weights_only=True)
                fine &= compare(content, args.credit, student, teacher.weights)
                teacher.after_step(loaded(folder, step + 1))
        first, *others = runs.values()
        fine &= all([same_weights(first, other) for other in others])
    print("agree" if fine else "DISAGREE")
    return 0 if fine else 1


def take_steps(folder: Path, workers: int, args: argparse.Namespace) -> Path:
    write_mixed_data(folder)
    more = [
        f"+gear.credit={args.credit}", f"+gear.teacher={args.teacher}", f"+gear.teacher_every={EVERY}",
        f"+gear.teacher_decay={DECAY}", f"actor_rollout_ref.actor.strategy={args.strategy}",
        # with 1e-8, rounding of a gradient near 0 may turn a whole step
        "actor_rollout_ref.actor.optim.override_optimizer_config={eps:1e-6}",
        f"actor_rollout_ref.model.use_remove_padding={args.packed}",
    ]  # fmt: skip
    environ = {**environment(), "GEAR_TEST_EXACT": str(folder), "GEAR_TEST_WEIGHTS": str(folder)}
    environ["VERL_USE_EXTERNAL_MODULES"] += ",verl_exact_record"
    line = command(folder, *more, workers=workers, steps=STEPS, jobs=6)
    run = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=1200, cwd=folder)
    if run.returncode:
        raise SystemExit(f"exit code {run.returncode}:\n{run.stdout[-6000:]}\n{run.stderr[-6000:]}")
    return folder


def loaded(folder: Path, step: int) -> Weights:
    """What all replicas were given after `step` steps."""
    first, *others = (torch.load(path, weights_only=True) for path in sorted(folder.glob(f"weights-{step}-*.pt")))
    assert all(first[name].equal(other[name]) for other in others for name in first), "replicas differ"
    return first


class Reproduced:
    """The teacher's weights by their definition, from the student's after each step."""

    def __init__(self, kind: str, start: Weights) -> None:
        self.kind, self.weights, self.steps = kind, start, 0

    def after_step(self, student: Weights) -> None:
        self.steps += 1
        if self.kind == "live" or (self.kind == "sync" and self.steps % EVERY == 0):
            self.weights = student
        elif self.kind == "ema":
            self.weights = {name: torch.lerp(old, student[name], DECAY) for name, old in self.weights.items()}


def compare(step: dict[str, Any], name: str, student: Weights, teacher: Weights) -> bool:
    from gear_rl import Rollouts, credit
    from gear_rl.models import load_model
    from gear_rl.scoring.scorer import SIGNALS, Scorer
    from gear_rl.scoring.teacher import Teacher

    model, _ = load_model(str(MODEL), "cpu")
    model.load_state_dict(teacher, strict=False)
    own = Teacher(model, "base")  # keeps these weights
    model.load_state_dict(student, strict=False)
    mask, theirs = step["action_mask"], step["signals"]

    def score(prompts: Any, of: Teacher) -> dict[str, Any]:
        return Scorer(model).score(step["prompts"], prompts, step["completions"], mask, of)

    def apart(found: dict[str, Any], signals: Any = SIGNALS) -> dict[str, float]:
        return {n: float(((theirs[n] - found[n]) * mask).abs().max()) for n in signals if n in theirs}

    ours = score(step["hinted"] or step["prompts"], own)
    lengths = sorted(set(map(len, step["completions"])))
    environment_tokens = sum(map(len, step["completions"])) - int(mask.sum())
    print(
        f"  {len(mask)} rollouts of {lengths[0]} to {lengths[-1]} tokens, "
        f"{environment_tokens} tokens of the environment. Largest differences:"
    )
    gaps = apart(ours)
    print(f"  signals (allowed {SIGNALS_AGREE:.0e}):", ", ".join(f"{n} {gap:.1e}" for n, gap in gaps.items()))
    fine = all(gap <= SIGNALS_AGREE for gap in gaps.values())
    if step["hinted"] is not None:  # the check itself can fail: a teacher without its hint differs
        gap = apart(score(step["prompts"], own), ["teacher_logprob"])["teacher_logprob"]
        print(f"  control, teacher without the hint: {gap:.1e}")
        fine &= gap > 1e-2
        if teacher is not student and any(not teacher[n].equal(student[n]) for n in teacher):
            gap = apart(score(step["hinted"], Teacher(model, "live")), ["teacher_logprob"])["teacher_logprob"]
            print(f"  control, teacher with the student's weights: {gap:.1e}")
            fine &= gap > 1e-3
    given: dict[str, Any] = {
        "action_mask": mask, "rewards": step["rewards"], "group_ids": step["group_ids"], "token_ids": step["token_ids"],
        "signals": {**theirs, **{n: ours[n] for n in SIGNALS if n in theirs}},
    }  # fmt: skip
    mine = credit(name, Rollouts(**given, advantages=step["group_advantages"])).advantages
    gap = float((mine - step["advantages"]).abs().max())
    groups, verls = (credit("grpo", Rollouts(**given, **more)).advantages
                     for more in ({}, {"advantages": step["group_advantages"]}))  # fmt: skip
    print(
        f"  token advantages (allowed {ADVANTAGES_AGREE:.0e}): {gap:.1e}; "
        f"group advantages, verl's (ε 1e-6) against ours (ε 1e-4): {float((groups - verls).abs().max()):.1e}"
    )
    return fine and gap <= ADVANTAGES_AGREE


def same_weights(one: Path, other: Path) -> bool:
    """After each step, as many workers or more."""
    fine = True
    for step in range(STEPS):
        contents = [torch.load(folder / f"step-{step}.pt", weights_only=True) for folder in (one, other)]
        sampled = [sorted(zip(c["prompts"], c["completions"], strict=True)) for c in contents]
        before, *after = loaded(one, step), loaded(one, step + 1), loaded(other, step + 1)
        moved, gap = (max(float((a[n] - b[n]).abs().max()) for n in a) for a, b in ((before, after[0]), after))
        same = sampled[0] == sampled[1]
        print(
            f"step {step}: {'the same' if same else 'OTHER'} rollouts with {one.name} and {other.name} workers; weights "
            f"move by {moved:.1e} and end {gap:.1e} apart (allowed {WEIGHTS_AGREE:.0e})"
        )
        fine &= same and gap <= WEIGHTS_AGREE < moved
    return fine


if __name__ == "__main__":
    sys.exit(main())
