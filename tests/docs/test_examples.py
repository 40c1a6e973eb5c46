"""The examples run, and the five-line diff is one."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["grpo.py", "gear.py"])
def test_example_trains(tmp_path, name):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert ("credit/mean_abs_advantage" in done.stdout) == (name == "gear.py")


def test_from_grpo_to_gear_is_five_lines():
    code = {
        name: [line for line in (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines() if line.strip()]
        for name in ("grpo.py", "gear.py")
    }
    added = [d for d in difflib.ndiff(code["grpo.py"], code["gear.py"]) if d.startswith("+ ")]
    assert len(added) == 5, added
