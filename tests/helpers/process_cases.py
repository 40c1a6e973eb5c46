"""Runs `process_run.py` in one or two processes, and compares what they end with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import cpu_shards

Case = dict[str, Any]


def launch(
    command: list[str], strategy: str = "ddp", processes: int = 2, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """`command` (a script and its arguments) by torchrun, or by python alone for one process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    environment |= cpu_shards.STRATEGIES[strategy]
    source = str(HERE.parents[1] / "src")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, environment.get("PYTHONPATH")]))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    return subprocess.run(
        [sys.executable, *(torchrun if processes > 1 else []), *command],
        env=environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def run_cases(out: Path, strategy: str, cases: list[Case], timeout: float = 240) -> subprocess.CompletedProcess[str]:
    processes = 1 if strategy == "one" else 2
    return launch([str(HERE / "process_run.py"), str(out), strategy, json.dumps(cases)], strategy, processes, timeout)


def run_parts(out: Path, parts: dict[str, list[Case]]) -> subprocess.CompletedProcess[str]:
    """Cases by strategy, after one start of two processes; those of "one" in the first alone."""
    with ExitStack() as held:  # all at once, so that they differ
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in parts]
        ports = [one.getsockname()[1] for one in sockets]
    plan = [[strategy, port, cases] for (strategy, cases), port in zip(parts.items(), ports, strict=True)]
    return launch([str(HERE / "process_run.py"), str(out), json.dumps(plan)], timeout=390)


@dataclass(frozen=True)
class Difference:
    """Between two runs of a case."""

    weights: float
    teacher: float
    advantages: float
    same_rollouts: bool
    metrics: list[str]
    """Names of those that differ."""
    moved: float
    """How far the first run moved a weight at most: what a difference is to be compared with."""
    layout: str
    shared: bool
    """Whether the second run read shared prompts once."""

    @property
    def largest(self) -> float:
        return max(self.weights, self.teacher)


def difference(one: Path, other: Path, name: str, start: dict[str, torch.Tensor] | None = None) -> Difference:
    first, second = (torch.load(folder / f"{name}.pt") for folder in (one, other))
    assert first.keys() == second.keys()
    gaps = {key: float((first[key].float() - second[key].float()).abs().max()) for key in first}
    of_teacher = {key for key in gaps if key.startswith("teacher.")}
    saved, saved_other = (json.loads((folder / f"{name}.json").read_text()) for folder in (one, other))
    pairs = list(zip(saved["records"], saved_other["records"], strict=True))
    advantages = [abs(u - v) for a, b in pairs for u, v in zip(a["advantages"], b["advantages"], strict=False)]
    moved = [float((first[key] - start[key]).abs().max()) for key in first.keys() & (start or {}).keys() if start]
    return Difference(
        weights=max(gaps[key] for key in gaps.keys() - of_teacher),
        teacher=max((gaps[key] for key in of_teacher), default=0.0),
        advantages=max(advantages, default=0.0),
        same_rollouts=all(a["ids"] == b["ids"] and a["step"] == b["step"] for a, b in pairs),
        metrics=_differing(saved["log"], saved_other["log"]),
        moved=max(moved, default=0.0),
        layout=saved_other["layout"],
        shared=saved_other["shared"],
    )


def _differing(logs: list[dict], others: list[dict]) -> list[str]:
    return sorted(
        {
            key
            for a, b in zip(logs, others, strict=True)
            for key in a.keys() | b.keys()
            if "time" not in key
            and "per_second" not in key
            and not abs(a.get(key, 9e9) - b.get(key, -9e9)) <= 1e-4 * max(1.0, abs(a.get(key, 9e9)))
        }
    )
