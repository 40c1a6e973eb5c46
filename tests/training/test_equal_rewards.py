"""A run in which no group's rewards differed says so at its end, and no other run does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gear_rl.cli.main import main
from gear_rl.training.config import TrainConfig, TrainOptions
from gear_rl.training.equal_rewards import note_on_equal_rewards
from gear_rl.training.run_folder import RunFolder

SAID = "at every step (4 of 4) the rollouts of each prompt had equal rewards"
ALIKE = {"frac_reward_zero_std": 1.0, "credit/mean_abs_advantage": 0.0}
SETTINGS = {
    "task.steps": 4,
    "train.steps": 4,
    "train.checkpoint_every": 2,
    "train.prompts": 2,
    "train.generations": 2,
    "train.eval_rows": 4,
    "train.temperature": 1e-4,  # all rollouts of a prompt are the same
}


def train(out: Path, credit: str) -> None:
    words = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    assert main(["train", "--credit", credit, "--out", str(out), *words]) == 0


def test_a_run_without_a_gradient_says_so_and_so_does_its_resume(tmp_path, capsys):
    run = tmp_path / "run"
    train(run, "gear")
    last = capsys.readouterr().out.splitlines()[-1]
    assert SAID in last and "true success before training" in last and "train.generations, now 2" in last
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row["grad_norm"] == 0 for row in rows)  # it is true

    assert main(["train", "--resume", str(run)]) == 0  # finished already
    assert SAID in capsys.readouterr().out
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    before = json.loads((run / "evaluation.json").read_text())["before"]
    (run / "evaluation.json").write_text(json.dumps({"before": before}))
    assert main(["train", "--resume", str(run)]) == 0
    said = capsys.readouterr().out
    assert "trained 2 steps" in said and SAID in said.splitlines()[-1]


def test_a_method_that_learns_without_outcomes_does_not_say_it(tmp_path, capsys):
    train(tmp_path / "run", "opsd")
    assert "equal rewards" not in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["frac_reward_zero_std"] for row in rows] == [1.0] * 4 and any(row["grad_norm"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("credit", "rows", "says"),
    [
        ("grpo", [ALIKE] * 4, True),
        ("grpo", [{**ALIKE, "frac_reward_zero_std": 0.5}, *[ALIKE] * 3], False),  # before a resume, say
        ("mt_grpo", [*[ALIKE] * 3, {**ALIKE, "credit/mean_abs_advantage": 0.2}], False),  # it learned from rewards of turns
        ("grpo", [ALIKE] * 3, False),  # the log was lost, and began again
        ("grpo", [{"loss": 0.0}] * 4, False),  # of an engine that logs neither
        ("grpo", [1, 2, 3, 4], False),
        ("sdpg", [ALIKE] * 4, False),
        ("sdpo", [ALIKE] * 4, False),
        ("opd", [ALIKE] * 4, False),
    ],
)
def test_it_is_said_of_all_steps_or_not_at_all(tmp_path, credit, rows, says):
    folder, config = RunFolder(tmp_path), TrainConfig(credit=credit, train=TrainOptions(steps=4))
    assert note_on_equal_rewards(config, folder) is None  # no log
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = note_on_equal_rewards(config, folder)
    assert (said is not None and SAID in said and "\n" not in said) if says else said is None
