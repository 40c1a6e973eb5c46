"""The benchmark of step costs runs, at toy size on a CPU: its numbers mean nothing here, its parts must add up."""

import json
from pathlib import Path

import pytest
from forked import ForkedScript

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_cost.py"


def run(out, *words):
    done = ForkedScript([SCRIPT, "--size", "tiny", "--device", "cpu", "--out", out, *words]).wait(240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text()), done.stdout


@pytest.mark.slow
def test_steps_are_measured_and_taken_apart(tmp_path):
    result, printed = run(tmp_path / "out.json", "--methods", "gear", "opsd", "--turns", "2", "--sampled", "1")
    tiny = result["sizes"]["tiny"]
    assert set(tiny["given"]) == {"grpo", "gear", "opsd"} and set(tiny["sampled"]) == {"grpo", "gear"}
    assert len(tiny["given"]["gear"]["ratios"]) == 2
    gear, grpo = tiny["detail"]["gear"], tiny["detail"]["grpo"]
    assert {"loss forward", "backward", "optimizer", "method"} <= set(grpo["parts_ms"])
    assert {"student and teacher forward", "head and divergence"} <= set(gear["parts_ms"]) - set(grpo["parts_ms"])
    assert gear["teacher_alone_ms"] > 0
    for detail in tiny["detail"].values():
        assert detail["rest_ms"] >= 0
        assert detail["ms"] == pytest.approx(sum(detail["parts_ms"].values()) + detail["rest_ms"])
    assert "over GRPO" in printed


@pytest.mark.slow
def test_sharded_weights_are_scored(tmp_path):
    result, printed = run(tmp_path / "out.json", "--sharded", "--shards", "2")
    for link in result["sharded"]["tiny"]["links"].values():
        assert link["ms"]["sharded"] > 0 and len(link["ratios"]) > 2
    assert "simulated" in printed
