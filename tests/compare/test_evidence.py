"""benchmarks/evidence.py: its tables are plans that can be run, equal runs are made once, and a small part of one runs."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
from forked import ForkedScript, fork_workers

from gear_rl.cli.main import main
from gear_rl.compare.jobs import Job, Setting
from gear_rl.errors import GearError
from gear_rl.methods import METHODS
from gear_rl.training.run_folder import RunFolder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def evidence(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import evidence

    return evidence


def test_every_table_is_a_set_of_plans(evidence):
    for name, table in evidence.TABLES.items():
        columns = table(evidence.Budget())
        assert columns and table.__doc__ and any("grpo" in plan.methods for plan in columns.values()), name
        assert all(set(plan.worlds).isdisjoint(plan.tuning_worlds) for plan in columns.values())
    forms = evidence.TABLES["hint_forms"](evidence.Budget())
    assert len(forms) == 10 and "gear+sibling_hint" in forms["sibling"].methods
    tuning, reported = forms["perfect"].tuning_jobs()[0], Job("gear", Setting(6e-4), 0, 1)
    assert [forms["perfect"].config(job).train.steps for job in (tuning, reported)] == [200, 400]


def test_every_method_is_in_a_table(evidence):
    tables = [evidence.TABLES[name](evidence.Budget()) for name in ("headline", "segments", "controls", "every_method")]
    compared = {method for columns in tables for plan in columns.values() for method in plan.methods}
    assert set(METHODS) <= compared | {"wrong_hint"} and "gear+wrong_hint" in compared
    rest = [method for plan in tables[-1].values() for method in plan.methods if method != "grpo"]
    assert len(rest) == len(set(rest))


def test_regret_is_the_distance_to_the_best_over_what_all_have(evidence):
    import regret

    def run(column: str, method: str, success: float, world: int = 1, seed: int = 0) -> dict:
        return {"column": column, "method": method, "success": success, "world": world, "seed": seed}

    runs = [
        run("right", "gear", 0.9),
        run("right", "gear", 0.1, world=2),
        run("right", "opsd", 0.5),
        run("wrong", "gear", 0.2),
    ]
    runs += [run("wrong", "opsd", 0.4), run("right", "opsd", 1.0, seed=1000)]  # the last is a tuning run
    runs += [run("right", "another_form", 1.0)]  # does not take part
    runs += [run("no_hint", "grpo", 0.3), run("no_hint", "oracle", 1.0)]
    cells = regret.cells_of(runs)
    assert all(list(cells["right"][name]) == [(1, 0)] for name in ("gear", "opsd", "grpo"))
    drawn = regret.table(cells)
    assert "| gear | 90.0 | 20.0 | 20.0 (20.0 to 20.0), wrong |" in drawn
    assert "| grpo | 30.0 | 30.0 | 60.0 (60.0 to 60.0), right |" in drawn


def test_a_method_is_set_beside_the_best_of_the_others_pair_by_pair(evidence):
    import regret

    ours = {(1, 0): 50.0, (1, 1): 60.0, (2, 0): 40.0}
    cells = {"hint": {"ours": ours, "best": {(1, 0): 52.0, (1, 1): 58.0, (2, 0): 48.0}, "worse": dict.fromkeys(ours, 0.0)}}
    row = regret.beside_the_best(cells, "ours").splitlines()[-1]
    assert row.startswith("| hint | best | −2.7 (−8.0 to +2.0) | 1 of 3 | 1: 0.0, 2: −8.0 | 16.4 |")

    first = {"column": "hint", "method": "gear", "success": 0.1, "world": 1, "seed": 0}
    cells = regret.cells_of([first, first | {"method": "opsd"}, first | {"success": 0.7}])
    assert cells["hint"]["gear"] == {(1, 0): 70.0}  # the later source replaces the earlier run


def test_the_interval_of_the_worst_regret_knows_a_run_that_collapsed(evidence):
    import regret

    places = [(world, seed) for world in (1, 2) for seed in range(4)]
    steady = {place: 50.0 for place in places}
    cells = {"hint": {"steady": steady, "sometimes": steady | {(1, 0): 0.0}}}
    assert regret.regrets(cells)["sometimes"]["hint"] == pytest.approx(6.25)
    low, high = regret.worst_intervals(cells)["sometimes"]
    assert low == 0 and 12.5 <= high < 25
    assert regret.worst_intervals(cells)["steady"] == (0, 0)

    few = {"one_run": {"steady": {(1, 0): 10.0}, "sometimes": {(1, 0): 90.0}}}  # each column's seeds are drawn by themselves
    assert regret.worst_intervals(cells | few)["steady"] == (80, 80)
    one, other = ({(1, seed): value for seed, value in enumerate(values)} for values in ((60.0, 0.0), (0.0, 60.0)))
    best_changes = regret.worst_intervals({"hint": {"one": one, "other": other}})
    assert best_changes["one"] == best_changes["other"] == (0, 60)  # equal on average, best in turn


def test_runs_without_a_hint_are_made_once_for_all_hints(evidence, tmp_path):
    hints = {"perfect": {}, "noise_30": {"hint_errors": 0.3}}
    columns = {name: evidence.Budget().plan(["grpo", "gear", "oracle"], task=task) for name, task in hints.items()}
    jobs = {name: plan.tuning_jobs() for name, plan in columns.items()}
    keys = {
        name: {job.method: evidence.key(columns[name].config(job).as_dict()) for job in jobs[name]}
        for name in ("perfect", "noise_30")
    }
    assert (
        keys["perfect"]["grpo"] == keys["noise_30"]["grpo"] and keys["perfect"]["oracle"] == keys["noise_30"]["oracle"]
    )
    assert keys["perfect"]["gear"] != keys["noise_30"]["gear"]
    first = jobs["perfect"][0]
    run = tmp_path / "hint_forms" / "perfect" / "runs" / first.name
    run.parent.mkdir(parents=True)
    RunFolder.create(run, columns["perfect"].config(first).as_dict())
    (run / "evaluation.json").write_text('{"before": {}, "after": {}}')
    others = tmp_path / "hint_forms" / "noise_30" / "runs"
    evidence.reuse(columns["noise_30"], jobs["noise_30"], others, tmp_path)
    assert first.method == "grpo" and [path.name for path in others.iterdir()] == [first.name]


def test_divergence_is_largest_at_wrong_tools(evidence):
    import divergence_by_kind

    from gear_rl.tasks.workshop import Workshop

    found = divergence_by_kind.measure(Workshop(), 60)
    assert sum(part["share"] for part in found.values()) == pytest.approx(1) == sum(p["top"] for p in found.values())
    assert sum(part["tokens"] for part in found.values()) > 60 * 20
    assert found["wrong tool"]["mean"] > 5 * found["filler"]["mean"] and found["wrong tool"]["tokens"] > 20
    assert divergence_by_kind.picture(found, "x").count("<rect") == 1 + 3 * len(found)


def test_the_sensitivity_plot_has_a_panel_per_option(evidence):
    import sensitivity_plot

    def column(success: float) -> dict:
        rows = [{"method": m, "success": {"mean": success}} for m in ("grpo", "gear")]
        runs = [
            {"method": m, "success": s} for m, s in (("grpo", 0.0), ("gear", success - 0.1), ("gear", success + 0.1))
        ]
        return {"summary": {"rows": rows}, "runs": runs}

    names = evidence.TABLES["sensitivity"](evidence.Budget())
    drawn = sensitivity_plot.picture({"columns": {name: column(0.5) for name in names}})
    assert drawn.count("<circle") == len(names) and ">tau_kl<" in drawn and ">teacher<" in drawn


@pytest.mark.slow
def test_a_small_part_of_a_table_runs_and_stops_in_time(tmp_path):
    command = [BENCHMARKS / "evidence.py", "controls", "--smoke", "--workers", "2", "--out", tmp_path]

    def run(*more: str) -> str:
        done = ForkedScript([*command, *more], fork_workers).wait(250)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert "0 of 1 columns are complete; to continue" in run("--minutes", "0")
    assert "0 of 1" in run("--minutes", "0", "--tuning-steps", "1", "--out", str(tmp_path / "short"))
    assert json.loads((tmp_path / "short/controls/perfect/compare.json").read_text())["tuning_steps"] == 1
    assert "1 of 1 columns are complete" in run("--tune-only")
    tuning = json.loads((tmp_path / "controls_tuning.json").read_text())["columns"]["perfect"]
    assert {method: len(each) for method, each in tuning["tried"].items()} == {"grpo": 4, "gear": 4}
    assert all(tuning["tried"][m][tuning["chosen"][m]] == max(tuning["tried"][m].values()) for m in ("grpo", "gear"))
    made = tmp_path / "controls" / "perfect" / "runs"
    assert len(list(made.glob("*/config.json"))) == 8  # no reported run yet
    assert "0 of 1 columns are complete; to continue" in run("--report", "gear")
    reported = {path.name.partition("-")[0] for path in made.iterdir() if path.is_dir() and "-100" not in path.name}
    assert reported == {"gear"}
    assert "1 of 1 columns are complete" in run()
    column = json.loads((tmp_path / "controls.json").read_text())["columns"]["perfect"]
    methods = {run["method"] for run in column["runs"]}
    assert methods == {"grpo", "gear", "shuffled_outcomes", "gear+wrong_hint", "grpo+shuffled_outcomes"}
    assert all(len(found) == 4 for found in column["summary"]["tried"].values())
    assert "outcomes shuffled" in (tmp_path / "controls.md").read_text()


def test_pooled_pairs_are_of_one_warm_start_and_seed(evidence, tmp_path):
    import words_pooled

    def run(arm, seed, success, rate=3e-5):
        after = {"sampled": {"success": success}}
        return {"arm": arm, "hint": "calls", "seed": seed, "learning_rate": rate, "after": after}

    first = [
        run("grpo", 0, 0.1),
        run("grpo", 1, 0.2),
        run("gear", 0, 0.4),
        run("gear", 2, 0.9),
        run("gear", 1, 0.9, 1e-4),
    ]
    second = [run("grpo", 1, 0.3), run("gear_alpha4", 1, 0.4)]
    for name, runs in (("a", first), ("b", second)):
        (tmp_path / name).write_text(json.dumps({"runs": runs}))
    runs = words_pooled.read([tmp_path / "a", tmp_path / "b"])
    assert words_pooled.differences(runs, "calls", "gear", "grpo") == {0: pytest.approx([30]), 1: pytest.approx([10])}
    assert "| right | gear over grpo | 2, 2 | +20.0 | +10.0 to +30.0 |" in words_pooled.table(runs)


def test_rates_of_the_words_task_are_chosen_by_reward_on_the_tuning_seed(evidence, monkeypatch):
    import words_rates

    monkeypatch.setattr(words_rates, "RATES", (1e-5, 3e-5))

    def run(arm, rate, seed, reward, success):
        after = {how: {"success": success} for how in ("sampled", "greedy")}
        curves = {"reward": [1.0, reward]}  # the first half must not count
        return {"arm": arm, "hint": "calls", "learning_rate": rate, "seed": seed, "after": after, "curves": curves}

    runs = [run("grpo", 1e-5, 1000, 0.6, 0.2), run("grpo", 3e-5, 1000, 0.5, 0.9), run("gear", 1e-5, 1000, 0.6, 0.4)]
    assert words_rates.choose(words_rates.tuned(runs)) == {"grpo": 1e-5}  # gear lacks a run
    assert "| gear | 0.600 (40.0) |  |  |  |  |  |" in words_rates.table(runs)
    runs += [run("gear", 3e-5, 1000, 0.8, 0.3), run("grpo", 3e-5, 0, 0.9, 0.9), run("grpo", 1e-5, 0, 0.9, 0.1)]
    runs += [run("gear", 3e-5, 1, 0.9, 0.7), run("gear", 3e-5, 0, 0.9, 0.5)]
    assert words_rates.choose(words_rates.tuned(runs)) == {"grpo": 1e-5, "gear": 3e-5}
    shown = words_rates.table(runs)
    assert "| grpo | 0.600 (20.0) | 0.500 (90.0) | 1e-05 | 10.0 |  | 10.0 |" in shown
    assert "| gear | 0.600 (40.0) | 0.800 (30.0) | 3e-05 | 50.0, 70.0 | +40.0 | 60.0 |" in shown  # seed 1 has no partner


def test_settings_of_the_words_task_are_tuned_apart_from_what_is_reported(evidence, tmp_path):
    import words_runs
    import words_settings as settings

    assert {len(each) for each in settings.GRID.values()} == {4}  # the same budget for all
    assert {arm for each in settings.GRID.values() for arm, _ in each} <= words_runs.ARMS.keys()
    asked = Namespace(model="tuning", device="cpu", methods=["grpo", "gear"], seeds=[0, 1], tuned=[], hints=["calls"])
    first = settings.plan(asked, {}, {"world": 1})
    assert len(first) == 8 and {(r.seed, r.config["model"], r.config["task"]["world"]) for r in first} == {(1000, "tuning", 1)}
    rewards = dict(zip(settings.GRID["gear"], (0.6, 0.9, 0.7, 0.8), strict=True))

    def run(one, seed, reward, success, world=1):
        after = {"sampled": {"success": success}, "greedy": {"success": success}}
        curves = {"reward": [1.0, reward]}  # the first half must not count
        known = {"hint": "calls", "seed": seed, "world": world, "after": after, "curves": curves}
        return {"arm": one[0], "learning_rate": one[1], **known}

    runs = [run(one, 1000, reward, 0.9 - reward) for one, reward in rewards.items()]
    assert settings.choose([*runs[:3], run(settings.GRID["gear"][3], 1000, float("nan"), 0.9)], "calls") == {}
    assert settings.choose(runs[:3], "calls") == {}  # no choice from a part of the budget
    assert settings.choose(runs, "calls") == {"gear": ("gear_alpha8", 6e-5)}  # by reward, not by success
    elsewhere = {**run(settings.GRID["gear"][0], 1000, 1.0, 0.0), "start": "another"}
    chosen = settings.choose(runs, "calls")
    assert settings.choose([elsewhere, *runs, elsewhere], "calls") == chosen  # a method is tuned in one warm start
    file = tmp_path / "tuned.json"
    file.write_text(json.dumps({"runs": runs}))
    later = Namespace(**{**vars(asked), "model": "other", "tuned": [file]})
    with pytest.raises(SystemExit, match="no choice for grpo"):
        settings.plan(later, {}, {"world": 2})
    runs += [run(one, 1000, 0.5, 0.1) for one in settings.GRID["grpo"]]
    file.write_text(json.dumps({"runs": runs}))
    planned = settings.plan(later, {}, {"world": 2})
    assert [(r.arm, r.seed) for r in planned] == [("grpo", 0), ("gear_alpha8", 0), ("grpo", 1), ("gear_alpha8", 1)]
    assert {(r.config["model"], r.config["task"]["world"]) for r in planned} == {("other", 2)}
    both = {"seeds": [0], "hints": ["calls", "bias30"]}
    first = settings.plan(Namespace(**{**vars(asked), **both}), {}, {"world": 1})
    assert [r.hint for r in first] == ["calls"] * 8 + ["bias30"] * 4  # GRPO reads no hint
    with pytest.raises(SystemExit, match="no choice for gear:bias30"):  # never with the settings of another kind
        settings.plan(Namespace(**{**vars(later), **both}), {}, {"world": 2})
    rewards = zip(settings.GRID["gear"], (0.9, 0.6, 0.5, 0.5), strict=True)
    runs += [{**run(one, 1000, reward, 0.1), "hint": "bias30"} for one, reward in rewards]
    file.write_text(json.dumps({"runs": runs}))
    hints = settings.plan(Namespace(**{**vars(later), **both}), {}, {"world": 2})
    assert [(r.arm, r.hint) for r in hints] == [("grpo", "calls"), ("gear_alpha8", "calls"), ("gear_alpha4", "bias30")]
    with pytest.raises(SystemExit, match="another handbook"):
        settings.plan(later, {}, {"world": 1})
    with pytest.raises(SystemExit, match="--seeds"):
        settings.plan(Namespace(**{**vars(later), "seeds": [0, 1000]}), {}, {"world": 2})
    best = settings.choose(runs, "calls")
    runs += [run(best["gear"], 0, 0.5, 0.5, 2), run(best["gear"], 1, 0.5, 0.7, 2), run(best["grpo"], 1, 0.5, 0.2, 2)]
    runs += [run(best["gear"], 1, 0.5, 0.4, 3), run(best["grpo"], 1, 0.5, 0.3, 3)]  # the same seed of another handbook
    faulty = settings.choose(runs, "bias30")["gear"]
    runs += [{**run(faulty, 1, 0.5, success, world), "hint": "bias30"} for success, world in ((0.1, 3), (0.2, 2))]
    runs += [{**run(best["gear"], 1, 0.5, 0.9, 3), "hint": "bias30"}]  # not the setting of this kind
    assert "| gear | gear_alpha8 | 6e-05 | 0.900 (0.0) | yes |" in settings.tuning_table(runs)
    assert "| gear | gear_alpha8, 6e-05 | 50.0, 70.0 | 40.0 | 53.3 | 53.3 |" in settings.table(runs)
    assert "| gear | gear_alpha4, 6e-05 | 20.0 | 10.0 | 15.0 | 15.0 |" in settings.table(runs, "bias30")
    apart = settings.distances(runs)
    assert "| right | gear over grpo | 2, 2 | +30.0 |  | +10.0 to +50.0 | +30.0 |" in apart  # seed 0 has no partner
    assert "| faulty key | gear over grpo | 2, 2 | −10.0 |  | −20.0 to 0.0 | −10.0 |" in apart  # GRPO reads no hint
    runs += [run(best["gear"], 1, 0.5, 0.3, 4), run(best["grpo"], 1, 0.5, 0.3, 4), run(best["gear"], 2, 0.5, 0.4, 4)]
    runs += [run(best["grpo"], 2, 0.5, 0.4, 4)]  # handbook 4: twice no difference
    for world, start, message in ((1, None, "handbook 1, where"), (4, None, "two runs of gear"), (5, "other", "several warm")):
        wrong = [run(best["gear"], 1, 0.5, 0.4, world) | {"start": start}, run(best["grpo"], 2, 0.5, 0.4, 5)]
        with pytest.raises(SystemExit, match=message):
            settings.table([*runs, *wrong])
    row = next(line for line in settings.distances(runs).splitlines() if line.startswith("| right | gear over grpo"))
    assert "| 4, 3 | +15.0 (−22.9 to +52.9) | +20.0 (−45.7 to +85.7) |" in row


def test_a_frozen_teacher_is_compared_with_a_live_one_on_the_same_seeds(evidence):
    import words_teacher as teacher

    asked = Namespace(model="warm", device="cpu", seeds=[0, 1])
    planned = teacher.plan(asked, {"eval_rows": 64}, {"world": 3})
    assert [(one.hint, one.arm, one.seed) for one in planned[:4]] == [
        ("answer", "gear_alpha4_base", 0), ("answer", "gear_alpha4", 0),
        ("calls", "gear_alpha4_base", 0), ("calls", "gear_alpha4", 0),
    ]  # fmt: skip
    assert len(planned) == 8 and len({one.name for one in planned}) == 8
    teachers = {(one.arm, one.config["train"]["teacher"]) for one in planned}
    assert teachers == {("gear_alpha4_base", "base"), ("gear_alpha4", "live")}
    assert all(one.config["credit"] == {"name": "gear", "alpha": 4.0} for one in planned)

    def run(arm: str, seed: int, success: float) -> dict:
        after = {"sampled": {"success": success}, "greedy": {"success": success + 0.1}}
        return {"arm": arm, "hint": "answer", "seed": seed, "after": after, "curves": {"divergence": [9.0, 9.0, 0.2, 0.4]}}

    runs = [run("gear_alpha4", 0, 0.02), run("gear_alpha4", 1, 0.2), run("gear_alpha4_base", 0, 0.15)]
    drawn = teacher.table(runs, start=16.0)
    assert "| answer only | live | 2.0, 20.0 | 11.0 | 21.0 |  | 0.300 | 1 of 2 |" in drawn
    assert "| answer only | base | 15.0 | 15.0 | 25.0 | +13.0 | 0.300 | 0 of 1 |" in drawn and "right" not in drawn


def test_the_headline_is_repeated_with_the_best_settings_over_worlds(evidence, tmp_path, monkeypatch):
    import headline_again as again

    headline = json.loads(again.HEADLINE.read_text())["columns"]["perfect"]
    first = again.rewards_of(headline, [])
    assert again.best(first) == {run["method"]: run["setting"] for run in headline["runs"]}  # as its own tuning chose
    flat = {method: dict.fromkeys(settings, 0.5) for method, settings in first["4"].items()}
    other = flat | {"gear": flat["gear"] | {"0.0003 alpha=1": 0.9}}
    tuned_on_5 = headline["plan"] | {"tuning_worlds": [5]}
    rewards = again.rewards_of(headline, [{"plan": tuned_on_5, "tried": other}])
    chosen = again.best(rewards)
    assert chosen["gear"] == "0.0003 alpha=1" and chosen["rlsd"] == again.best(first)["rlsd"]
    assert "| gear | 0.0006 alpha=4 | 0.0003 alpha=1 | 0.0003 alpha=1 |" in again.tuning_table(rewards)
    with pytest.raises(GearError, match="other methods or settings"):
        again.rewards_of(headline, [{"plan": tuned_on_5, "tried": {"gear": flat["gear"]}}])
    with pytest.raises(GearError, match="other methods or settings"):
        again.rewards_of(headline, [{"plan": tuned_on_5 | {"settings": {}}, "tried": other}])
    with pytest.raises(GearError, match="twice"):
        again.rewards_of(headline, [{"plan": headline["plan"], "tried": other}])
    (tmp_path / "empty.json").write_text('{"columns": {}}')
    for given, message in (([tmp_path / "empty.json"], "no finished tuning"), (["--seeds", "13"], "has 12 a world")):
        monkeypatch.setattr("sys.argv", ["headline_again.py", *map(str, given), "--out", str(tmp_path / "out")])
        with pytest.raises(GearError, match=message):
            again.main()
    assert not (tmp_path / "out").exists()  # before any run
    plan, settings = again.plan_of(headline, chosen, 2)
    jobs = plan.comparison_jobs(settings)
    assert len(jobs) == 42 and {str(job.setting) for job in jobs if job.method == "gear"} == {"0.0003 alpha=1"}
    assert plan.config(jobs[0]).train.eval_rows == 2500 and plan.config(jobs[0]).train.steps == 200
    figures = [("grpo", 0.2, 0.3), ("grpo", 0.4, 0.3), ("gear", 0.5, 0.4), ("gear", 0.5, 0.6)]
    runs = [
        {"method": method, "setting": "s", "world": 1, "seed": i % 2, "headline": few, "sampled": many, "greedy": many}
        for i, (method, few, many) in enumerate(figures)
    ]
    assert "| gear | s | 50.0 | 50.0 | 50.0 | +20.0 | +20.0 (" in again.table(runs)
    page, made = (BENCHMARKS.parent / "docs" / "evidence.md").read_text(), BENCHMARKS / "results" / "headline_again.json"
    published = json.loads(made.read_text())
    assert again.tuning_table(published["tuning"]) in page and again.table(published["runs"]) in page


@pytest.mark.parametrize(("errors", "right"), [(0, 1.0), (0.5, 0.85)])
def test_the_sign_gate_is_an_oracle_only_with_right_hints(evidence, tmp_path, errors, right):
    import sign_gate

    small = ["steps=1", "prompts=4", "generations=4", "eval_rows=2", "record_every=1"]
    sets = [word for name in small for word in ("--set", f"train.{name}")]
    assert main(["train", *sets, "--set", f"task.hint_errors={errors}", "--out", str(tmp_path / "run")]) == 0
    found = sign_gate.count(tmp_path / "run")
    assert found.decisions > found.differ > 50
    assert found.agree == found.differ if right == 1 else found.agree / found.differ < right
