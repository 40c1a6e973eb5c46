"""`gear train --credit vine_ppo` and `spo`: values are measured with the policy of the step, at turns or inside them."""

from __future__ import annotations

import json
import math

import pytest

from gear_rl.cli.main import main

SMALL = ["--set", "task.steps=4", "--set", "train.prompts=2", "--set", "train.generations=2"]
SMALL += ["--set", "train.value_continuations=3", "--set", "train.eval_rows=2", "--set", "train.record_every=1"]


def rollouts(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()][1:]


def test_values_are_means_of_continuations_and_advantages_add_up(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "--credit", "vine_ppo", *SMALL, "--set", "train.steps=2", "--out", str(out)]) == 0
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


def test_spo_measures_where_its_segments_begin_inside_turns_too(tmp_path):
    out = tmp_path / "run"
    options = ["--credit", "spo", "--set", "credit.interval=1", "--set", "train.steps=1"]
    assert main(["train", *options, *SMALL, "--out", str(out)]) == 0
    inside = 0
    for one in rollouts(out):
        mask, values, logprob = one["action_mask"], one["signals"]["prefix_value"], one["signals"]["student_logprob"]
        starts = [i for i, mine in enumerate(mask) if mine and math.exp(logprob[i]) < 0.9]
        inside += sum(mask[i - 1] for i in starts if i)  # not the first token of a turn
        assert all(3 * values[i] == pytest.approx(round(3 * values[i]), abs=1e-4) for i in starts)
        assert sum(one["advantages"][i] for i in starts) == pytest.approx(one["reward"] - values[starts[0]], abs=1e-4)
        assert not any(a for i, a in enumerate(one["advantages"]) if i not in starts)
    assert inside


@pytest.mark.parametrize("credit", ["vine_ppo", "spo", "prompted_judge"])
def test_values_are_measured_in_one_process_by_our_own_sampler(credit, capsys):
    assert main(["train", "--credit", credit, *SMALL, "--set", "train.sampler=vllm"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("vllm" in said or "train.sampler=own" in said)
