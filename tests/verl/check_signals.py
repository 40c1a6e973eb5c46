"""The same rollouts and group advantages through verl's workers and through our own scorer give the same signals and credit.

    python tests/verl/check_signals.py [--workers 2] [--packed] [--strategy fsdp] [--credit rlsd]

Takes one step on a CPU-only Ray cluster, by verl's own entry point, then scores the rollouts of that step in this process.
Needs verl's environment, which `make verl-smoke` makes.
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

SIGNALS_AGREE, ADVANTAGES_AGREE = 1e-5, 3e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--packed", action="store_true", help="verl without padding (use_remove_padding)")
    parser.add_argument("--strategy", default="fsdp2")
    parser.add_argument("--credit", default="gear")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_mixed_data(folder)
        more = [f"+gear.credit={args.credit}", f"actor_rollout_ref.actor.strategy={args.strategy}"]
        if args.packed:
            more.append("actor_rollout_ref.model.use_remove_padding=True")
        environ = {**environment(), "GEAR_TEST_EXACT": scratch}
        environ["VERL_USE_EXTERNAL_MODULES"] += ",verl_exact_record"
        line = command(folder, *more, workers=args.workers, steps=1, jobs=6)
        run = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=900, cwd=folder)
        if run.returncode:
            print(run.stdout[-6000:], run.stderr[-6000:], file=sys.stderr)
            return run.returncode
        return compare(torch.load(folder / "step-0.pt", weights_only=True), args.credit)


def compare(step: dict[str, Any], name: str) -> int:
    from gear_rl import Rollouts, credit
    from gear_rl.models import load_model
    from gear_rl.scoring.scorer import SIGNALS, Scorer
    from gear_rl.scoring.teacher import Teacher

    model, _ = load_model(str(MODEL), "cpu")
    mask, theirs = step["action_mask"], step["signals"]
    hinted = step["hinted"] or step["prompts"]
    ours = Scorer(model).score(step["prompts"], hinted, step["completions"], mask, Teacher(model, "live"))
    environment_tokens = sum(map(len, step["completions"])) - int(mask.sum())
    lengths = sorted(set(map(len, step["completions"])))
    print(f"{len(mask)} rollouts of {lengths[0]} to {lengths[-1]} tokens")
    print(f"{int(mask.sum())} sampled tokens, {environment_tokens} tokens of the environment")
    apart = {n: float(((theirs[n] - ours[n]) * mask).abs().max()) for n in SIGNALS if n in theirs}
    for signal, gap in apart.items():
        print(f"{signal:16} at most {gap:.1e} apart (allowed {SIGNALS_AGREE:.0e})")
    if step["hinted"] is not None:  # the check itself can fail: a teacher without its hint differs
        unhinted = Scorer(model).score(
            step["prompts"], step["prompts"], step["completions"], mask, Teacher(model, "live")
        )
        gap = float(((theirs["teacher_logprob"] - unhinted["teacher_logprob"]) * mask).abs().max())
        print(f"control: without the hint the teacher is {gap:.1e} apart")
        apart["control"] = 0.0 if gap > 1e-2 else float("inf")
    given: dict[str, Any] = {
        "action_mask": mask, "rewards": step["rewards"], "group_ids": step["group_ids"], "token_ids": step["token_ids"],
        "signals": {**theirs, **{n: ours[n] for n in SIGNALS if n in theirs}},
    }  # fmt: skip
    mine = credit(name, Rollouts(**given, advantages=step["group_advantages"])).advantages
    gap = float((mine - step["advantages"]).abs().max())
    print(f"token advantages at most {gap:.1e} apart (allowed {ADVANTAGES_AGREE:.0e})")
    groups = credit("grpo", Rollouts(**given)).advantages
    verls = credit("grpo", Rollouts(**given, advantages=step["group_advantages"])).advantages
    print(f"group advantages, verl's (ε 1e-6) against ours (ε 1e-4): {float((groups - verls).abs().max()):.1e} apart")
    fine = all(gap <= SIGNALS_AGREE for gap in apart.values()) and gap <= ADVANTAGES_AGREE
    print("agree" if fine else "DISAGREE")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
