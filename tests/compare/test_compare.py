"""`gear compare` as a user runs it: small, real, killed halfway, resumed to the same table; and the verdict's arithmetic."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from forked import Forked, fork_workers

from gear_rl.cli import compare as compare_command
from gear_rl.cli.main import build_parser
from gear_rl.compare.jobs import Setting
from gear_rl.compare.page import html
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.results import summarise
from gear_rl.compare.runner import is_finished, run_all
from gear_rl.compare.table import INTERVALS, markdown, text
from gear_rl.compare.tuning import choose, tried
from gear_rl.errors import GearError
from gear_rl.methods import METHODS, method

GEAR = [sys.executable, "-m", "gear_rl.cli.main", "compare"]
SMALL = ["--credit", "grpo,oracle", "--seeds", "2", "--learning-rates", "6e-4"]
for setting in ("task.steps=4", "train.steps=3", "train.prompts=2", "train.generations=4", "train.eval_rows=4"):
    SMALL += ["--set", setting]
SMALL += ["--set", "train.checkpoint_every=1", "--workers", "2"]


def without_clock(folder: Path) -> dict:
    summary = json.loads((folder / "summary.json").read_text())
    for row in summary["rows"]:
        del row["seconds"]
    return summary


@pytest.mark.slow
def test_killed_halfway_and_resumed_to_the_same_table(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = Forked(["compare", *SMALL, "--out", str(whole)], fork_workers).wait()
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
    process.kill()  # the parent alone: its workers must not go on in folders that the next command opens
    process.wait()
    until = time.time() + 20
    with pytest.raises(ProcessLookupError):
        while time.time() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert not (killed / "summary.json").exists()
    done = Forked(["compare", "--resume", str(killed)], fork_workers).wait()
    assert done.returncode == 0, done.stderr
    assert without_clock(killed) == without_clock(whole)
    assert (killed / "summary.md").read_text() == (whole / "summary.md").read_text()


def fake_run(folder: Path, name: str, success: float, reward: float, before: float = 0.15) -> None:
    """A finished run folder with given results: the summary's arithmetic is checked on numbers known beforehand."""
    run = folder / "runs" / name
    run.mkdir(parents=True, exist_ok=True)
    scores = {"success": success, "reward": min(1.0, success + 0.2), "success_interval": [0, 1], "n": 100}
    start = {**scores, "success": before}
    evaluation = {"before": {"sampled": start, "greedy": start}, "after": {"sampled": scores, "greedy": scores}}
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    lines = [{"step": i + 1, "success": success - 0.1, "reward": reward} for i in range(30)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.json").write_text(json.dumps({"train": {"prompts": 4, "generations": 8}}))


def result(plan: Plan, folder: Path) -> dict:
    found = tried(plan, folder)
    return summarise(plan, folder, choose(plan, found), found, target=0.5)


def test_verdict_on_known_numbers(tmp_path):
    plan = Plan(
        ["grpo", "gear", "shuffled_outcomes", "gear+wrong_hint", "token", "oracle"], seeds=10, learning_rates=[3e-4]
    )
    noise = [0.01, -0.01, 0.02, -0.02, 0.0, 0.005, 0.01, -0.005, 0.015, -0.015]
    means = {"grpo": 0.3, "gear": 0.7, "shuffled_outcomes": 0.5, "oracle": 0.8, "grpo+shuffled_outcomes": 0.45}
    for seed in range(10):
        for name, mean in (means | {"gear+wrong_hint": 0.05}).items():
            change = noise[seed] * (1 if name == "grpo" else -1)
            fake_run(tmp_path, f"{name}-0.0003-{seed}", mean + change, 0.5)
        fake_run(tmp_path, f"token-0.0003-{seed}", 0.3 + 3 * noise[-seed], 0.5)
    summary = result(plan, tmp_path)
    rows = {row["method"]: row for row in summary["rows"]}
    assert summary["headroom"]["success"] == pytest.approx(0.5, abs=0.01)
    assert rows["gear"]["success"]["share_of_headroom"] == pytest.approx(0.8, abs=0.01)
    low, high = rows["gear"]["success"]["share_interval"]
    assert 0.3 < low < 0.8 < high < 1.3
    assert rows["gear"]["success"]["p"] == pytest.approx(2 / 1024)
    assert rows["gear"]["success"]["p_holm"] == pytest.approx(10 / 1024)
    assert rows["gear"]["steps_to_target"] == 25 and rows["grpo"]["steps_to_target"] is None
    assert rows["gear"]["rollouts"] == 30 * 32
    # each control against what it is to be compared with
    assert (
        rows["shuffled_outcomes"]["versus"] == "grpo+shuffled_outcomes" and rows["gear+wrong_hint"]["versus"] == "grpo"
    )
    assert rows["shuffled_outcomes"]["success"]["difference"] == pytest.approx(0.05)
    assert rows["gear+wrong_hint"]["success"]["difference"] == pytest.approx(-0.25, abs=0.01)
    # half of what it was before training, 0.15, is a collapse
    assert rows["gear+wrong_hint"]["collapsed"] == 10 and rows["token"]["collapsed"] == 0
    said = text(summary)
    assert "token               no difference found" in said and "seeds would show 5 points" in said
    assert re.search(r"^gear  +better, p 0.010 \(smallest possible 0.002\); 80 %", said, re.M), said
    assert re.search(r"^gear +69.9 +49.9 \(\+5.0.*\) +4.9 \(-25.2\*\)$", said, re.M), said
    assert "nothing was tuned" in said
    below = said.partition("\noracle ")[2].split("\n\n")[0].splitlines()[1:]  # the table's last row, and what follows it
    assert 1 <= len(below) <= 2 and " ".join(" ".join(below).split()) == INTERVALS
    assert all(len(line) <= 80 for line in said.splitlines()), max(said.splitlines(), key=len)
    table = markdown(summary).splitlines()
    assert table[3].startswith("| gear | 0.0003 | 69.9 (") and table[3].endswith("| 0/10 |")
    assert len({line.count("|") for line in table[:6]}) == 1  # the controls stand in gear's row
    assert "shuffled_outcomes" not in "".join(table)


def test_worlds_are_strata_and_tuning_is_apart_from_them(tmp_path):
    plan = Plan(["grpo", "gear"], 2, [1e-4, 8e-4], 8, 1, worlds=[1, 2], tuning_worlds=[4, 5])
    tuning = plan.tuning_jobs()
    assert {job.world for job in tuning} == {4, 5} and {job.seed for job in tuning} == {1000}
    by_method = {m: [job.setting for job in tuning if job.method == m] for m in plan.methods}
    assert len(by_method["grpo"]) == len(by_method["gear"]) == 8  # the same budget for both …
    assert len({one.learning_rate for one in by_method["grpo"]}) == 4  # … spent on a finer grid of learning rates
    assert len({one.options for one in by_method["gear"]}) == 4  # … or on strengths
    best = {"grpo": by_method["grpo"][1], "gear": by_method["gear"][2]}
    for job in tuning:  # true success would choose otherwise, and must not
        is_best = job.setting == best[job.method]
        fake_run(tmp_path, job.name, 0.1 if is_best else 0.9, 0.7 if is_best else 0.6)
    for job in plan.comparison_jobs(best):
        fake_run(tmp_path, job.name, {1: 0.2, 2: 0.6}[job.world] + 0.1 * (job.method == "gear") + 0.01 * job.seed, 0.5)
    summary = result(plan, tmp_path)
    rows = {row["method"]: row for row in summary["rows"]}
    assert rows["gear"]["options"] == dict(best["gear"].options)
    assert rows["gear"]["success"]["by_world"] == pytest.approx([0.305, 0.705])
    low, high = rows["gear"]["success"]["interval"]  # not widened by what lies between the worlds
    assert low < 0.505 < high and high - low < 0.75
    assert "every method was tuned with 8 runs (4 settings" in " ".join(text(summary).split())
    assert "worlds 4, 5" in summary["budget"] and "training reward" in summary["budget"]


def test_the_page_shows_the_same_numbers_and_runs_nothing(tmp_path):
    plan = Plan(["grpo", "gear", "oracle"], seeds=3, learning_rates=[3e-4])
    for seed in range(3):
        for name, mean in {"grpo": 0.3, "gear": 0.7, "oracle": 0.8}.items():
            fake_run(tmp_path, f"{name}-0.0003-{seed}", mean + 0.01 * seed, mean)
    summary = result(plan, tmp_path)
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
        (dict(tuning_runs=8), "one rate means that nothing is tuned"),
        (dict(learning_rates=[1e-4, 2e-4]), "one rate means that nothing is tuned"),
        (dict(learning_rates=[1e-4, 2e-4], tuning_runs=6), "gear has 4 strengths .* multiple of 4"),
        (dict(worlds=[1, 2], tuning_worlds=[2], learning_rates=[1e-4, 2e-4], tuning_runs=8), "has a world twice"),
        (dict(worlds=[1, 2], learning_rates=[1e-4, 2e-4], tuning_runs=8), "name others to tune on"),
        (dict(tuning_worlds=[1]), "name the reported ones too"),
        (dict(worlds=[1], settings={"task": {"world": 2}}), "not both"),
        (dict(worlds=[9]), "world"),
    ],
)
def test_plans_are_checked_before_anything_runs(change, message):
    base = dict(methods=["grpo", "gear"], seeds=3, learning_rates=[1e-4], settings={})
    with pytest.raises(GearError, match=message):
        Plan(**{**base, **change})


def test_controls_run_with_their_methods_setting(tmp_path):
    plan = Plan(
        ["grpo", "rlsd", "rlsd+wrong_hint", "opd+wrong_hint", "wrong_hint", "rlsd+sibling_hint"], 2, [1e-4, 4e-4], 4
    )
    own = {"grpo", "rlsd", "opd+wrong_hint", "wrong_hint", "rlsd+sibling_hint"}
    assert {job.method for job in plan.tuning_jobs()} == own  # another form of hint is tuned by itself
    for job in plan.tuning_jobs():
        fake_run(tmp_path, job.name, 0.5, 0.4)
    strong = Setting(2e-4, (("mix", 1.0), ("clip", 1.0)))
    fake_run(tmp_path, f"rlsd-{strong.name}-1000", 0.1, 0.6)
    fake_run(tmp_path, "grpo-0.000252-1000", 0.1, 0.6)
    chosen = choose(plan, tried(plan, tmp_path))
    assert chosen["rlsd"] == chosen["rlsd+wrong_hint"] == strong and chosen["grpo"] == Setting(0.000252)
    assert chosen["rlsd+sibling_hint"].options == (("mix", 0.5), ("clip", 0.2))  # of equal ones the weakest
    assert plan.control_of("rlsd+wrong_hint") == ("rlsd", "wrong_hint")
    assert plan.control_of("wrong_hint") is None  # GEAR itself is not compared here
    assert Plan(["gear", "wrong_hint"], 2, [1e-4, 2e-4], 4).tuned_as("wrong_hint") == "gear"


def test_an_option_that_is_set_is_not_tuned():
    settings = {"credit": {"gear": {"alpha": 3.0}}}
    plan = Plan(["grpo", "gear"], 2, [1e-4, 8e-4], 4, settings=settings)
    assert [one.options for one in plan.candidates("gear")] == [()] * 4
    assert plan.config(plan.tuning_jobs()[-1]).credit_options == {"alpha": 3.0}


def test_every_methods_strengths_are_settings_of_it_and_fit_one_budget():
    for name, kind in METHODS.items():
        for strength in kind.strength:
            method(name, **strength)
        assert not kind.strength or 12 % len(kind.strength) == 0, name


@pytest.mark.slow
def test_no_run_starts_that_would_end_too_late(tmp_path):
    folder = tmp_path / "c"
    small = {"task": {"steps": 4}, "train": {"steps": 1, "prompts": 2, "generations": 2, "eval_rows": 4}}
    plan = open_folder(folder, Plan(["grpo", "oracle"], 2, [1e-4], settings=small))
    jobs = plan.comparison_jobs(choose(plan, {}))
    fake_run(folder, jobs[0].name, 0.5, 0.5)
    (folder / "runs" / jobs[0].name / "seconds.json").write_text("1000.0")
    assert run_all(plan, jobs, folder, 1, lambda *_: None, until=time.time() + 500) == 3
    assert run_all(plan, jobs, folder, 2, lambda *_: None) == 0 and all(
        is_finished(folder / "runs" / j.name) for j in jobs
    )


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(tmp_path):
    folder = tmp_path / "c"
    small = {"task": {"steps": 4}, "train": {"steps": 1, "prompts": 2, "generations": 2, "eval_rows": 4}}
    plan = open_folder(folder, Plan(["grpo", "oracle"], 2, [1e-4], settings=small))
    damaged = folder / "runs" / "grpo-0.0001-0"
    damaged.mkdir(parents=True)
    (damaged / "config.json").write_text("{")
    with pytest.raises(GearError, match=r"1 of 4 runs failed.*--resume.*\n  grpo-0.0001-0: .*config.json"):
        run_all(plan, plan.comparison_jobs(choose(plan, {})), folder, 2, lambda *_: None)
    assert [
        is_finished(folder / "runs" / name) for name in ("grpo-0.0001-1", "oracle-0.0001-0", "oracle-0.0001-1")
    ] == [True] * 3


@pytest.mark.slow
def test_a_killed_worker_ends_the_comparison_with_a_message(tmp_path):
    """As when the system takes a process because memory ran out: nobody waits for its result for ever."""
    small = {"task": {"steps": 4}, "train": {"steps": 1000, "prompts": 2, "generations": 2, "eval_rows": 4}}
    plan = open_folder(tmp_path / "c", Plan(["grpo", "oracle"], 2, [1e-4], settings=small))

    def kill() -> None:
        while not list((tmp_path / "c").glob("runs/*/metrics.jsonl")):
            time.sleep(0.05)
        multiprocessing.active_children()[0].kill()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(GearError, match=r"a worker process was killed from outside.*gear compare --resume"):
        run_all(plan, plan.comparison_jobs(choose(plan, {})), tmp_path / "c", 1, lambda *_: None)
    assert not multiprocessing.active_children()


def test_a_folder_never_mixes_two_comparisons(tmp_path):
    one = Plan(["grpo", "gear"], 3, [1e-4])
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".compare.json.999999999.partial").write_text("{")  # at its first rename
    assert open_folder(tmp_path / "killed", one) == one
    assert open_folder(tmp_path / "c", one) == one == open_folder(tmp_path / "c", None)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    with pytest.raises(GearError, match="seeds differ"):
        open_folder(tmp_path / "c", Plan(["grpo", "gear"], 4, [1e-4]))
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


@pytest.mark.parametrize(
    ("more", "rates"),
    [
        ([], [1.5e-4, 1.2e-3]),
        (["--model", "folder"], [1.5e-5, 6e-5]),
        (["--set", "model=folder"], [1.5e-5, 6e-5]),
        (["--model", "folder", "--learning-rates", "1e-6"], [1e-6]),
    ],
)
def test_the_grid_of_learning_rates_fits_the_model_unless_it_is_given(more, rates):
    words = ["compare", "--credit", "grpo,gear", *more]
    args = build_parser(words).parse_args(words)
    assert compare_command._plan(args).learning_rates == rates
