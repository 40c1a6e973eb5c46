"""verl from end to end on a CPU-only Ray cluster, by verl's own entry point: `make verl-smoke`.

    python tests/verl/smoke.py [--steps 100] [--workers 2] [--out FOLDER]

1. GEAR: killed (SIGKILL of every process) after its first checkpoint, resumed by the same command, trained to the end. Every
   step is recorded once, steps done again after the kill sample the same tokens, and from 100 steps on mean reward rises: the
   95 % interval of its linear trend lies above 0.
2. GRPO for two steps.
3. What a user can get wrong: one line, exit code 2, no traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2] / "src")]

import psutil  # noqa: E402
from verl_command import command, environment, write_data  # noqa: E402

from gear_rl.records.record import RecordedRollout, open_record  # noqa: E402

MARK = "GEAR_SMOKE_RUN"
PROBLEMS, EACH = 8, 8
"""Problems of a step, and rollouts of each. With 4 of 4, chance hides the rise of a hundred steps."""
ROLLOUTS = PROBLEMS * EACH
RISING_FROM, SLOWEST = 100, 900
"""Steps from which reward must rise; seconds that a run may go without a new step."""


class Run:
    """A training command and all processes that it starts, known by a mark in their environment."""

    def __init__(self, folder: Path, *overrides: str, steps: int, workers: int) -> None:
        self.record, self.log = folder / "rollouts.jsonl", folder / "log.txt"
        self.mark = uuid.uuid4().hex
        sizes = dict(steps=steps, workers=workers, problems=PROBLEMS, rollouts=EACH)
        line = command(folder, f"+gear.record={self.record}", *overrides, **sizes)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                line, env={**environment(), MARK: self.mark}, stdout=log, stderr=log, cwd=folder
            )

    def wait_for(self, step: int) -> None:
        """Until the record holds a rollout of `step`."""
        seen, since = -1, time.time()
        while seen < step:
            time.sleep(1)
            steps = rewards_by_step(self.record)
            if steps and max(steps) > seen:
                seen, since = max(steps), time.time()
            if self.process.poll() is not None or time.time() - since > SLOWEST:
                raise SystemExit(f"the run ended, or hangs, before step {step}:\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL to everything, as a machine that loses power."""
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(MARK) == self.mark:
                    process.kill()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.process.wait()

    def finish(self) -> None:
        try:
            if self.process.wait() != 0:
                raise SystemExit(f"exit code {self.process.returncode}:\n{self.tail()}")
        finally:
            self.kill()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]


def recorded(path: Path) -> dict[int, list[RecordedRollout]]:
    """Step → its rollouts. Whole lines only, since the run may be writing."""
    steps: dict[int, list[RecordedRollout]] = defaultdict(list)
    for rollout in open_record(path)[1]:
        steps[rollout.step].append(rollout)
    return steps


def rewards_by_step(path: Path) -> dict[int, list[float]]:
    steps: dict[int, list[float]] = defaultdict(list)
    if path.exists():
        for line in path.read_bytes().split(b"\n")[1:-1]:
            content = json.loads(line)
            steps[content["step"]].append(content["reward"])
    return steps


def sampled(rollouts: list[RecordedRollout]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((rollout.prompt, tuple(rollout.token_ids)) for rollout in rollouts)


def gear(folder: Path, steps: int, workers: int) -> None:
    every = max(1, min(20, steps // 3))
    options = (
        "+gear.credit=gear",
        "+gear.options.alpha=2",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine",
        "actor_rollout_ref.actor.optim.betas=[0.9,0.95]",
        f"trainer.save_freq={every}",
        "trainer.max_actor_ckpt_to_keep=1",
    )
    write_data(folder)
    first = Run(folder, *options, steps=steps, workers=workers)
    first.wait_for(every + 1)
    first.kill()
    text = first.record.read_bytes()
    before = folder / "before_the_kill.jsonl"
    before.write_bytes(text[: text.rindex(b"\n") + 1])
    second = Run(folder, *options, steps=steps, workers=workers)
    second.finish()
    lost, whole = recorded(before), recorded(first.record)
    assert sorted(whole) == list(range(steps)), f"steps on record: {sorted(whole)}"
    assert all(len(rollouts) == ROLLOUTS for rollouts in whole.values()), "a step was recorded twice, or in part"
    again = [step for step in sorted(lost) if step >= every and len(lost[step]) == ROLLOUTS]
    assert again, "the kill came before a step after the checkpoint"
    same = [step for step in again if sampled(lost[step]) == sampled(whole[step])]
    print(
        f"GEAR: {steps} steps, killed at step {max(lost)}, resumed from {every}; done again and the same: steps {same}"
    )
    assert same[:1] == [every], f"step {every} was sampled from other weights after the kill than before"
    means = [sum(r.reward for r in whole[step]) / ROLLOUTS for step in range(steps)]
    third = max(1, steps // 3)
    early, late = sum(means[:third]) / third, sum(means[-third:]) / third
    rise, margin = trend(means)
    print(
        f"GEAR: mean reward {early:.3f} in the first third of the steps, {late:.3f} in the last; linear trend over the run "
        f"{rise:+.3f} ± {margin:.3f} (95 %)"
    )
    assert steps < RISING_FROM or rise > margin, "mean reward did not rise"


def trend(means: list[float]) -> tuple[float, float]:
    """What a straight line through the steps' means rises from the first to the last, and half its 95 % interval."""
    n, middle = len(means), (len(means) - 1) / 2
    level, spread = sum(means) / n, sum((i - middle) ** 2 for i in range(n))
    slope = sum((i - middle) * mean for i, mean in enumerate(means)) / spread
    left = sum((mean - level - slope * (i - middle)) ** 2 for i, mean in enumerate(means)) / (n - 2)
    return slope * (n - 1), 1.96 * (left / spread) ** 0.5 * (n - 1)


def grpo(folder: Path, workers: int) -> None:
    write_data(folder)
    run = Run(folder, "+gear.credit=grpo", steps=2, workers=workers)
    run.finish()
    for rollouts in recorded(run.record).values():
        for rollout in rollouts:
            acted = [a for a, m in zip(rollout.advantages, rollout.action_mask, strict=True) if m]
            assert max(acted) - min(acted) < 1e-6, "GRPO gives all tokens of a rollout the same advantage"
    print("GRPO: 2 steps")


def bad_input(folder: Path) -> None:
    write_data(folder)
    for what, overrides, said in (
        ("unknown option", ["+gear.credti=gear"], "Did you mean 'credit'"),
        ("unknown method", ["+gear.credit=gaer"], "Did you mean 'gear'"),
        ("unsupported method", ["+gear.credit=shear"], "needs the signal 'span_distance'"),
        ("no hint column", ["+gear.credit=gear", "+gear.hint=no_such"], "has no column 'no_such'"),
        ("asynchronous mode", ["+gear.credit=gear", "trainer.v1.trainer_mode=colocate_async"], "Asynchronous modes"),
        ("dead cluster", ["+gear.credit=gear", "+ray_kwargs.ray_init.address=127.0.0.1:1"], "no Ray cluster answers"),
    ):
        line = command(folder, *overrides, module="gear_rl.engines.verl")
        run = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=300)
        complaints = [row for row in run.stderr.splitlines() if row.startswith("error: ")]
        assert run.returncode == 2 and said in " ".join(complaints) and "Traceback" not in run.stderr, (
            f"{what}: {run.returncode}\n{run.stderr[-3000:]}"
        )
        print(f"{what}: {complaints[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="keep data, records, logs and checkpoints here")
    parser.add_argument("--only", choices=("gear", "grpo", "bad_input"))
    args = parser.parse_args()
    if args.steps < 4:
        parser.error("--steps: at least 4, to be killed and resumed.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.out or Path(scratch)).resolve()
        for name, part in (
            ("bad_input", lambda f: bad_input(f)),
            ("grpo", lambda f: grpo(f, args.workers)),
            ("gear", lambda f: gear(f, args.steps, args.workers)),
        ):
            if args.only in (None, name):
                start = time.time()
                part(folder / name)
                print(f"{name}: {time.time() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
