"""A few GEAR steps of `gear train` on somebody else's environment."""

from __future__ import annotations

from gear_rl.cli.main import main
from gear_rl.records.record import read_record


def trained(folder, task, model, **task_options):
    """The rollouts of three steps. Their credit must differ within rollouts, or the test has shown nothing."""
    settings = {"train.steps": 3, "train.prompts": 2, "train.generations": 4, "train.eval_rows": 2, "train.record_every": 1}
    settings |= {f"task.{name}": value for name, value in task_options.items()}
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    run = folder / "run"
    assert main(["train", "--task", task, "--model", str(model), "--out", str(run), *given]) == 0
    rollouts = read_record(run / "rollouts.jsonl").rollouts
    assert len(rollouts) == 24 and all("reverse_kl" in line.signals for line in rollouts)
    levels = [{a for a, m in zip(line.advantages, line.action_mask, strict=True) if m} for line in rollouts]
    rewards = [line.reward for line in rollouts]
    most = max(map(len, levels))
    print(f"{task}: {len(rollouts)} rollouts, mean reward {sum(rewards) / len(rewards):.3f}, up to {most} levels of credit")
    assert most > 1
    return rollouts
