"""A package in tests/plugin adds a method, a signal, a task and an engine by entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "plugin"
SHORT = ["--set", "train.engine=plain", "--set", "train.prompts=2"]
COMMANDS = {
    "theirs": [
        "train", "--credit", "late_credit", "--task", "count_up", "--set", "credit.tilt=0.5", *SHORT, "--set", "train.steps=3",
        "--set", "train.eval_rows=8", "--set", "train.record_every=1", "--out", "theirs",
    ],
    "ours": ["train", *SHORT, "--set", "train.steps=2", "--set", "train.eval_rows=4", "--out", "ours"],
    "methods": ["methods"],
    "tasks": ["tasks"],
    "unknown": ["train", "--set", "train.engine=plane"],
}  # fmt: skip
CODE = """
import contextlib, io, json, sys
from gear_rl.cli.main import main
ended = {}
for name, words in json.loads(sys.argv[1]).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    ended[name] = code, out.getvalue(), err.getvalue()
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder, and of each command its code, output and errors: in one fresh interpreter that finds the package."""
    folder = tmp_path_factory.mktemp("plugin")
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(COMMANDS)],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_a_package_adds_a_method_a_signal_a_task_and_an_engine(ended):
    folder, said = ended
    assert said["theirs"][0] == 0, said["theirs"]
    record = [json.loads(line) for line in (folder / "theirs" / "rollouts.jsonl").read_text().splitlines()]
    assert len(record) == 1 + 3 * 2 * 8
    for rollout in record[1:]:
        late = rollout["signals"]["lateness"]
        assert late[0] == 0 and (len(late) == 1 or late[-1] == 1) and late == sorted(late)
        assert rollout["weights"] == sorted(rollout["weights"])
    assert len((folder / "theirs" / "metrics.jsonl").read_text().splitlines()) == 3
    assert "late_credit" in said["methods"][1] and "count_up" in said["tasks"][1]


def test_our_own_methods_run_on_another_engine(ended):
    folder, said = ended
    assert said["ours"][0] == 0, said["ours"]
    metrics = [json.loads(line) for line in (folder / "ours" / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == 2 and all(m["signals/reverse_kl"] > 0 for m in metrics)


def test_an_unknown_engine_is_named(ended):
    folder, said = ended
    code, _, error = said["unknown"]
    assert code == 2 and "unknown engine 'plane'. Did you mean 'plain'" in error
    assert not (folder / "runs").exists()
