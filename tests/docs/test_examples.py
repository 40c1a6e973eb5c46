"""The examples run, and the five-line diff is one."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from forked import ForkedScript

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["grpo.py", "gear.py"])
def test_example_trains(tmp_path, name):
    done = ForkedScript([EXAMPLES / name], lambda: os.chdir(tmp_path)).wait()
    assert done.returncode == 0, done.stderr[-3000:]
    assert ("credit/mean_abs_advantage" in done.stdout) == (name == "gear.py")


def test_from_grpo_to_gear_is_five_lines():
    code = {
        name: [line for line in (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines() if line.strip()]
        for name in ("grpo.py", "gear.py")
    }
    added = [d for d in difflib.ndiff(code["grpo.py"], code["gear.py"]) if d.startswith("+ ")]
    assert len(added) == 5, added
