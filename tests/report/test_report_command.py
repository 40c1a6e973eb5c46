"""`gear report` on the command line: what it writes, and what it refuses, in one line and before long work."""

from __future__ import annotations

import json
import shutil
import struct

import pytest
from report_samples import HEADER, gear, transcript, write_transcripts

from gear_rl.cli.main import main


@pytest.fixture
def record(tmp_path):
    return write_transcripts(tmp_path / "rollouts.jsonl", steps=2, groups=1)


@pytest.fixture
def fails(capsys):
    def run(*words):
        capsys.readouterr()
        assert main(["report", *[str(word) for word in words]]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("gear: error: ") and err.count("\n") == 1
        return err

    return run


@pytest.fixture
def folder(run, tmp_path):
    """A copy of the trained run, to be damaged."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "model"))
    return tmp_path / "run"


def index_of(page):
    text = page.read_text()
    return json.loads(text[text.index('id="index">') + 11 : text.index("</script>", text.index('id="index">'))])


# ---------------------------------------------------------------------------------------------------- what it writes
def test_names_and_overwriting(record, folder, fails, capsys):
    gear("report", record)
    assert record.with_suffix(".html").exists()
    gear("report", folder)
    page = folder / "report.html"
    before = page.read_bytes()
    out = capsys.readouterr().out
    assert "gear: 72 rollouts of 4 steps" in out and str(page) in out
    assert "exists" in fails(folder) and "--force" in fails(folder)
    page.write_text("mine")
    gear("report", folder, "--force")
    assert page.read_bytes() == before
    assert "is not a file" in fails(record, "-o", folder)
    assert "no folder" in fails(record, "-o", folder / "no" / "where.html")
    assert "being read" in fails(record, "-o", record, "--force")
    assert not list(folder.glob(".*partial"))


def test_the_page_is_one_file_that_names_no_other(folder):
    gear("report", folder)
    text = (folder / "report.html").read_text()
    head = text[: text.index('id="index"')]
    assert "src=" not in head and "href=" in head and head.count("href=") == 1 and 'href="data:,"' in head
    assert "url(" not in head and "@import" not in head


def test_json_goes_to_a_file_or_to_standard_output(record, fails, tmp_path):
    gear("report", record, "--format", "json", "-o", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["rollouts"] == 8
    assert "only JSON is printed" in fails(record, "-o", "-")


def test_png(driver, record, tmp_path):
    gear("report", record, "--format", "png", "-o", tmp_path / "r.png", "--group", "10/0", "--colour", "weight")
    data = (tmp_path / "r.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and width == 2400 and 600 < height < 16000


def test_png_without_a_browser_says_what_to_install(record, fails, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert "apt install chromium" in fails(record, "--format", "png")
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    assert "$CHROMIUM names" in fails(record, "--format", "png")


def test_wishes_that_cannot_be_met(record, fails):
    assert "Did you mean 'png'" in fails(record, "--format", "pmg")
    assert "Did you mean 'entropy'" in fails(record, "--colour", "entropie")
    assert "STEP/GROUP" in fails(record, "--group", "10")
    assert "Their steps: 0, 10" in fails(record, "--group", "3/0")
    assert "at least 1" in fails(record, "--rollouts", "0")


# ---------------------------------------------------------------------------------------------------- bad records
def test_records_that_cannot_be_read(record, fails, tmp_path):
    assert "no run or record" in fails(tmp_path / "none")
    assert "no config.json" in fails(tmp_path)
    text = record.read_text()
    bad = tmp_path / "bad.jsonl"
    for content, message in [
        ("", "is empty"),
        (text.splitlines()[0] + "\n", "a header and no rollouts"),
        (text.replace('"version":1', '"version":2', 1), "version 2; this gear_rl reads version 1"),
        (text.replace("gear_rl.rollouts", "another", 1), "not a record"),
        (text[:-200], "line 9: cut off"),
        (text.replace('"reward":1.0', '"reward":"high"', 1), "line 2: corrupt, reward"),
        (text.replace('"turns":[1', '"turns":[-1', 1), "line 2: corrupt, turns"),
    ]:
        bad.write_text(content)
        assert message in fails(bad)
        assert not bad.with_suffix(".html").exists()


def test_run_folders_with_damaged_parts(folder, fails):
    metrics, evaluation = folder / "metrics.jsonl", folder / "evaluation.json"
    good = metrics.read_text()
    lines = good.splitlines(keepends=True)
    metrics.write_text(lines[0] + "{broken\n" + lines[1])
    assert "metrics.jsonl, line 2: not JSON" in fails(folder)
    metrics.write_text(lines[1] + lines[0])
    assert "line 2: step 1 follows step 2" in fails(folder)
    metrics.write_text(good)
    evaluation.write_text("[1]")
    assert "evaluation.json is damaged" in fails(folder)
    evaluation.write_text('{"before": 3}')
    assert "'before' has no scores" in fails(folder)
    evaluation.write_text("{}")
    (folder / "rollouts.jsonl").unlink()
    assert "no rollouts.jsonl" in fails(folder)


def test_what_is_missing_is_said_and_the_rest_shown(folder):
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    first = json.loads(lines[0])
    lines[0] = json.dumps({**first, "loss": float("nan")}) + "\n"  # as a diverged run logs it
    metrics.write_text("".join(lines) + '{"step": 18, "rew')
    content = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps({"before": content["before"]}))
    gear("report", folder)
    run = index_of(folder / "report.html")["runs"][0]
    notes = " ".join(run["notes"])
    assert "cut off" in notes and "1 logged values are NaN" in notes and "unfinished" in notes
    assert run["curves"]["steps"][-1] == 17 and run["curves"]["values"]["loss"][0] is None
    metrics.unlink()
    (folder / "evaluation.json").unlink()
    gear("report", folder, "--force")
    run = index_of(folder / "report.html")["runs"][0]
    assert "no metrics.jsonl" in " ".join(run["notes"]) and "no evaluation.json" in " ".join(run["notes"])


def test_rollouts_without_signals(browse, tmp_path):
    header = {**HEADER, "method": "grpo", "options": {}}
    record = write_transcripts(
        tmp_path / "r.jsonl", steps=1, groups=1, signals=False, header=header, hinted_prompts=None
    )
    lines = record.read_text().splitlines()
    gear("report", record)
    shown = browse(record.with_suffix(".html"))
    assert "reverse_kl, entropy, student_logprob, teacher_logprob, decision (grpo recorded none)" in shown.text(
        "#notes"
    )
    off = {b.get_attribute("data-key") for b in shown.all(".colouring button:disabled")}
    assert off == {"reverse_kl", "entropy", "gap", "decision"}
    assert "no teacher was shown a hint" in shown.text(".teacher")
    assert len(shown.all(".card")) == 4
    shown.hover(shown.one(".card[data-filled] .t:not(.masked)"))
    assert set(shown.inspected()) == {"advantage", "weight"}

    # One rollout of the four has signals: the others say that they have none.
    some = json.loads(lines[1])
    some["signals"] = {"reverse_kl": [1.0 if m else None for m in some["action_mask"]]}
    record.write_text("\n".join([lines[0], json.dumps(some), *lines[2:]]) + "\n")
    gear("report", record, "--force")
    shown = browse(record.with_suffix(".html"))
    shown.fill_all()
    shown.click(".colouring [data-key=reverse_kl]")
    assert "3 of 4 rollouts have none" in shown.text("#notes")
    missing = [node.text for node in shown.all(".card .missing") if node.text]
    assert missing == ["no divergence here: this rollout has none"] * 3


def test_rollouts_without_tokens_or_contrast(browse, tmp_path):
    """Empty completions, and groups in which every reward is the same."""
    record = write_transcripts(tmp_path / "r.jsonl", steps=1, groups=2, size=2)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for name, value in lines[1].items():
        if isinstance(value, list):
            lines[1][name] = []
    lines[1]["signals"] = {name: [] for name in lines[1]["signals"]}
    for line in lines[3:]:
        line |= {"reward": 1.0, "advantages": [0.0] * len(line["advantages"])}
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    gear("report", record)
    shown = browse(record.with_suffix(".html"))
    shown.open_group(0, 0)
    assert "an empty completion" in shown.text("#pane")
    shown.open_group(0, 1)
    assert "All 2 alike: no contrast" in shown.text("#pane")


def test_a_page_cut_off_on_its_way_shows_what_arrived(browse, folder, tmp_path):
    gear("report", folder, "-o", tmp_path / "whole.html", "--group", "0/0")
    text = (tmp_path / "whole.html").read_text()
    (tmp_path / "cut.html").write_text(text[: text.index('id="blobs"') + 20_000])
    shown = browse(tmp_path / "cut.html")
    assert shown.all(".card[data-filled] .t")
    shown.open_group(15, 2)
    shown.fill_all()
    assert shown.text(".card .missing").startswith("This part of the file is damaged")


# ---------------------------------------------------------------------------------------------------- several runs
def test_runs_that_cannot_be_compared_are_refused_with_the_difference(record, folder, fails, tmp_path):
    def other(name="other.jsonl", **more):
        path = tmp_path / name
        path.unlink(missing_ok=True)
        return write_transcripts(path, **{"steps": 2, "groups": 1, **more})

    task = other(header={**HEADER, "task": "airline"})
    assert "tasks 'retail' and 'airline'" in fails(record, task, "-o", tmp_path / "r.html")
    data = other(prompts=["Customer 0-7: please exchange my kettle.\n"] * 4)
    message = fails(record, data, "-o", tmp_path / "r.html")
    assert "data: step 0, group 0" in message and "0-0" in message and "0-7" in message
    steps = other()
    steps.write_text(steps.read_text().replace('"step":', '"step":7'))
    assert "no step and group is in both" in fails(record, steps, "-o", tmp_path / "r.html")
    assert "given twice" in fails(record, record, "-o", tmp_path / "r.html")
    assert "retail' and 'workshop'" in fails(record, folder, "-o", tmp_path / "r.html")

    twin = tmp_path / "twin"
    shutil.copytree(folder, twin)
    config = json.loads((twin / "config.json").read_text())
    (twin / "config.json").write_text(json.dumps({**config, "task": {"name": "workshop", "steps": 9}}))
    assert "task option 'steps': None and 9" in fails(folder, twin, "-o", tmp_path / "r.html")
    (twin / "config.json").write_text(json.dumps({**config, "seed": 5}))
    lines = (twin / "rollouts.jsonl").read_text()
    (twin / "rollouts.jsonl").write_text(lines.replace('"prompt":"<user> ', '"prompt":"<user> other '))
    assert "(seeds 0 and 5)" in fails(folder, twin, "-o", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_group_may_hold_several_prompts(browse, tmp_path):
    """As a record of transcripts does whose problems came in several wordings."""
    asked = [f"Customer {i}: please exchange my kettle." for i in (0, 1, 1, 2)]
    a = write_transcripts(tmp_path / "a.jsonl", steps=1, groups=1, prompts=asked)
    copy = shutil.copy(a, tmp_path / "copy.jsonl")
    gear("report", a, copy, "-o", tmp_path / "both.html")
    gear("report", a, "-o", tmp_path / "one.html")
    assert [group["prompts"] for group in index_of(tmp_path / "one.html")["groups"]] == [3]
    shown = browse(tmp_path / "one.html")
    shown.open_group(0, 0)
    assert [node.text for node in shown.all(".prompts section:not(.teacher) .passage")] == [*dict.fromkeys(asked)]
    assert shown.all(".prompts section:not(.teacher) h4")[1].text == "Prompt of rollouts 2, 3"


def test_runs_of_one_method_are_told_apart_by_their_paths(tmp_path):
    texts, mask = transcript()
    a = write_transcripts(tmp_path / "a.jsonl", steps=1, groups=1)
    b = write_transcripts(tmp_path / "b.jsonl", steps=1, groups=1, texts=texts, mask=mask, seed=3)
    gear("report", a, b, "-o", tmp_path / "r.html")
    assert [run["name"] for run in index_of(tmp_path / "r.html")["runs"]] == ["gear · a.jsonl", "gear · b.jsonl"]
