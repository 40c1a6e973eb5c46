"""`gear train --credit vine_ppo`: values are measured with the policy of the step, the same again after a resume."""

from __future__ import annotations

import json

import pytest

from gear_rl.cli.main import main

SMALL = ["--credit", "vine_ppo", "--set", "task.steps=4", "--set", "train.prompts=2", "--set", "train.generations=2"]
SMALL += ["--set", "train.value_continuations=3", "--set", "train.eval_rows=2", "--set", "train.record_every=1"]


def rollouts(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()][1:]


def test_values_are_means_of_continuations_and_advantages_add_up(tmp_path):
    out = tmp_path / "run"
    assert main(["train", *SMALL, "--set", "train.steps=2", "--out", str(out)]) == 0
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= step["signals/values"] <= 1 for step in metrics)
    found = 0
    for one in rollouts(out):
        mask, values = one["action_mask"], one["signals"]["values"]
        starts = [i for i, mine in enumerate(mask) if mine and (i == 0 or not mask[i - 1])]
        assert len(starts) == 5 and all(3 * values[i] == pytest.approx(round(3 * values[i]), abs=1e-4) for i in starts)
        total = sum(one["advantages"][i] for i in starts)
        assert total == pytest.approx(one["reward"] - values[0], abs=1e-4)
        found += len({round(values[i], 3) for i in starts}) > 1
    assert found, "values that never change prove nothing"


def test_values_are_measured_in_one_process_by_our_own_sampler(capsys):
    assert main(["train", *SMALL, "--set", "train.sampler=vllm"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("vllm" in said or "train.sampler=own" in said)
