"""The table of tokens in wandb and trackio: what their own types keep of a real training, against the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gear_rl.records.record import read_record
from gear_rl.training.tracker_table import COLUMNS, KEY, TRACKERS, _code, _most_contrast

SMALL = ["train.steps=1", "train.prompts=2", "train.generations=3", "train.record_every=1", "train.eval_rows=2"]


PYTHON = Path(__file__).parents[2] / ".venv-trackers" / "bin" / "python"
"""The environment of both, which `make test` makes. They are not in the usual one: TRL imports them wherever it finds them."""


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """The folder of two trainings, `run-wandb` and `run-trackio`, and what trackio has kept."""
    if not PYTHON.exists():
        pytest.skip("no .venv-trackers: make trackers")
    folder = tmp_path_factory.mktemp("tracked")
    words = [word for setting in SMALL for word in ("--set", setting)]
    code = f"""
import json, trackio, wandb
from gear_rl.cli.main import main
from trackio.sqlite_storage import SQLiteStorage
for tracker in {TRACKERS}:
    given = ["--set", f"train.report_to={{tracker}}", "--out", f"run-{{tracker}}"]
    assert main(["train", "--credit", "grpo", *{words}, *given]) == 0
wandb.finish()
(run,) = trackio.Api().runs("huggingface")
print(json.dumps(SQLiteStorage.get_logs("huggingface", run.name)))"""
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "WANDB_MODE": "offline", "TRACKIO_DIR": str(folder / "trackio")}
    done = subprocess.run(
        [str(PYTHON), "-c", code], cwd=folder, env={**os.environ, **own}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def recorded(folder, tracker):
    return read_record(folder / f"run-{tracker}" / "rollouts.jsonl").rollouts


def check(rows, rollouts, text) -> None:
    shown = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    numbers = list(dict.fromkeys(row["rollout"] for row in shown))
    rewards = [rollouts[i].reward for i in numbers]
    spread = {key: [r.reward for r in rollouts if r.group == key] for key in {r.group for r in rollouts}}
    assert max(rewards) - min(rewards) == max(max(each) - min(each) for each in spread.values())
    for i in numbers:
        mine = [row for row in shown if row["rollout"] == i]
        assert [row["text"] for row in mine] == [text(each) for each in rollouts[i].token_texts]
        assert [row["advantage"] for row in mine] == rollouts[i].advantages
        assert [row["sampled"] for row in mine] == rollouts[i].action_mask


def test_wandb_keeps_the_table(tracked):
    folder, _ = tracked
    (kept,) = folder.glob(f"wandb/offline-run-*/files/media/table/{KEY}_*.table.json")
    table = json.loads(kept.read_text())
    assert table["columns"] == COLUMNS
    check(table["data"], recorded(folder, "wandb"), str)


def test_trackio_keeps_the_table_and_reads_no_markdown_in_it(tracked):
    folder, logs = tracked
    (table,) = [row[KEY] for row in logs if KEY in row]
    assert table["_type"] == "trackio.table"
    check([list(row.values()) for row in table["_value"]], recorded(folder, "trackio"), _code)


def test_the_pair_is_of_the_group_with_the_most_contrast():
    assert _most_contrast([0.0, 1.0, 0.5, 0.5], [0, 0, 1, 1], [True] * 4) == [1, 0]
    assert _most_contrast([0.0, 9.0, 0.5, 0.25], [0, 0, 1, 1], [True, False, True, True]) == [2, 3]
    assert _most_contrast([1.0, 1.0], [0, 0], [True, True]) == [0] and _most_contrast([1.0], [0], [False]) == []
    assert _code("![x](http://a) `b`") == '`"![x](http://a) \\u0060b\\u0060"`'
