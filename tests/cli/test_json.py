"""`--json`: one JSON document on standard output, and nothing else, in every command that has it."""

import json

import pytest
from records_made import new_record

from gear_rl.cli.main import COMMANDS, build_parser, main

SMALL = ["--set", "task.steps=4", "--set", "train.steps=1", "--set", "train.prompts=2", "--set", "train.generations=2"]
WORDS = {
    "train": ["--settings"],
    "eval": ["--rows", "4", "--set", "task.steps=4"],
    "eval --check": ["--check", "workshop", "--rows", "4"],
    "audition": ["--prompts", "12", "--group", "4", "--measured", "2", "--continuations", "8", "--credit", "token"],
    "localize": ["--rollouts", "48", "--set", "task.steps=4"],
    "tasks": [],
    "methods": ["gear"],
    "plan": [],
    "doctor": [],
    "compare": ["--credit", "grpo,oracle", "--seeds", "2", "--learning-rates", "1e-4", "--workers", "1", *SMALL,
                "--set", "train.eval_rows=4"],
}  # fmt: skip


def test_every_command_with_json_is_here():
    parser = build_parser(list(COMMANDS))
    (commands,) = (action.choices for action in parser._actions if action.dest == "command")
    elsewhere = {"credit"}  # needs a run: test_credit_check.py
    assert {name for name, sub in commands.items() if "--json" in sub._option_string_actions} == {
        name.split()[0] for name in WORDS
    } | elsewhere


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "compare")) for n in WORDS])
def test_json_is_all_that_is_printed(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main([name.split()[0], *WORDS[name], "--json"]) == 0
    assert isinstance(json.loads(capfd.readouterr().out), dict | list)


def test_a_report_as_json(tmp_path, capfd):
    record = new_record(tmp_path / "rollouts.jsonl")
    assert main(["report", str(record), "--format", "json", "-o", "-"]) == 0
    assert json.loads(capfd.readouterr().out)
