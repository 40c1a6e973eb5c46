"""Measured turns in the report: on the token line, in the card of a token, in a table; and files that do not belong."""

from __future__ import annotations

import json
import shutil

import pytest
from report_samples import gear

from gear_rl.cli.main import main
from gear_rl.records.measured import read_measured


@pytest.fixture(scope="module")
def checked(run, tmp_path_factory):
    """The run with some of its turns measured, and its report."""
    folder = tmp_path_factory.mktemp("measured") / "run"
    shutil.copytree(run, folder)
    gear("credit", folder, "--check", "--turns", 2, "--continuations", 8, "--credit", "gear,grpo")
    gear("report", folder)
    return folder


def test_a_measured_turn_shows_on_its_line_and_in_the_table(checked, browse):
    turns = read_measured(checked / "rollouts.measured.json")
    page = browse(checked / "report.html")
    assert len(page.all(".measured-table tr")) == 1 + len(turns)
    assert [cell.text for cell in page.all(".measured-table th")] == ["turn", "measured", "gear", "grpo"]
    worst = min(turns, key=lambda turn: turn["advantage"])
    page.click(".measured-table tr:nth-child(2) button")
    place = [(g["step"], g["group"]) for g in page.index["groups"]].index((worst["step"], worst["group"]))
    page.wait(lambda: page.js("return document.querySelector('#pane').dataset.group") == str(place))
    badge = f".card[data-aligned='{worst['rollout']}'] .measured[data-turn='{worst['turn']}']"
    page.wait(lambda: page.all(badge))
    assert page.one(badge).text == f"{worst['advantage']:+.2f}".replace("-", "−").replace("+0.00", "0.00")
    low, high = (f"{end:+.2f}".replace("-", "−") for end in worst["interval"])
    assert f"({low} to {high})" in page.one(badge).get_attribute("aria-label")
    page.hover(page.one(f"{badge}", None).find_element("xpath", "./preceding-sibling::span[1]"))
    assert "this turn, measured" in page.wait(lambda: page.text("#inspector"))
    page.click("#filter-fold summary")
    page.click("#filter-measured")
    measured = {(turn["step"], turn["group"], turn["rollout"]) for turn in turns}
    page.wait(lambda: page.listed().startswith(f"{len(measured)} rollout"))
    phone = browse(checked / "report.html", width=390, height=800)
    assert phone.js("const box = document.querySelector('.measured-table'); return box.scrollWidth <= box.clientWidth")


def test_turns_of_other_rollouts_are_left_out_and_a_damaged_file_is_named(checked, tmp_path, capsys):
    shutil.copytree(checked, tmp_path / "run")
    path = tmp_path / "run" / "rollouts.measured.json"
    content = json.loads(path.read_text())
    content["turns"][0]["tokens"] = "of another run"
    path.write_text(json.dumps(content))
    capsys.readouterr()
    gear("report", tmp_path / "run", "--format", "json", "-o", "-")
    shown = json.loads(capsys.readouterr().out)
    assert any("1 turns of other rollouts" in note for note in shown["runs"][0]["notes"])
    for damage in ({"interval": [1]}, {"credit": {"gear": "high"}}, {"turn": -1}, {"advantage": None}):
        (name,) = damage
        path.write_text(json.dumps({**content, "turns": [{**content["turns"][1], **damage}]}))
        assert main(["report", str(tmp_path / "run"), "--format", "json", "-o", "-"]) == 2
        assert f"turn 0: damaged, {name} is" in capsys.readouterr().err
    path.write_text("[]")
    assert main(["report", str(tmp_path / "run"), "--format", "json", "-o", "-"]) == 2
