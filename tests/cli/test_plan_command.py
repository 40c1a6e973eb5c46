"""`gear plan` as a person runs it: 80 columns, verdicts, exit codes."""

import json

import pytest
from bad_input import mistakes

from gear_rl.cli.main import main
from gear_rl.methods import METHODS


@pytest.mark.parametrize(
    "words",
    [[], ["--model", "Qwen3-32B", "--gpus", "8", "--credit", "all"], ["--model", "Qwen3-32B"],
     ["--model", "Qwen3-8B", "--turns", "32", "--completion", "65536", "--rollouts", "8", "--gpu", "L40S"]],
)  # fmt: skip
def test_it_fits_80_columns(words, capsys):
    main(["plan", *words])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out == "".join(line.rstrip() + "\n" for line in out.splitlines())


def test_what_fits_ends_with_0_and_what_does_not_with_1(capsys):
    assert main(["plan"]) == 0
    assert "fits     all of them" in capsys.readouterr().out
    assert main(["plan", "--model", "Qwen3-32B"]) == 1
    out = capsys.readouterr().out
    assert "nothing here fits" in out and "--gpus 4 --shard fsdp" in out


def test_only_the_teacher_does_not_fit(capsys):
    """GRPO fits, a teacher with weights of its own does not: that is said of the methods that have one."""
    words = ["--model", "Qwen3-8B", "--gpu-memory", "90", "--micro-batch", "1"]
    assert main(["plan", *words]) == 1
    out = capsys.readouterr().out
    assert "rlsd, opsd do not fit" in out and "--teacher live" in out


def test_json_has_every_method(capsys):
    assert main(["plan", "--credit", "all", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in result["methods"]] == list(METHODS)
    assert any("measured on an H200" in sentence for sentence in result["assumptions"])
    gear = next(m for m in result["methods"] if m["name"] == "gear")
    assert gear["over_grpo"] > gear["over_grpo_with_sampling"] > 1
    assert gear["memory_gib"]["peak"] < result["gpu"]["usable_gib"]


@mistakes("""
    --model Qwen9 -> unknown model
    --gpu TPU -> unknown GPU
    --credit gaer -> Did you mean 'gear'
    --rollouts 7 -> multiple of --group
    --gpus 0 -> --gpus
    --completion many -> --completion
    --shard fsdp -> at least two GPUs
""")
def test_bad_input_ends_with_2(words, says, capsys):
    assert main(["plan", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and says in captured.err and captured.err.count("\n") == 1
