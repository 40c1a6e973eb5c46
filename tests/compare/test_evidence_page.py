"""docs/evidence.md and the pages behind it show what the published runs say."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import regret

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"
AGAIN = "_sibling_again", "_again", "_other_worlds"
"""Repeated runs of the table `hint_forms`."""


LONG = "_faulty_key_400", "_sibling_400", "_400"
"""Those with tuning runs as long as the reported ones."""


def read(name: str) -> list[dict]:
    import regret  # a script of benchmarks/, as all that are imported here

    return regret.read_runs(RESULTS / f"{name}.json")


def hint_runs() -> list[dict]:
    """Of the table by kind of hint, in the order in which they count."""
    import evidence_pictures

    return [run for name in evidence_pictures.HINT_RUNS for run in read(f"hint_forms{name}")]


def cells_of(*names: str) -> regret.Cells:
    """Of the files hint_forms{name}.json; the later one counts."""
    import regret

    return regret.cells_of([run for name in names for run in read(f"hint_forms{name}")])


def read_page(name: str) -> str:
    return (BENCHMARKS.parent / "docs" / f"{name}.md").read_text()


@pytest.fixture
def page(monkeypatch) -> str:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return read_page("evidence")


@pytest.fixture
def length_page(page) -> str:
    return read_page("tuning_length")


def test_the_first_table_of_short_tuning_is_of_the_published_runs(length_page):
    import evidence_tables
    import regret

    cells = regret.cells_of(regret.read_runs(RESULTS / "hint_forms.json"))
    assert {len(values) for methods in cells.values() for values in methods.values()} == {8}
    for method, by_column in regret.regrets(cells).items():
        rows = [line for line in length_page.splitlines() if line.startswith(f"| {method} | ") and line.count("|") == 12]
        shown = [cell.strip(" *") for cell in rows[0].split("|")[2:-1]]
        assert shown[:-1] == [f"{regret.mean_of(cells[kind][method]):.1f}" for kind in evidence_tables.TITLES]
        assert shown[-1].split()[0] == f"{max(by_column.values()):.1f}"


def test_the_page_has_the_repeated_runs_with_other_hints(length_page):
    import regret

    for name in ("_again", "_sibling_tuned"):  # tuned with one run of 200 steps, and with four
        cells = cells_of("", "_sibling_again", "_again", name)
        assert regret.by_world(cells["sibling"], "checked_hints") in length_page
    kinds = "perfect", "noise_15", "noise_30", "noise_50", "faulty_key_15", "faulty_key_30", "another_problem"
    again = cells_of("_other_worlds", "_sibling_again")
    part = length_page[length_page.index('<a id="two-other-worlds">') : length_page.index('<a id="siblings-rollouts">')]
    part = part.replace("*", "")
    worst = regret.regrets({kind: again[kind] for kind in kinds})
    for method, by_kind in worst.items():
        shown = [f"{regret.mean_of(again[kind][method]):.1f}" for kind in kinds]
        assert f"| {method} | {' | '.join(shown)} | {max(by_kind.values()):.1f} |" in part


@pytest.mark.parametrize(
    "kind, short, long",
    [("faulty_key_30", "_faulty_key_200", "_faulty_key_400"), ("sibling", "_sibling_tuned", "_sibling_400")],
)
def test_the_page_shows_short_and_long_tuning_runs(length_page, kind, short, long):
    import regret

    grpo = "_again", "", "_sibling_again"
    tables = [(*grpo, short), (*grpo, short, long)] if kind == "faulty_key_30" else [(*grpo, long)]
    for names in tables:
        assert regret.by_world(cells_of(*names)[kind], "checked_hints") in length_page
    part = length_page[length_page.index({"faulty_key_30": '<a id="a-faulty-key', "sibling": '<a id="siblings-'}[kind]) :]
    rows = {tuple(cell.strip(" *") for cell in line.split("|")[1:-1]) for line in part.splitlines() if line.startswith("| ")}
    tried: dict[tuple[str, str], list[str]] = {}
    for name in (short, long):
        by_setting: dict[tuple[str, str], list[dict[str, float]]] = {}
        for run in read(f"hint_forms{name}"):
            if run["seed"] >= 1000:
                by_setting.setdefault((run["method"], setting_in_words(run["strength"])), []).append(run)
        assert len(by_setting) == 16
        for setting, runs in by_setting.items():
            assert len(runs) == 4
            reward, success = (mean(run[figure] for run in runs) for figure in ("training_reward", "success"))
            tried.setdefault(setting, []).append(f"{reward:.3f} ({100 * success:.1f})")
    assert {(*setting, *cells) for setting, cells in tried.items()} <= rows


def setting_in_words(strength: dict[str, float]) -> str:
    if "alpha" in strength:
        return f"α {strength['alpha']:g}"
    if "coefficient" in strength and "full_trust" not in strength:
        return f"{'first' if 'beta' in strength else 'later'} form, coefficient {strength['coefficient']:g}"
    return ", ".join(f"{name} {value:g}" for name, value in strength.items())


def test_the_page_shows_what_longer_tuning_runs_change(length_page):
    import tuning_length

    of_short, of_long = read("hint_forms"), [run for name in LONG for run in read(f"hint_forms{name}")]
    assert tuning_length.success(of_short, of_long) in length_page
    assert tuning_length.settings(of_short, of_long) in length_page
    for run in of_long:  # every reported run has the setting that its tuning chose
        if run["seed"] < 1000 and run["method"] != "grpo":
            assert tuning_length.in_words(run["strength"]) == tuning_length.chosen(of_long, run["column"], run["method"])


def test_the_page_shows_kinds_of_hint_as_the_published_runs_have_them(page):
    import evidence_pictures
    import regret

    cells = evidence_pictures.hint_cells()
    assert regret.by_kind(cells, "checked_hints") in page
    assert "hint_forms{" + ",".join(evidence_pictures.HINT_RUNS) + "}.json --by-kind" in page
    worst = dict(part.split(" ", 1) for part in regret.in_words(cells).split("), "))
    worst = {method: figure.rstrip(")") + ")" for method, figure in worst.items()}
    shown = "; GEAR has {gear}, RLSD {rlsd}, OPSD {opsd}, GRPO {grpo}.".format(**worst)
    assert f"worst regret of `checked_hints` is {worst['checked_hints']}**{shown}" in page
    assert page.count(f"worst regret is {worst['checked_hints']}") == 1  # in the table of claims
    reported = [run for run in hint_runs() if run["method"] == "oracle" and run["seed"] < 1000]
    oracle = {(run["world"], run["seed"]): 100 * run["success"] for run in reported}
    assert f"The oracle has {mean(oracle.values()):.1f}." in page


def test_every_run_of_the_table_has_the_setting_that_long_tuning_runs_chose(page):
    import evidence_tables
    import tuning_length

    long = [run for name in LONG for run in read(f"hint_forms{name}")]
    best, checked = tuning_length.best(long), 0
    used = {}
    for run in hint_runs():
        if run["seed"] < 1000 and run["method"] in ("grpo", *evidence_tables.READERS):
            used[run["column"], run["method"], run["world"], run["seed"]] = run  # the later file counts, as in regret.py
    for (kind, method, _, _), run in used.items():
        assert tuning_length.setting_of(run) == best[kind][method], run
        assert run["steps"] == 400 and "teacher" not in run
        checked += 1
    assert checked == 4 * (6 * 12 + 16 + 2 * 20) + 20


def test_short_and_long_tuning_have_their_worst_regrets(length_page):
    import regret

    short = cells_of("", *AGAIN, "_faulty_key_200", "_sibling_tuned")
    two_worlds = cells_of("", "_faulty_key_400", "_sibling_400", "_400")
    for cells, words in ((short, "with short tuning is {}"), (two_worlds, "`checked_hints` {};")):
        low, high = regret.worst_intervals(cells)["checked_hints"]
        worst = max(regret.regrets(cells)["checked_hints"].values())
        assert words.format(f"{worst:.1f} ({low:.1f} to {high:.1f})") in length_page


@pytest.mark.parametrize("name", ["methods", "hints"])
def test_the_pictures_are_drawn_from_the_published_runs(page, name):
    import evidence_pictures

    stored = BENCHMARKS.parent / "docs" / "images" / f"evidence_{name}.svg"
    assert stored.read_text() == getattr(evidence_pictures, name)() and f"images/{stored.name}" in page


def test_the_page_shows_the_language_model_as_the_published_runs_have_it(page):
    import words_alpha
    import words_pooled
    import words_rates
    import words_settings

    names = ("", "_second", "_third", "_fourth", "_fifth", "_sixth", "_seventh", "_eighth", "_ninth", "_tenth")
    assert words_pooled.table(words_pooled.read([RESULTS / f"words_smollm2{name}_h200.json" for name in names])) in page
    records = read_page("evidence_records")
    assert words_rates.table(json.loads((RESULTS / "words_smollm2_tenth_h200.json").read_text())["runs"]) in records
    assert words_alpha.table(json.loads((RESULTS / "words_smollm2_eleventh_h200.json").read_text())["runs"]) in records
    tuned = words_settings.read([RESULTS / f"words_smollm2_{name}_h200.json" for name in ("twelfth", "thirteenth")])
    assert words_settings.tuning_table(tuned) in records
    assert words_settings.table(tuned) in page and words_settings.distances(tuned) in page


def test_no_published_run_stands_twice_in_its_file():
    for file in sorted(RESULTS.glob("*.json")):
        found = json.loads(file.read_text())
        runs = found["runs"] if isinstance(found, dict) and isinstance(found.get("runs"), list) else []
        lines = [json.dumps(run, sort_keys=True) for run in runs]
        assert len(lines) == len(set(lines)), file.name


def test_the_page_shows_what_is_left_with_shuffled_outcomes(page):
    import shuffled_outcomes

    tables = [json.loads((RESULTS / f"{name}.json").read_text()) for name in ("controls", "controls_of_peers")]
    columns = [column["runs"] for found in tables for column in found["columns"].values()]
    assert len(columns) == 4 and shuffled_outcomes.table(columns) in page


def test_the_page_shows_what_another_problems_hint_does_to_credit(page):
    column = json.loads((RESULTS / "wrong_hints.json").read_text())["columns"]["another_problem"]
    part = page[page.index('<a id="another-problems-hint">') : page.index('<a id="segments">')]
    for row in column["summary"]["rows"]:
        runs = [run for run in column["runs"] if run["method"] == row["method"]]
        worlds = [mean(100 * run["success"] for run in runs if run["world"] == world) for world in (1, 2, 3)]
        shown = [f"{value:.1f}" for value in (*worlds, mean(100 * run["success"] for run in runs))]
        name = row["method"].removesuffix("+wrong_hint")
        assert f"| {name} | {', '.join(shown[:3])} | {shown[3]} |" in part
        assert f"| {row['collapsed']} of {len(runs)} |" in part


def test_the_page_shows_what_is_to_gain_without_luck(page):
    columns = json.loads((RESULTS / "no_luck.json").read_text())["columns"]
    part = page[page.index('<a id="where-nobody-wins-by-luck">') :]
    for method in ("grpo", "gear", "rlsd", "oracle"):
        row = next(line for line in part.splitlines() if line.startswith(f"| {method} |")).split(" | ")
        means = [
            mean(100 * run["success"] for run in columns[name]["runs"] if run["method"] == method) for name in columns
        ]
        assert row[1::2][:2] == [f"{value:.1f}" for value in means]
