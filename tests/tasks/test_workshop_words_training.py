"""From a warm start on the workshop in words to credit and to the curves around a first mistake: real runs, small."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from pathlib import Path

import pytest
import torch
from words_model import save_words_model, words_tokenizer

from gear_rl.chat.templates import Replies
from gear_rl.cli.main import main
from gear_rl.models import load_model
from gear_rl.tasks import make_task
from gear_rl.tasks.base import Transcript
from gear_rl.training.warm_start import Demonstrations, played, rollouts_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("words")
    blank, out = str(save_words_model(folder / "blank")), str(folder / "warm")
    settings = ["task.jobs=1", "warm.rows=32", "warm.epochs=2", "warm.batch=8", "warm.learning_rate=0.01"]
    asked = [part for setting in settings for part in ("--set", setting)]
    assert (
        main(["warmstart", "--task", "workshop_words", "--model", blank, *asked, "--out", out, "--device", "cpu"]) == 0
    )
    return out


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield lambda name: importlib.import_module(name)
    for name in ("words_curves", "words_picture", "words_pooled", "words_rates", "words_settings", "words_runs", "words"):
        sys.modules.pop(name, None)


def test_a_warm_start_learns_from_new_demonstrations_in_every_epoch(warm):
    told = json.loads((Path(warm) / "warm_start.json").read_text())
    assert told["counts"] == {"used": 32, "rejected": 0, "too_long": 0}
    assert told["curve"][-1]["loss"] < told["curve"][0]["loss"] - 0.5
    task, tokenizer = make_task("workshop_words", jobs=1), words_tokenizer()
    shown = rollouts_of(tokenizer, task, task.rows("train", 16), 4096)
    assert isinstance(shown, Demonstrations)
    first, second = (shown.epoch(random.Random(0), 0.5) for _ in range(2))
    assert first == second != shown.epoch(random.Random(1), 0.5)
    for ids, mask in first:
        said = tokenizer.decode([token for token, mine in zip(ids, mask, strict=True) if mine])
        assert said.count("<|im_end|>") == 2 and "Job 1" not in said and len(ids) == len(mask)


@pytest.mark.parametrize("credit", ["oracle", "gear"])
def test_training_reads_labels_and_hints(warm, tmp_path, credit):
    settings = ["task.jobs=1", "task.hint_errors=0.3", "task.hint_error_kind=bias", "train.steps=2", "train.prompts=2",
                "train.generations=2", "train.eval_rows=2", "train.device=cpu", "train.record_every=1"]  # fmt: skip
    asked = [part for setting in settings for part in ("--set", setting)]
    out = tmp_path / "run"
    assert (
        main(["train", "--task", "workshop_words", "--model", warm, "--credit", credit, *asked, "--out", str(out)]) == 0
    )
    assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2]


def test_the_curves_show_a_divergence_that_falls_within_a_mistake(benchmarks):
    """Signals of our own making on real rollouts: 2 nats on the first wrong token, 0.5 on the wrong ones after it."""
    curves, task, tokenizer = benchmarks("words_curves"), make_task("workshop_words", jobs=2), words_tokenizer()
    rng, replies = random.Random(0), Replies(tokenizer)
    told, decisions = [], []
    for row in task.rows("train", 40):
        made = task.demonstration(row, rng, False)
        rollout, episode, _ = played(tokenizer, task, row, made.turns, replies)
        pieces = [tokenizer.decode([token]) for token in rollout.ids]
        transcript = Transcript("", made.turns, episode, pieces=pieces, action_mask=rollout.mask)
        told.append(rollout)
        decisions.append(task.verdict(row, transcript).decisions)
    width = max(len(rollout.ids) for rollout in told)

    def filled(rows, dtype):
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype)

    ids, mask = filled([r.ids for r in told], torch.long), filled([r.mask for r in told], torch.bool)
    decision = filled(decisions, torch.float32)
    turns, first = curves._turns(mask), curves._first_wrong(decision, mask)
    values = (decision < 0).float() * 0.5
    wrong = (first >= 0).nonzero()[:, 0]
    values[wrong, first[wrong]] = 2.0
    within = curves._within({"D": values}, decision, mask, turns, first)["D"]
    assert within["first"] == {"n": len(wrong), "mean": 2.0, "error": 0.0} and within["later"]["mean"] == 0.5
    around = curves._around(values, turns, first, wrong.tolist())
    assert {p["offset"]: p["mean"] for p in around if p["offset"] <= 0} == {**dict.fromkeys(range(-5, 0), 0.0), 0: 2.0}
    kinds = curves._kinds(tokenizer, ids, mask)
    assert bool((kinds[~mask] == -1).all()) and bool((kinds[mask] >= 0).all())
    named = {curves.KINDS[int(k)] for k in kinds[(decision != 0) & mask]}
    assert named == {"thought", "tool", "argument", "answer"}


def test_curves_are_measured_and_drawn(benchmarks, warm):
    curves, task = benchmarks("words_curves"), make_task("workshop_words", jobs=1)
    model, tokenizer = load_model(warm, "cpu")
    result = curves.measure(model.eval(), tokenizer, task, task.rows("train", 6), seed=0)
    assert result["rollouts"] == 6 and len(result["around_first_wrong"]["all"]["D"]) == 46
    drawn = benchmarks("words_picture").picture(result)
    assert drawn.count("<polyline") == 8 and drawn.endswith("</svg>\n") and "mean D, form" in curves.in_words(result)


def test_runs_are_planned_seed_by_seed_and_told_against_grpo(benchmarks, warm, tmp_path):
    runs = benchmarks("words_runs")
    asked = type("Asked", (), dict(seeds=[0, 1], hints=["calls", "answer"], learning_rates=[1e-4], model=warm, device="cpu",
                                   arms=["grpo", "gear"], cells=None))  # fmt: skip
    small = dict(steps=1, prompts=2, generations=2, rollouts_per_pass=4, precision="float32", eval_rows=2)
    planned = runs.plan(asked, small, {"jobs": 1})
    assert [r.name for r in planned[:3]] == ["grpo-calls-0.0001-0", "gear-calls-0.0001-0", "gear-answer-0.0001-0"]
    assert len(planned) == 6
    asked.cells = [runs.cell("grpo:calls"), runs.cell("gear:answer")]
    by_cell = [r.name for r in runs.plan(asked, small, {"jobs": 1})]
    assert by_cell == [f"{name}-0.0001-{seed}" for seed in (0, 1) for name in ("grpo-calls", "gear-answer")]
    with pytest.raises(argparse.ArgumentTypeError, match="ARM:HINT"):
        runs.cell("gear")
    result = runs.train(planned[1], deadline=2e18)
    assert len(result["curves"]["success"]) == 1 and result["after"]["sampled"]["n"] == 2
    assert runs.train(planned[1].__class__(**{**vars(planned[1]), "config": {
        **planned[1].config, "train": {**planned[1].config["train"], "steps": 2}}}), deadline=0.0) is None  # fmt: skip
    for one, success in zip(planned, (0.2, 0.5, 0.4, 0.3, 0.5, 0.4), strict=True):
        told = {"sampled": {"success": success}, "greedy": {"success": success}}
        (tmp_path / f"{one.name}.json").write_text(json.dumps({**vars(one), "after": told}))
    lines = runs.table(runs.collect(tmp_path)).splitlines()
    assert len(lines) == 4 and "+25.0" in next(line for line in lines if line.startswith("calls") and "gear" in line)


def test_a_metric_that_is_not_in_every_step_costs_no_run(benchmarks, warm):
    """OPSD needs no divergence of its own, so it is measured for trust alone, at every fourth step."""
    runs = benchmarks("words_runs")
    asked = type("Asked", (), dict(seeds=[0], learning_rates=[1e-4], model=warm, device="cpu", hints=["calls"], arms=[],
                                   cells=[runs.cell("opsd:calls")]))  # fmt: skip
    small = dict(steps=2, prompts=2, generations=2, rollouts_per_pass=4, precision="float32", eval_rows=2)
    curves = runs.train(runs.plan(asked, small, {"jobs": 1})[0], deadline=2e18)["curves"]
    assert len(curves["reward"]) == len(curves["divergence"]) == 2
    assert curves["divergence"][0] is not None and curves["divergence"][1] is None


def test_tuning_goes_on_with_the_chosen_rate_and_resumes(benchmarks, warm, tmp_path, monkeypatch, capfd):
    """Real processes: three rates, then the reported run with the best of them; a second call has nothing left to do."""
    settings = ["task.jobs=1", "train.steps=2", "train.prompts=2", "train.generations=2", "train.rollouts_per_pass=4",
                "train.precision=float32", "train.eval_rows=2"]  # fmt: skip
    asked = [part for setting in settings for part in ("--set", setting)]
    call = ["words.py", "tune", "--model", warm, "--device", "cpu", "--arms", "grpo", "--seeds", "0", "--processes", "1",
            "--folder", str(tmp_path / "runs"), "--out", str(tmp_path / "rates.json"), *asked]  # fmt: skip
    monkeypatch.setattr(sys, "argv", call)
    assert benchmarks("words").main() == 0
    runs, rates = json.loads((tmp_path / "rates.json").read_text())["runs"], benchmarks("words_rates")
    best = rates.choose(rates.tuned(runs))["grpo"]
    assert {(run["seed"], run["learning_rate"]) for run in runs} == {*((1000, rate) for rate in rates.RATES), (0, best)}
    assert f"| {best:g} | " in capfd.readouterr().out.splitlines()[-1]
    assert benchmarks("words").main() == 0
    assert "4 of 4 runs are finished" in capfd.readouterr().out


def test_a_run_that_fails_does_not_hold_up_the_rest(benchmarks, warm, tmp_path, capfd):
    runs = benchmarks("words_runs")
    asked = type("Asked", (), dict(seeds=[0, 1], learning_rates=[1e-4], model=warm, device="cpu", hints=["calls"],
                                   arms=["grpo"], cells=None))  # fmt: skip
    small = dict(steps=1, prompts=2, generations=2, rollouts_per_pass=4, precision="float32", eval_rows=2)
    failing, good = runs.plan(asked, small, {"jobs": 1})
    failing.config["model"] = str(tmp_path / "no_model")
    began = time.monotonic()
    runs.run([failing, good], tmp_path / "runs", minutes=5, processes=1)
    assert time.monotonic() - began < 150, "it waited for its deadline"
    assert [path.stem for path in (tmp_path / "runs").iterdir()] == [good.name]
    other = runs.plan(asked, small, {"jobs": 2})
    with pytest.raises(SystemExit, match="another model or other settings"):
        runs.run(other, tmp_path / "runs", minutes=0, processes=1)
    assert f"{failing.name} failed" in capfd.readouterr().out


def test_a_killed_process_does_not_hold_up_the_end(benchmarks, tmp_path, monkeypatch):
    """As when memory runs out. Its run is lost, the other process does the rest, and nobody waits for the deadline."""
    (tmp_path / "killed_at_first.py").write_text(
        "import os, signal\n"
        "import words_runs\n"
        "def train(one, deadline):\n"
        "    if one.arm == 'gear':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    after = {how: {'success': 1.0} for how in ('sampled', 'greedy')}\n"
        "    return {'arm': one.arm, 'after': after, 'seconds': 0.0, 'seconds_per_step': 0.0}\n"
        "def work(*given):\n"
        "    words_runs.train = train\n"
        "    words_runs._work(*given)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    runs = benchmarks("words_runs")
    monkeypatch.setattr(runs, "_work", importlib.import_module("killed_at_first").work)
    planned = [runs.Run(arm, "calls", 1e-4, seed, {}) for arm, seed in (("gear", 0), ("grpo", 0), ("grpo", 1))]
    began = time.monotonic()
    runs.run(planned, tmp_path / "runs", minutes=5, processes=2)
    assert time.monotonic() - began < 120
    assert sorted(path.stem for path in (tmp_path / "runs").iterdir()) == ["grpo-calls-0.0001-0", "grpo-calls-0.0001-1"]
