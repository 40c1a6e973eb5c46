"""`gear train` as a user runs it: a real process, killed and resumed, and everything that must be refused."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from bad_input import mistakes
from forked import Forked
from out_of_memory import limit_batch
from safetensors.torch import load_file

from gear_rl.cli.main import main
from gear_rl.training import run as training

GEAR = [sys.executable, "-m", "gear_rl.cli.main"]


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


SMALL = settings("task.steps=4", "train.prompts=2", "train.generations=4", "train.eval_rows=4")
SHORT = settings("train.steps=8", "train.checkpoint_every=2", "train.record_every=2")
EVERYTHING = [*SMALL, *SHORT, *settings("train.teacher=ema", "train.kl=0.02")]  # whatever a checkpoint must bring back


def gear(*words: str, **kwargs):
    return subprocess.run([*GEAR, *words], capture_output=True, text=True, timeout=200, **kwargs)


def steps_done(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def learned(run: Path) -> list[dict]:
    """Metrics without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "time" not in k} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run = tmp_path_factory.mktemp("reference") / "run"
    done = gear("train", *EVERYTHING, "--out", str(run))
    assert done.returncode == 0, done.stderr
    return run, done


def test_a_run_leaves_everything_behind(uninterrupted):
    run, done = uninterrupted
    assert "before → after" in done.stdout and "true success" in done.stdout and str(run) in done.stdout
    assert "equal rewards" not in done.stdout
    config = json.loads((run / "config.json").read_text())
    assert (
        config["credit"] == {"name": "gear"}
        and config["task"] == {"name": "workshop", "steps": 4}
        and config["seed"] == 0
    )
    assert json.loads((run / "versions.json").read_text())["torch"]
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert {"sampled", "greedy"} == evaluation["before"].keys() == evaluation["after"].keys()
    assert [m["step"] for m in learned(run)] == list(range(1, 9))
    header, *lines = [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]
    assert header["schema"] == "gear_rl.rollouts" and len(lines) == 4 * 8
    assert load_file(run / "model" / "model.safetensors")


def killed_in_a_checkpoint() -> None:
    """A fault: SIGKILL when the optimizer's state is half written."""
    save = torch.save

    def half(state, target, *more, **given):
        save(state, target, *more, **given)
        if Path(str(target)).name == "optimizer.pt":
            os.truncate(target, os.path.getsize(target) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = half


@pytest.mark.slow
def test_killed_at_random_points_and_resumed_exactly(uninterrupted, tmp_path):
    """SIGKILL at a random step, and in the middle of writing a checkpoint. (`make chaos` kills at every file event.)"""
    reference, _ = uninterrupted
    run = tmp_path / "run"
    kill_at = random.Random(time.time_ns()).randrange(1, 6)
    print("killed at", kill_at)
    killed = Forked(["train", *EVERYTHING, "--out", str(run)])
    while killed.running() and steps_done(run) < kill_at:
        time.sleep(0.01)
    killed.kill()
    ended = killed.wait()
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    torn = Forked(["train", "--resume", str(run)], killed_in_a_checkpoint).wait()
    assert torn.returncode == -signal.SIGKILL, torn.stderr
    assert any(not (checkpoint / "complete.json").exists() for checkpoint in run.glob("checkpoints/checkpoint-*"))
    finished = gear("train", "--resume", str(run))
    assert finished.returncode == 0, finished.stderr
    assert "missing keys" not in finished.stderr  # transformers warns of a tied head, which nobody has to fix
    ours, theirs = load_file(run / "model" / "model.safetensors"), load_file(reference / "model" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].equal(theirs[name]), f"{name} differs after being killed at {kill_at}"
    assert learned(run) == learned(reference)
    assert (run / "rollouts.jsonl").read_text() == (reference / "rollouts.jsonl").read_text()
    assert json.loads((run / "evaluation.json").read_text()) == json.loads((reference / "evaluation.json").read_text())


def test_a_start_that_fails_leaves_no_folder(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", *SMALL, "--model", str(tmp_path / "nothing"), "--out", str(out)]) == 2
    assert "no model could be loaded" in capsys.readouterr().err and not out.exists()


def test_interrupt_saves_and_says_how_to_go_on(tmp_path):
    run = tmp_path / "run"
    training = Forked(["train", *SMALL, "--set", "train.steps=5000", "--credit", "grpo", "--out", str(run)])
    while steps_done(run) < 3 and training.running():
        time.sleep(0.02)
    training.signal(signal.SIGINT)
    ended = training.wait(60)
    assert ended.returncode == 130 and f"gear train --resume {run}" in ended.stdout, ended
    assert len(list(run.glob("checkpoints/checkpoint-*/complete.json"))) == 1
    assert not (run / "model").exists()


def test_a_damaged_checkpoint_is_stepped_over(uninterrupted, tmp_path):
    from gear_rl.training.run_folder import RunFolder

    reference, _ = uninterrupted
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", str(reference), str(run)], check=True)
    newest, older = sorted(run.glob("checkpoints/checkpoint-*"), key=lambda p: int(p.name.split("-")[1]), reverse=True)
    with open(newest / "optimizer.pt", "r+b") as file:
        file.truncate(100)
    folder = RunFolder(run)
    assert folder.last_complete_checkpoint() == older and newest.exists()
    folder.cut_after(int(older.name.split("-")[1]))
    assert older.exists() and not newest.exists()


@mistakes("""
    --credit geer -> Did you mean 'gear'
    --task workshp -> Did you mean 'workshop'
    --set credit.alfa=1 -> Did you mean 'alpha'
    --set credit.alpha=-1 -> alpha=-1
    --set train.generations=1 -> a group of one has no baseline
    --set train.learning_rate=0 -> learning_rate
    --set train.device=foo -> device 'foo'
    --set train.device=meta:x -> device 'meta:x'
    --set train.report_to=tensorbord -> Did you mean 'tensorboard'
    --set train.kl=-1 -> train.kl=-1: must be a number, at least 0
    --set train.mix_steps=-1 -> train.mix_steps=-1: must be a whole number, at least 0
    --seed 4294967296 -> --seed: '4294967296' must be a whole number, at least 0 and at most 4294967295
    --credit GEAR -> Did you mean 'gear'
    --task . -> is a folder, and no .jsonl file
    --model no/such -> there is no such folder
    --set train.steps -> write it as key=value, such as train.steps=4
    --set train.mix_steps=abc -> train.mix_steps='abc'
    --set train.teacher_every=0 -> train.teacher_every=0
    --set train.teacher_decay=7 -> above 0 and at most 1
    --set train.teacher=emma -> Did you mean 'ema'
    --set train.loss_type=vespa -> Did you mean 'vespo'
    --set task.hint_errors=2 -> at least 0 and at most 1
    --set trian.steps=2 -> Did you mean 'train'
    --credit wrong_hint --set train.prompts=1 -> two prompts
    --seed -1 -> at least 0
    --resume nowhere -> not a run folder
    --resume nowhere --seed 1 -> leave out --seed
    --model nowhere -> no model could be loaded
    --config nowhere.toml -> no config file
""")
def test_bad_input_is_refused_with_exit_code_2(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    if "--model" in words:
        done = Forked(["train", *words]).wait()  # what libraries print is not captured otherwise
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
        return
    assert says in complain(capsys, *words)
    assert not (tmp_path / "runs").exists(), "nothing may be left behind"


def complain(capsys, *words: str) -> str:
    assert main(["train", *words]) == 2
    return capsys.readouterr().err


def test_folders_that_cannot_be_used(tmp_path, capsys, uninterrupted):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    assert "exists" in complain(capsys, "--out", str(taken)) and (taken / "mine.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"format": 99}')
    assert "run format 99" in complain(capsys, "--resume", str(other))
    (other / "config.json").write_text('{"format": 1, "task"')
    assert "damaged" in complain(capsys, "--resume", str(other))
    if os.geteuid() != 0:  # root may write anywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        assert "permission" in complain(capsys, "--out", str(closed / "run"))
    file = tmp_path / "file"
    file.write_text("")
    assert "not a directory" in complain(capsys, "--out", str(file / "run"))


def test_a_model_without_chat_template(tmp_path, capsys, model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    model.save_pretrained(tmp_path / "model")
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "model")
    assert "chat template" in complain(
        capsys, "--model", str(tmp_path / "model"), "--out", str(tmp_path / "run"), *SMALL
    )


def test_damaged_weights(tmp_path, capsys, model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with open(tmp_path / "model" / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    assert "damaged" in complain(capsys, "--model", str(tmp_path / "model"), "--out", str(tmp_path / "run"), *SMALL)


@pytest.mark.parametrize("bad", [{2}, set(range(1, 100))], ids=["once", "always"])
def test_a_step_without_a_finite_gradient_is_skipped(tmp_path, monkeypatch, capsys, bad):
    load, steps = training.load_model, itertools.count(1)

    def spoiled(path, device):
        model, tokenizer = load(path, device)
        model.model.norm.weight.register_hook(lambda gradient: gradient * (math.nan if next(steps) in bad else 1.0))
        return model, tokenizer

    monkeypatch.setattr(training, "load_model", spoiled)
    run = tmp_path / "run"
    code = main(["train", *SMALL, "--set", "train.steps=8", "--out", str(run)])
    said = capsys.readouterr()
    assert "step 2: the gradient is not finite; the step is skipped" in said.out
    if len(bad) > 1:
        assert code == 2 and "6 steps in a row up to step 6" in said.err and "Traceback" not in said.err
        return
    assert code == 0 and said.out.count("is skipped") == 1
    assert all(weight.isfinite().all() for weight in load_file(run / "model" / "model.safetensors").values())


def test_evaluation_survives_a_small_device(tmp_path, monkeypatch):
    """`gear train` with evaluations that do not fit at once: smaller batches, and the very same run."""
    steps = [*SMALL, *settings("train.steps=2", "train.eval_rows=20")]
    assert main(["train", "--out", str(tmp_path / "large"), *steps]) == 0
    sizes = limit_batch(monkeypatch, 10)  # a step samples 8 rollouts, an evaluation 20
    assert main(["train", "--out", str(tmp_path / "small"), *steps]) == 0
    assert sizes[:3] == [20, 10, 10] and sizes[-1] == 10
    for name in ("evaluation.json", "rollouts.jsonl", "model/model.safetensors"):
        assert (tmp_path / "large" / name).read_bytes() == (tmp_path / "small" / name).read_bytes()


def test_memory_that_runs_out_while_training_samples(tmp_path, monkeypatch, caplog):
    """Fewer rollouts at once, with the same random numbers: what is sampled is the same up to rounding."""
    steps = [*SMALL, *settings("train.steps=2", "train.seeded_sampling=true")]
    assert main(["train", "--out", str(tmp_path / "large"), *steps]) == 0
    sizes = limit_batch(monkeypatch, 4)  # a step samples 8 rollouts
    assert main(["train", "--out", str(tmp_path / "small"), *steps]) == 0
    assert 8 in sizes and "memory ran out with 8 rollouts sampled at once: 4 from here on." in caplog.text
    large, small = ((tmp_path / name / "rollouts.jsonl").read_text().splitlines() for name in ("large", "small"))
    ids = [[json.loads(line)["token_ids"] for line in lines[1:9]] for lines in (large, small)]
    assert ids[0] == ids[1] and len(ids[0]) == 8


def test_memory_that_runs_out_in_the_loss_names_the_setting(tmp_path, monkeypatch, capsys):
    def too_large(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("trl.GRPOTrainer._compute_loss", too_large)
    assert main(["train", "--out", str(tmp_path / "run"), *SMALL, "--set", "train.steps=2"]) == 2
    assert "Tried to allocate 2.00 GiB. Lower train.rollouts_per_pass (now 8)" in capsys.readouterr().err
