"""`gear compare` as a user runs it: small, real, killed halfway, resumed to the same table; and the verdict's arithmetic."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gear_rl.compare.page import html
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.results import best_rates, summarise
from gear_rl.compare.runner import is_finished, run_all
from gear_rl.compare.table import markdown, text
from gear_rl.errors import GearError

GEAR = [sys.executable, "-m", "gear_rl.cli.main", "compare"]
SMALL = ["--credit", "grpo,oracle", "--seeds", "2", "--learning-rates", "3e-4,6e-4", "--set", "task.steps=4"]
SMALL += [
    "--set",
    "train.steps=6",
    "--set",
    "train.prompts=2",
    "--set",
    "train.generations=4",
    "--set",
    "train.eval_rows=40",
]
SMALL += ["--set", "train.checkpoint_every=2", "--workers", "2"]


def without_clock(folder: Path) -> dict:
    summary = json.loads((folder / "summary.json").read_text())
    for row in summary["rows"]:
        del row["seconds"]
    return summary


@pytest.mark.slow
def test_killed_halfway_and_resumed_to_the_same_table(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = subprocess.run([*GEAR, *SMALL, "--out", str(whole)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "grpo" in done.stdout and "headroom" in done.stdout and "cannot go below p = 0.500" in done.stdout
    process = subprocess.Popen(
        [*GEAR, *SMALL, "--out", str(killed)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not list(killed.glob("runs/*/checkpoints/*/complete.json")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)  # the parent and its workers at once
    process.wait()
    assert not (killed / "summary.json").exists()
    done = subprocess.run([*GEAR, "--resume", str(killed)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert without_clock(killed) == without_clock(whole)
    assert (killed / "summary.md").read_text() == (whole / "summary.md").read_text()


def fake_run(folder: Path, name: str, success: float, area: float) -> None:
    """A finished run folder with given results: the summary's arithmetic is checked on numbers known beforehand."""
    run = folder / "runs" / name
    run.mkdir(parents=True, exist_ok=True)
    scores = {"success": success, "reward": min(1.0, success + 0.2), "success_interval": [0, 1], "n": 100}
    (run / "evaluation.json").write_text(json.dumps({"before": {}, "after": {"sampled": scores, "greedy": scores}}))
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": i + 1, "success": area}) + "\n" for i in range(30)))
    (run / "config.json").write_text(json.dumps({"train": {"prompts": 4, "generations": 8}}))


def test_verdict_on_known_numbers(tmp_path):
    plan = Plan(
        ["grpo", "gear", "shuffled_outcomes", "token", "oracle"], seeds=6, learning_rates=[3e-4], tuning_seeds=1
    )
    noise = [0.01, -0.01, 0.02, -0.02, 0.0, 0.005]
    for seed in range(6):
        for method, mean in {"grpo": 0.3, "gear": 0.7, "shuffled_outcomes": 0.5, "oracle": 0.8}.items():
            fake_run(
                tmp_path, f"{method}-0.0003-{seed}", mean + noise[seed] * (1 if method == "grpo" else -1), mean - 0.1
            )
        fake_run(tmp_path, f"token-0.0003-{seed}", 0.3 + 3 * noise[-seed], 0.2)
    summary = summarise(plan, tmp_path, dict.fromkeys(plan.methods, 3e-4), target=0.5)
    rows = {row["method"]: row for row in summary["rows"]}
    assert summary["headroom"]["success"] == pytest.approx(0.5, abs=0.01)
    assert rows["gear"]["success"]["share_of_headroom"] == pytest.approx(0.8, abs=0.01)
    assert rows["gear"]["success"]["p"] == pytest.approx(2 / 64) and rows["gear"]["success"]["p_holm"] == pytest.approx(
        8 / 64
    )
    assert rows["gear"]["steps_to_target"] == 25 and rows["grpo"]["steps_to_target"] is None
    assert rows["gear"]["rollouts"] == 30 * 32
    said = text(summary)
    assert "token               no difference found" in said and "seeds would show 5 points" in said
    assert re.search(r"^gear +69.9 \(80 %\) +49.9 \(40 %\)$", said, re.M), said
    assert all(len(line) <= 80 for line in said.splitlines()), max(said.splitlines(), key=len)
    table = markdown(summary).splitlines()
    assert len(table) == 6 and len({line.count("|") for line in table}) == 1  # shuffled_outcomes stands in gear's row
    assert table[3].startswith("| gear | 0.0003 | 69.9 (") and "| 49.9 (40 %) |  | 0/6 |" in table[3]


def test_the_page_shows_the_same_numbers_and_runs_nothing(tmp_path):
    plan = Plan(["grpo", "gear", "oracle"], seeds=3, learning_rates=[3e-4], tuning_seeds=1)
    for seed in range(3):
        for method, mean in {"grpo": 0.3, "gear": 0.7, "oracle": 0.8}.items():
            fake_run(tmp_path, f"{method}-0.0003-{seed}", mean + 0.01 * seed, mean)
    summary = summarise(plan, tmp_path, dict.fromkeys(plan.methods, 3e-4), target=0.5)
    summary["rows"][1]["method"] = "<script>alert(1)</script>"
    page = html(summary)
    assert "<td>71.0</td>" in page and page.count("<circle") == 9 and "+40.0" in page
    assert "<script" not in page and "&lt;script&gt;" in page and "default-src 'none'" in page and "http://" not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(methods=["gear"]), "two or more"),
        (dict(methods=["gear", "grop"]), "Did you mean 'grpo'"),
        (dict(seeds=1), "at least 2"),
        (dict(learning_rates=[]), "learning-rates"),
        (dict(settings={"credit": {"opd": {}}}), "not among the methods"),
        (dict(settings={"credit": {"gear": {"alpah": 1}}}), "alpha"),
        (dict(settings={"train": {"step": 1}}), "steps"),
    ],
)
def test_plans_are_checked_before_anything_runs(change, message):
    base = dict(methods=["grpo", "gear"], seeds=3, learning_rates=[1e-4], tuning_seeds=1, settings={})
    with pytest.raises(GearError, match=message):
        Plan(**{**base, **change})


def test_controls_run_at_their_methods_learning_rate(tmp_path):
    plan = Plan(["grpo", "rlsd", "rlsd+wrong_hint", "opd+wrong_hint", "wrong_hint"], 2, [1e-4, 2e-4], 1)
    assert {job.method for job in plan.tuning_jobs()} == {"grpo", "rlsd", "opd+wrong_hint", "wrong_hint"}
    for job in plan.tuning_jobs():
        fake_run(tmp_path, job.name, 0.5, 0.5 if (job.method == "rlsd") == (job.learning_rate == 2e-4) else 0.4)
    fake_run(tmp_path, "grpo-0.0001-1000", 0.5, 0.44)  # within 15 % of the best: the smaller rate is taken
    fake_run(tmp_path, "grpo-0.0002-1000", 0.5, 0.5)
    assert best_rates(plan, tmp_path, 0.5) == {
        "grpo": 1e-4, "rlsd": 2e-4, "rlsd+wrong_hint": 2e-4, "opd+wrong_hint": 1e-4, "wrong_hint": 1e-4
    }  # fmt: skip
    assert plan.control_of("rlsd+wrong_hint") == ("rlsd", "wrong_hint")
    assert plan.control_of("wrong_hint") is None  # GEAR itself is not compared here
    assert Plan(["gear", "wrong_hint"], 2, [1e-4, 2e-4], 1).tuned_as("wrong_hint") == "gear"


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    folder = tmp_path / "c"
    small = {"task": {"steps": 4}, "train": {"steps": 1, "prompts": 2, "generations": 2, "eval_rows": 4}}
    plan = open_folder(folder, Plan(["grpo", "oracle"], 2, [1e-4], 1, small))
    damaged = folder / "runs" / "grpo-0.0001-0"
    damaged.mkdir(parents=True)
    (damaged / "config.json").write_text("{")
    with pytest.raises(GearError, match=r"1 of 4 runs failed.*--resume.*\n  grpo-0.0001-0: .*config.json"):
        run_all(plan, plan.comparison_jobs({"grpo": 1e-4, "oracle": 1e-4}), folder, 2, lambda *_: None)
    assert [
        is_finished(folder / "runs" / name) for name in ("grpo-0.0001-1", "oracle-0.0001-0", "oracle-0.0001-1")
    ] == [True] * 3


def test_a_folder_never_mixes_two_comparisons(tmp_path):
    one = Plan(["grpo", "gear"], 3, [1e-4], 1, {})
    assert open_folder(tmp_path / "c", one) == one == open_folder(tmp_path / "c", None)
    with pytest.raises(GearError, match="seeds differ"):
        open_folder(tmp_path / "c", Plan(["grpo", "gear"], 4, [1e-4], 1, {}))
    with pytest.raises(GearError, match="no comparison to resume"):
        open_folder(tmp_path / "nothing", None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(GearError, match="not a comparison"):
        open_folder(tmp_path / "full", one)
    (tmp_path / "c" / "compare.json").write_text("{")
    with pytest.raises(GearError, match="damaged"):
        open_folder(tmp_path / "c", None)


def test_what_a_run_would_refuse_is_refused_before_the_first(tmp_path, capsys):
    from gear_rl.cli.main import main

    (tmp_path / "sums.jsonl").write_text('{"prompt": "1+1?", "answer": "2"}\n' * 20)
    out = tmp_path / "out"
    task = ["--task", str(tmp_path / "sums.jsonl"), "--model", "nowhere", "--set", "task.judged_by=number"]
    assert main(["compare", "--credit", "grpo,crest", *task, "--out", str(out)]) == 2
    assert "crest needs turn_reward" in capsys.readouterr().err and not out.exists()
