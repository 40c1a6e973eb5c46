"""Whoever trains with the bare answer as the hint is told so, before the first step."""

from __future__ import annotations

import json

import pytest
from words_model import save_words_model

from gear_rl.cli.main import main

NOTE = "every hint is the reference answer alone"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_words_model(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("credit", "columns", "told"),
    [("gear", ("answer",), True), ("gear", ("answer", "hint"), False), ("grpo", ("answer",), False)],
)
def test_a_bare_answer_as_the_hint_is_said_once(model, tmp_path, capfd, credit, columns, told):
    rows = [{"prompt": f"Count to {i}.", "answer": str(i), "hint": f"one more than {i - 1}"} for i in range(24)]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({key: row[key] for key in ("prompt", *columns)}) + "\n" for row in rows))
    settings = ["train.steps=1", "train.prompts=2", "train.generations=2", "train.eval_rows=2", "task.max_turn_tokens=4"]
    asked = [word for setting in settings for word in ("--set", setting)]
    call = ["train", "--task", str(file), "--model", model, "--credit", credit, *asked, "--out", str(tmp_path / "run")]
    assert main(call) == 0
    assert capfd.readouterr().out.count(NOTE) == told
