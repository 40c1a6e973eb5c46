"""Kinds of hint in benchmarks/: the table with a row for each, and published settings on other worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gear_rl.compare.jobs import Setting
from gear_rl.errors import GearError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run(method: str, reward: float, seed: int = 1000, world: int = 4, column: str = "noise_15", **strength: float) -> dict:
    known = {"column": column, "method": method, "rate": 6e-4, "strength": strength, "world": world, "seed": seed, "steps": 400}
    return known | {"success": 1 - reward, "training_reward": reward}


def test_settings_of_published_tuning_runs_are_reported_elsewhere(scripts):
    import hint_forms_elsewhere as elsewhere
    import tuning_length

    tuned = [run("gear", 0.6, alpha=2.0), run("gear", 0.7, alpha=8.0), run("opsd", 0.5, coefficient=1.0)]
    tuned += [run("gear", 0.1, seed=1001, alpha=8.0), run("gear", 0.6, seed=1001, alpha=2.0)]  # so 2 has the higher mean
    tuned += [run("gear", 0.99, seed=0, world=1, alpha=4.0)]  # reported, so it chooses nothing
    assert tuning_length.best(tuned) == {
        "noise_15": {"gear": Setting(6e-4, (("alpha", 2.0),)), "opsd": Setting(6e-4, (("coefficient", 1.0),))}
    }
    assert tuning_length.chosen(tuned, "noise_15", "gear") == "2"
    known = [run("gear", 0.5, seed=1, world=3, alpha=2.0), run("gear", 0.5, seed=0, world=3, alpha=8.0)]
    known += [run("gear", 0.5, seed=0, world=5, alpha=2.0) | {"steps": 200}]
    (kind, (plan, jobs)), *more = elsewhere.plan(tuned, known, (3, 5), 2).items()
    assert kind == "noise_15" and not more
    assert [job.name for job in jobs if job.method == "gear"] == [
        "gear-0.0006-alpha2-w3-0", "gear-0.0006-alpha2-w5-0", "gear-0.0006-alpha2-w5-1",
    ]  # fmt: skip
    assert len(jobs) == 7
    config = plan.config(jobs[0])
    assert config.train.steps == 400 and config.task_options == {"hint_errors": 0.15, "world": 3}
    siblings = [run("gear", 0.6, column="sibling", alpha=2.0)]
    names = [job.method for job in elsewhere.plan(siblings, [], (3,), 2)["sibling"][1]]
    assert names == ["gear+sibling_hint"] * 2
    two = [run("opsd", 0.5, beta=0.5, coefficient=1.0), run("opsd", 0.5, coefficient=1.0, beta=0.5)]
    assert tuning_length.setting_of(two[0]) == tuning_length.setting_of(two[1])
    with pytest.raises(GearError, match="400 steps"):
        elsewhere.plan([one | {"steps": 200} for one in tuned], [], (3, 5), 2)
    with pytest.raises(GearError, match=r"chosen on \[4\]"):
        elsewhere.plan(tuned, [], (3, 4), 2)


def test_a_row_for_each_kind_of_hint_says_how_far_behind_a_method_is_in_each_world(scripts):
    import regret

    def values(first: float, second: float) -> dict:
        return {(1, 0): first, (1, 1): first, (2, 0): second}

    others = {"grpo": values(30.0, 30.0), "rlsd": values(30.0, 30.0), "opsd": values(40.0, 60.0)}
    cells = {"answer_only": {**others, "gear": values(60.0, 0.0), "checked_hints": values(50.0, 57.0)}}
    cells["perfect"] = {name: values(50.0, 50.0) for name in (*others, "gear", "checked_hints")}
    first, second = regret.by_kind(cells, "checked_hints").splitlines()[2:]
    assert first.startswith("| right | 3 | **50.0** | 50.0 | 50.0 | 50.0 | 50.0 | 0.0 |")
    assert second == "| answer only | 3 | 30.0 | 40.0 | 30.0 | 46.7 | **52.3** | 0.0 | 1: 10.0, 2: 3.0 |"
    assert regret.in_words(cells).startswith("checked_hints 0.0 (0.0 to ")
