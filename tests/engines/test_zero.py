"""DeepSpeed ZeRO-2 and ZeRO-3 in two processes: as one process, from a checkpoint, and by `gear train`. `make processes` runs
these in an environment with deepspeed, which the others do not need."""

from __future__ import annotations

import inspect
import json

import pytest
from process_cases import HERE, difference, launch, run_cases
from safetensors.torch import load_file

pytest.importorskip("deepspeed", reason="deepspeed is not installed: make processes")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TOLERANCE = 1e-5
STEPS = {"steps": 2}
CASES = {
    "zero2": [
        {"name": "gear", "credit": "gear", "teacher": "ema", **STEPS},
        {"name": "siblings", "credit": "sdpo", "teacher": "sync", "accumulate": 2, **STEPS},
    ],
    "zero3": [
        {"name": "live", "credit": "gear", **STEPS},
        {"name": "sync", "credit": "rlsd", "teacher": "sync", "steps": 3},
        {"name": "ema", "credit": "sdpo", "teacher": "ema", "accumulate": 2, **STEPS},
        {"name": "base", "credit": "opsd", "teacher": "base", **STEPS},
        {"name": "unequal_passes", "credit": "gear", "teacher": "base", "budgets": [8192, 150], "uneven": True, **STEPS},
    ],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for strategy, cases in CASES.items():
        for kind in ("one", strategy):
            result = run_cases(out / f"{kind}-{strategy}", kind, cases, timeout=600)
            assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return out


@pytest.mark.parametrize("strategy, case", [(s, c["name"]) for s, cases in CASES.items() for c in cases])
def test_two_processes_end_where_one_does(runs, strategy, case):
    gap = difference(runs / f"one-{strategy}", runs / f"{strategy}-{strategy}", case)
    assert gap.layout == {"zero2": "plain", "zero3": "ZeRO-3"}[strategy]
    assert gap.same_rollouts
    assert gap.largest < TOLERANCE
    print(f"{strategy} {case}: {gap.largest:.1e}")


def test_contract_of_what_is_used_of_deepspeed():
    """Private parts: what a partition is, when it is gathered, and the hook at the root that speaks to other processes."""
    from deepspeed.runtime.zero import parameter_offload, partition_parameters

    source = inspect.getsource(partition_parameters)
    for name in ("ds_id", "ds_tensor", "ds_numel", "ds_shape", "ds_status"):
        assert f"param.{name} = " in source, name
    assert {"AVAILABLE", "NOT_AVAILABLE"} <= set(partition_parameters.ZeroParamStatus.__members__)
    assert hasattr(partition_parameters, "GatheredParameters")
    hooks = inspect.getsource(parameter_offload.DeepSpeedZeRoOffload.setup_zero_stage3_hooks)
    assert "self.fwd_pre_hook = self.module.register_forward_pre_hook(" in hooks


# ---------------------------------------------------------------------------------------------- gear train
SMALL = dict(steps=4, prompts=3, generations=4, eval_rows=8, checkpoint_every=2, record_every=1)
GEAR = ["--credit", "sdpo", "--set", "train.device=cpu", "--set", "train.teacher=ema"]
GEAR += [word for name, value in SMALL.items() for word in ("--set", f"train.{name}={value}")]


def gear_train(*arguments):
    return launch([str(HERE / "gear_processes.py"), "train", *map(str, arguments)], "zero3_by_accelerate", 2, timeout=600)


def test_gear_train_is_killed_and_resumes_exactly(tmp_path, monkeypatch):
    whole = gear_train(*GEAR, "--out", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr[-4000:]
    monkeypatch.setenv("DIE", "1:3")
    killed = gear_train(*GEAR, "--out", tmp_path / "killed")
    assert killed.returncode != 0 and "gear train --resume" in killed.stderr
    monkeypatch.delenv("DIE")
    resumed = gear_train("--resume", tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr[-4000:]
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "killed"))
    assert one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)
    records = [(tmp_path / name / "rollouts.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    assert records[0] == records[1] and len(records[0]) == 1 + SMALL["steps"] * 12
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
