"""`gear tasks` and `gear train --settings`: every task and setting, within a terminal's width."""

import json
from dataclasses import fields

import pytest

from gear_rl.cli.main import main
from gear_rl.tasks import TASKS, find_task
from gear_rl.training.config import TrainOptions


@pytest.fixture
def shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        assert main(list(words)) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        return out

    return run


def test_all_tasks(shown):
    out = shown("tasks")
    for name in (*TASKS, "FILE.jsonl"):
        assert any(line.startswith(name + " ") for line in out.splitlines())
    assert "[train, test, math500]" in out and "package.module:Class" in out


@pytest.mark.parametrize("name", [*TASKS, "mine.jsonl"])
def test_one_task_in_full(shown, name):
    out = shown("tasks", name)
    names = [f.name for f in fields(find_task(name)) if f.init and f.name != "path"]
    assert all(f"  {option} " in out for option in names) and "--set task.NAME=VALUE" in out


def test_tasks_as_json(capsys):
    assert main(["tasks", "--json"]) == 0
    listed = {task["name"]: task for task in json.loads(capsys.readouterr().out)}
    assert list(listed) == [*TASKS, "FILE.jsonl"]
    assert listed["gsm8k"]["hint_forms"] == ["solution", "answer"] and listed["aime24"]["splits"] == ["test"]
    steps = next(option for option in listed["workshop"]["options"] if option["name"] == "steps")
    assert steps["default"] == 6 and steps["range"].startswith("one of 4, 6, 8, 12")


def test_an_unknown_task_is_explained(capsys):
    assert main(["tasks", "gms8k"]) == 2
    assert "Did you mean 'gsm8k'" in capsys.readouterr().err


def test_every_setting_of_a_run(shown):
    out = shown("train", "--settings", "--task", "gsm8k", "--credit", "rlsd", "--set", "task.hint=answer")
    assert out.startswith("task gsm8k, method rlsd.")
    assert all(f"  train.{name} = " in out for name in TrainOptions.__dataclass_fields__)
    assert "  credit.clip = 0.2    a number, above 0 and at most 1" in out and "  task.hint = answer (default None)" in out


@pytest.mark.parametrize(("name", "given"), [("mine.jsonl", "path"), ("verifiers:any_set", "environment")])
def test_what_a_tasks_name_gives_is_no_setting(shown, capsys, name, given):
    for out in (shown("train", "--settings", "--task", name), shown("tasks", name)):
        assert "(required)" not in out and f"  task.{given} " not in out and f"\n  {given} " not in out
    assert main(["train", "--task", name, "--set", f"task.{given}=other"]) == 2
    assert f"task {name}: its name gives {given}; leave out {given}='other'." in capsys.readouterr().err
    if name.startswith("verifiers:"):
        assert "  task.environment (required)" in shown("train", "--settings", "--task", "verifiers")


def test_settings_of_a_run_that_cannot_be_are_refused(capsys, tmp_path):
    for words, says in (
        (["--settings", "--credit", "geer"], "Did you mean 'gear'"),
        (["--settings", "--set", "train.stepz=1"], "Did you mean 'steps'"),
        (["--json"], "--json is for --settings"),
    ):
        assert main(["train", *words, "--out", str(tmp_path / "never")]) == 2
        assert says in capsys.readouterr().err and not (tmp_path / "never").exists()
