"""The scripts behind "Why does GEAR collapse with the answer alone?": runs of their own, and the tables of docs/evidence.md."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "evidence.md").read_text()


def results(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text())


def test_the_published_tables(script, page):
    cause, runs = script("answer_only_cause"), results("answer_only_cause.json")["runs"]
    records = (ROOT / "docs" / "evidence_records.md").read_text()
    assert cause.table(runs) in records and cause.pushes(runs) in page
    long = [results(f"hint_forms{name}.json") for name in ("_faulty_key_400", "_sibling_400", "_400")]
    drawn = script("teacher_by_hint").table(results("hint_forms.json"), results("hint_forms_base_teacher.json"), long)
    assert drawn in page


def test_a_run_is_read_from_its_record(script):
    cause = script("answer_only_cause")
    run = cause.measure("base", 8.0, world=1, seed=0, steps=21, eval_rows=8)
    assert [point["step"] for point in run["points"]] == [0, 20]
    start = run["points"][0]
    assert 0.5 < start["tool"] < 1 and start["part"] > 0.95 and start["answer"] > 0.95  # the warm start's
    assert start["divergence"] < 0.01 and -2 < start["push"] < 2
    assert cause.table([run]).splitlines()[-1].startswith("| base, 8 | 1, 0 |")


def test_what_is_lost_is_lost_in_two_records_in_a_row(script):
    cause = script("answer_only_cause")
    shares = [(0.8, 1.0, 0.001), (0.3, 1.0, 0.2), (0.7, 0.4, 0.3), (0.3, 0.3, 0.001), (0.2, 0.9, 0.001)]
    points = [
        {"step": 20 * i, "tool": tool, "part": 1.0, "answer": answer, "divergence": divergence}
        for i, (tool, answer, divergence) in enumerate(shares)
    ]
    run = {"teacher": "live", "alpha": 2.0, "world": 1, "seed": 0, "before": 0.15, "success": 0.01, "points": points}
    row = cause.table([run]).splitlines()[-1]
    near, far = ({**point, "push": sign * 0.1} for point, sign in zip(points[:2], (1, -1), strict=True))
    assert cause.pushes([{**run, "points": [near, far]}]).endswith("| live | +0.10 | −0.10 |")
    assert row == "| live, 2 | 1, 0 | 15.0 → 1.0 | 80 → 20 | 100 → 100 | 100 → 90 | step 20 | step 60 | step 40 |"


def test_teachers_are_compared_at_the_same_places(script):
    live = {"runs": [
        {"column": "answer_only", "method": "gear", "world": 1, "seed": seed, "success": success, "strength": {"alpha": 8.0}}
        for seed, success in ((0, 0.0), (1, 0.2), (1000, 0.9))
    ]}  # fmt: skip
    base = {"columns": {"answer_only": {"runs": [
        {"method": method, "setting": "0.0006 alpha=2", "world": 1, "seed": seed, "before": 0.15, "success": success}
        for method, seed, success in (("grpo", 0, 0.3), ("gear", 0, 0.2), ("grpo", 1, 0.4), ("gear", 1, 0.05))
    ]}}}  # fmt: skip
    script = script("teacher_by_hint")
    row = "| answer only | 35.0 | 10.0 (α 8) | 12.5 (α 2) | +2.5 (−15.0 to +20.0) | 1 of 2 | 1 of 2 |"
    assert script.table(live, base).splitlines()[-1] == row
    long = {"runs": [live["runs"][0] | {"success": 0.3}, live["runs"][1] | {"column": "another_problem"}]}
    assert script.table(live, base, [long]).splitlines()[-1] == f"{row} −12.5, 0 of 2 |"


def test_drift_is_compared_with_success(script, tmp_path):
    drift = script("words_drift")
    pairs = [(0.003, 0.01), (0.002, 0.05), (0.001, 0.1), (0.0001, 0.2)]
    runs = [
        {"hint": hint, "arm": arm, "seed": seed, "curves": {"divergence": [9, divergence]},
         "after": {"sampled": {"success": success}}}
        for seed, (divergence, success) in enumerate(pairs)
        for hint, arm in (("answer", "gear"), ("calls", "gear"), ("answer", "grpo"))
    ]  # fmt: skip
    file = tmp_path / "start.json"
    file.write_text(json.dumps({"runs": runs}))
    found = drift.read([file])
    assert [len(points) for points in found.values()] == [4]
    assert drift.correlation(found["start"])[0] == pytest.approx(-1)
    assert "within starts: 4, Spearman -1.00" in drift.summary(found)


def test_the_published_drift(script, page):
    names = ("", "_second", "_third", "_fourth", "_fifth", "_sixth", "_seventh", "_eighth", "_ninth", "_tenth")
    drift = script("words_drift")
    found = drift.read([RESULTS / f"words_smollm2{name}_h200.json" for name in names])
    every = [point for points in found.values() for point in points]
    within = drift.within(found)
    all_runs, in_starts = (f"{drift.correlation(points)[0]:.2f}".replace("-", "−") for points in (every, within))
    assert f"Over the {len(every)} runs of GEAR, `token` and random segments with the answer alone" in page
    assert f"have a rank correlation of {all_runs}; ranked within each warm start, {len(within)} runs, {in_starts} (" in page
