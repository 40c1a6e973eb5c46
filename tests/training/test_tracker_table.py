"""The table of tokens in wandb and trackio: what their own types keep of a real training, against the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gear_rl.records.record import read_record
from gear_rl.training.tracker_table import COLUMNS, KEY, _code, _most_contrast

SMALL = ["train.steps=1", "train.prompts=2", "train.generations=3", "train.record_every=1", "train.eval_rows=2"]


def train(tracker, folder, env, script="") -> tuple[list, str]:
    """The rollouts that the record of a training with `tracker` holds, and what `script` prints after it. In a process of its
    own: trackers read their folders from the environment once."""
    words = [word for setting in [*SMALL, f"train.report_to={tracker}"] for word in ("--set", setting)]
    command = ["train", "--out", "run", "--credit", "grpo", *words]
    code = f"from gear_rl.cli.main import main\nassert main({command}) == 0\nprint('END')\n{script}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_record(folder / "run" / "rollouts.jsonl").rollouts, done.stdout.split("END\n")[1]


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


def test_wandb_keeps_the_table(tmp_path):
    pytest.importorskip("wandb")
    rollouts, _ = train("wandb", tmp_path, {"WANDB_MODE": "offline"}, "import wandb\nwandb.finish()")
    (kept,) = tmp_path.glob(f"wandb/offline-run-*/files/media/table/{KEY}_*.table.json")
    table = json.loads(kept.read_text())
    assert table["columns"] == COLUMNS
    check(table["data"], rollouts, str)


def test_trackio_keeps_the_table_and_reads_no_markdown_in_it(tmp_path):
    pytest.importorskip("trackio")
    script = (
        "import json, trackio\nfrom trackio.sqlite_storage import SQLiteStorage as storage\n"
        "(run,) = trackio.Api().runs('huggingface')\nprint(json.dumps(storage.get_logs('huggingface', run.name)))"
    )
    rollouts, out = train("trackio", tmp_path, {"TRACKIO_DIR": str(tmp_path / "trackio")}, script)
    (table,) = [row[KEY] for row in json.loads(out.splitlines()[-1]) if KEY in row]
    assert table["_type"] == "trackio.table"
    check([list(row.values()) for row in table["_value"]], rollouts, _code)


def test_the_pair_is_of_the_group_with_the_most_contrast():
    assert _most_contrast([0.0, 1.0, 0.5, 0.5], [0, 0, 1, 1], [True] * 4) == [1, 0]
    assert _most_contrast([0.0, 9.0, 0.5, 0.25], [0, 0, 1, 1], [True, False, True, True]) == [2, 3]
    assert _most_contrast([1.0, 1.0], [0, 0], [True, True]) == [0] and _most_contrast([1.0], [0], [False]) == []
    assert _code("![x](http://a) `b`") == '`"![x](http://a) \\u0060b\\u0060"`'
