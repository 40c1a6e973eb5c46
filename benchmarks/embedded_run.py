"""One run of `gear train` in a process of its own, for scripts that read its folder afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def train(run: Path, method: str, seed: int, settings: dict[str, Any]) -> None:
    """Into the folder `run`, silently; raises if it fails. `settings`: as `--set` names them."""
    command = [sys.executable, "-m", "gear_rl", "train", "--credit", method, "--seed", str(seed), "--out", str(run)]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
