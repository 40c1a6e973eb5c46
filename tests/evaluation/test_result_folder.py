"""Result folders: they resume, they never mix settings, and damage is named."""

import json

import pytest
from samples import sample

from gear_rl.errors import GearError
from gear_rl.evaluation.evaluate import evaluate, plan, with_ids
from gear_rl.evaluation.result_folder import ResultFolder
from gear_rl.sampling.players import LocalPlayer


def test_settings_are_never_mixed(tmp_path):
    ResultFolder(tmp_path / "r", {"temperature": 0.6, "rows": 3}).close()
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".settings.json.999999999.partial").write_text("{")  # at its first rename
    ResultFolder(tmp_path / "killed", {"rows": 3}).close()
    with pytest.raises(GearError, match=r"temperature is 0.6 there and 1.0 here. Give another --out"):
        ResultFolder(tmp_path / "r", {"temperature": 1.0, "rows": 3})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").touch()
    with pytest.raises(GearError, match="not a folder of results"):
        ResultFolder(tmp_path / "other", {})
    with pytest.raises(GearError, match="another gear eval is writing"):
        first = ResultFolder(tmp_path / "r", {"temperature": 0.6, "rows": 3})
        ResultFolder(tmp_path / "r", {"temperature": 0.6, "rows": 3})
    first.close()


def test_damage_is_named(tmp_path, workshop):
    rows = with_ids(workshop.rows("test", 2), "test")
    jobs = plan(workshop, rows, samples=1, greedy=True, temperature=1.0, top_p=1.0, seed=0, hinted=False)
    folder = ResultFolder(tmp_path / "r", {})
    folder.add(sample("a"))
    folder.close()
    samples = tmp_path / "r" / "samples.jsonl"
    samples.write_text(samples.read_text() * 2)
    with pytest.raises(GearError, match="twice"):
        ResultFolder(tmp_path / "r", {})
    samples.write_text("{}\n")
    with pytest.raises(GearError, match=r"samples.jsonl, line 1: damaged"):
        ResultFolder(tmp_path / "r", {})
    samples.write_text(json.dumps(sample("stranger")) + "\n")
    with pytest.raises(GearError, match="not asked for"):
        evaluate(None, None, jobs, ResultFolder(tmp_path / "r", {}))
    (tmp_path / "r" / "settings.json").write_text("{")
    with pytest.raises(GearError, match="damaged"):
        ResultFolder(tmp_path / "r", {})


def test_ids_must_tell_problems_apart():
    with pytest.raises(GearError, match="two problems of the test split have the id 'x'"):
        with_ids([{"id": "x", "prompt": "1 + 1"}, {"id": "x", "prompt": "2 + 2"}], "test")


def test_a_summary_that_was_never_written_is_written(tmp_path, workshop, model_and_tokenizer):
    """All samples were there, but the process ended before its summary."""
    jobs = plan(workshop, with_ids(workshop.rows("test", 1), "test"), samples=0, greedy=True)
    player, summary = LocalPlayer(*model_and_tokenizer), tmp_path / "r" / "summary.json"
    for again in (False, True):
        folder = ResultFolder(tmp_path / "r", {})
        scores = evaluate(player, workshop, jobs, folder)
        folder.close()
        assert json.loads(summary.read_text())["greedy"]["n"] == scores["greedy"]["n"] == 1
        assert scores["speed"]["samples"] == (0 if again else 1)
        summary.unlink()
