"""What a run folder survives: damage, links, files that vanish, kills at renames, full disks. Nothing goes on silently."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked, killed_at_rename

from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.training.run_folder import RunFolder

SMALL = [
    word
    for setting in (
        "task.steps=4",
        "train.prompts=2",
        "train.generations=4",
        "train.eval_rows=4",
        "train.steps=4",
        "train.checkpoint_every=1",
        "train.record_every=1",
    )
    for word in ("--set", setting)
]
BOUNDS = ["--set", "train.keep_checkpoints=3", "--set", "train.record_megabytes=0.03"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", *SMALL, "--out", str(run)]) == 0
    return run


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of a run that was killed before its last evaluation."""
    shutil.copytree(finished, tmp_path / "run")
    evaluation = tmp_path / "run" / "evaluation.json"
    evaluation.write_text(json.dumps({"before": json.loads(evaluation.read_text())["before"]}))
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def same_run(ours: Path, theirs: Path) -> bool:
    names = ("config.json", "evaluation.json", "rollouts.jsonl", "model/model.safetensors")
    return all((ours / name).read_bytes() == (theirs / name).read_bytes() for name in names)


def resume(run: Path) -> int:
    return main(["train", "--resume", str(run)])


# ---------------------------------------------------------------------------------------------------- damage
def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_lines(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def flip_a_digit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    place = data.rindex(b"0.") + 2
    data[place] ^= 1
    path.write_bytes(data)


def delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl"])
@pytest.mark.parametrize("damage", [cut, cut_lines, flip_a_digit, delete])
def test_a_damaged_or_missing_log_is_an_error_until_the_user_gives_it_up(run, capsys, name, damage):
    damage(run / name)
    before = contents(run)
    assert resume(run) == 2
    said = capsys.readouterr().err
    wrong = "is missing" if damage is delete else "was changed"
    assert f"{run / name} {wrong} since checkpoint-4. Put it back" in said and "Traceback" not in said
    assert contents(run) == before, "nothing may be lost"
    subprocess.run(shlex.split(said.split("`")[1]), check=True)  # what the message says to do
    assert RunFolder(run).checkpoint_to_resume() == run / "checkpoints" / "checkpoint-4"


def test_a_record_in_the_place_of_a_checkpoints_file_is_an_error_that_loses_neither(run, capsys):
    """No checkpoint is whole then, and the run would begin again: nothing is cut before the record was read."""
    for path in (run / "checkpoints").glob("checkpoint-[123]"):
        shutil.rmtree(path)
    record, inside = run / "rollouts.jsonl", run / "checkpoints" / "checkpoint-4" / "config.json"
    data = record.read_bytes()
    record.write_bytes(inside.read_bytes())
    inside.write_bytes(data)
    before = contents(run)
    assert resume(run) == 2 and "rollouts.jsonl is not a record of rollouts" in capsys.readouterr().err
    assert contents(run) == before


@pytest.mark.parametrize(
    ("changes", "names"),
    [({"seed": 1}, "seed"), ({"train": {"learning_rate": 1e-3}}, "train.learning_rate"), ({"model": "x"}, "model")],
)
def test_an_edited_config_is_an_error_that_says_what_was_edited(run, capsys, changes, names):
    config = json.loads((run / "config.json").read_text())
    changes = {key: config[key] | new if isinstance(new, dict) else new for key, new in changes.items()}
    (run / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(GearError, match=rf"was changed since checkpoint-4 \({names}\)") as raised:
        RunFolder(run).checkpoint_to_resume()
    if names == "seed":
        assert resume(run) == 2 and str(raised.value) in capsys.readouterr().err
    subprocess.run(shlex.split(str(raised.value).split("`")[1]), check=True)
    assert RunFolder(run).checkpoint_to_resume() == run / "checkpoints" / "checkpoint-4"


def test_a_config_that_is_no_json_says_where_its_copy_is(run, capsys):
    cut(run / "config.json")
    assert resume(run) == 2
    assert f"cp {run / 'checkpoints' / 'checkpoint-4' / 'run_config.json'}" in capsys.readouterr().err


def test_what_was_written_after_the_checkpoint_is_cut_and_older_checkpoints_resume(run, finished):
    """As they are after a kill; and as they were before checkpoints had digests."""
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        with open(run / name, "ab") as file:
            file.write(b'{"step": 9, "gro')
    checkpoint = run / "checkpoints" / "checkpoint-3"
    listed = json.loads((checkpoint / "complete.json").read_text())
    for name in ("run_config.json", "run_files.json"):
        (checkpoint / name).unlink()
        del listed[name]
    (checkpoint / "complete.json").write_text(json.dumps(listed))
    assert resume(run) == 0 and same_run(run, finished)


# ---------------------------------------------------------------------------------------------------- links
@pytest.mark.parametrize("name", ["rollouts.jsonl", "metrics.jsonl", "checkpoints", "model.tmp"])
def test_a_link_that_leads_out_of_the_folder_is_an_error_before_anything_is_written(run, tmp_path, capsys, name):
    outside = tmp_path / "outside"
    if (run / name).exists():
        (run / name).rename(outside)
    else:
        outside.mkdir()
    (run / name).symlink_to(outside)
    before = contents(tmp_path)
    assert resume(run) == 2
    assert f"{run / name} is a link to {outside}" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_links_within_the_folder_and_to_it_are_fine(run, tmp_path):
    (run / "newest").symlink_to(run / "checkpoints" / "checkpoint-4")
    (tmp_path / "link").symlink_to(run)
    assert RunFolder(tmp_path / "link").checkpoint_to_resume() is not None


# ---------------------------------------------------------------------------------------------------- vanished
@pytest.mark.parametrize("name", ["rollouts.jsonl", "metrics.jsonl"])
def test_a_log_that_vanishes_while_training_is_an_error_and_the_rest_is_saved(tmp_path, monkeypatch, capsys, name):
    add = RunFolder.add_metrics

    def add_and_delete(self, step, logs):
        add(self, step, logs)
        if step == 2:
            (self.path / name).unlink()

    monkeypatch.setattr(RunFolder, "add_metrics", add_and_delete)
    run = tmp_path / "run"
    assert main(["train", *SMALL, "--out", str(run)]) == 2
    said = capsys.readouterr()
    assert f"{name} in {run}: deleted or replaced" in said.err and f"{run / name} is gone" in said.out
    assert (run / "model" / "model.safetensors").exists()
    assert json.loads((run / "evaluation.json").read_text()).keys() == {"before", "after"}
    assert resume(run) == 2 and "is missing since checkpoint-4" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- kills
@pytest.mark.slow
@pytest.mark.parametrize(("name", "time"), [("config.json", 1), ("evaluation.json", 2)])
def test_killed_at_a_rename_and_resumed_exactly(finished, tmp_path, capsys, name, time):
    run = tmp_path / "run"
    ended = Forked(["train", *SMALL, "--out", str(run)], killed_at_rename(name, time)).wait()
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert any(path.name.endswith(".partial") for path in run.rglob("*"))
    if name == "config.json":
        assert resume(run) == 2 and f"gear train --out {run}" in capsys.readouterr().err
        assert main(["train", *SMALL, "--out", str(run)]) == 0
    else:
        assert resume(run) == 0
    assert same_run(run, finished) and not list(run.rglob("*.partial"))


def test_scratch_of_a_running_process_and_foreign_files_stay(tmp_path, capsys):
    mine = [tmp_path / f".config.json.{os.getppid()}.partial", tmp_path / ".notes.partial"]
    for path in mine:
        path.write_text("x")
    assert main(["train", *SMALL, "--out", str(tmp_path)]) == 2 and "exists" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == sorted(mine)


# ---------------------------------------------------------------------------------------------------- full disk
@pytest.mark.parametrize(
    ("step", "most", "then"),
    [(1, 300_000, "starts again, as there was no checkpoint yet"), (2, 600_000, "resumes from checkpoint 1")],
    ids=["weights", "optimizer"],
)
def test_a_full_disk_inside_a_checkpoint_says_where_the_run_resumes(finished, tmp_path, step, most, then):
    """A file-size limit of the process from a step on: the first large write fails as on a full disk."""
    run = tmp_path / "run"

    def set_up() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        add = RunFolder.add_metrics

        def fill(self: RunFolder, now: int, logs: dict) -> None:
            if now == step:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            add(self, now, logs)

        RunFolder.add_metrics = fill

    done = Forked(["train", *SMALL, "--out", str(run)], set_up).wait()
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("[transformers]")]
    checkpoint = run / "checkpoints" / f"checkpoint-{step}"
    assert done.returncode == 2 and f"gear: error: {checkpoint} could not be written" in said
    assert said.endswith(f"`gear train --resume {run}`: it {then}.")
    assert resume(run) == 0 and same_run(run, finished)


# ---------------------------------------------------------------------------------------------------- private, bounded
def test_a_run_folder_is_private_and_its_size_can_be_bounded(finished, tmp_path, capsys):
    assert finished.stat().st_mode & 0o777 == 0o700
    assert len(list(finished.glob("checkpoints/checkpoint-*"))) == 2
    run = tmp_path / "run"
    assert main(["train", *SMALL, *BOUNDS, "--out", str(run)]) == 0
    assert sorted(p.name for p in run.glob("checkpoints/checkpoint-*")) == [f"checkpoint-{n}" for n in (2, 3, 4)]
    assert capsys.readouterr().out.count("0.03 MB (train.record_megabytes): no more is recorded") == 1
    all_of_it, kept = (folder / "rollouts.jsonl" for folder in (finished, run))
    assert all_of_it.read_bytes().startswith(kept.read_bytes())
    steps = [json.loads(line)["step"] for line in kept.read_text().splitlines()[1:]]
    assert steps == [0] * 8 + [1] * 8 and kept.stat().st_size >= 30_000
    # Resumed after it was full, it stays so.
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    (run / "evaluation.json").unlink()
    record = kept.read_bytes()
    assert resume(run) == 0 and kept.read_bytes() == record


def test_two_processes_never_work_in_one_folder(run, capsys, monkeypatch):
    monkeypatch.setattr("gear_rl.files.SECONDS_TO_END", 0.3)
    hold = "import fcntl, os, sys; h = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(h, fcntl.LOCK_EX); "
    hold += "print(1, flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "1\n"
        before = contents(run)
        assert main(["train", "--resume", str(run)]) == 2
        assert "another process works in" in capsys.readouterr().err and contents(run) == before
    finally:
        other.kill()
        other.wait()
    assert main(["train", "--resume", str(run)]) == 0  # the lock ended with its process
