"""A package in tests/plugin adds a method, a signal, a task and an engine by entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "plugin"


def gear(*words, folder):
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "gear_rl.cli.main", *map(str, words)],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip


def test_a_package_adds_a_method_a_signal_a_task_and_an_engine(tmp_path):
    done = gear(
        "train", "--credit", "late_credit", "--task", "count_up", "--set", "credit.tilt=0.5", "--set", "train.engine=plain",
        "--set", "train.steps=3", "--set", "train.prompts=2", "--set", "train.eval_rows=8", "--set", "train.record_every=1",
        "--out", tmp_path / "run", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    assert len(record) == 1 + 3 * 2 * 8
    for rollout in record[1:]:
        late = rollout["signals"]["lateness"]
        assert late[0] == 0 and (len(late) == 1 or late[-1] == 1) and late == sorted(late)
        assert rollout["weights"] == sorted(rollout["weights"])
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    assert "late_credit" in gear("methods", folder=tmp_path).stdout
    assert "count_up" in gear("tasks", folder=tmp_path).stdout


def test_our_own_methods_run_on_another_engine(tmp_path):
    done = gear(
        "train", "--set", "train.engine=plain", "--set", "train.steps=2", "--set", "train.eval_rows=4",
        "--out", tmp_path / "run", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(m["signals/reverse_kl"] > 0 for m in metrics)


def test_an_unknown_engine_is_named(tmp_path):
    done = gear("train", "--set", "train.engine=plane", folder=tmp_path)
    assert done.returncode == 2 and "unknown engine 'plane'. Did you mean 'plain'" in done.stderr
    assert not (tmp_path / "runs").exists()
