"""The harnesses of this folder in their short form, what the fuzzer once found, and that they can see what they look for."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import fuzz
import pytest
from faults import chosen_faults
from guards_proven import Case, fell_at, first_alarms, kind, lost_at, verdict
from mutation import mutated
from parsers import Target
from scenes import SCENES, Stage
from soak import TOLERANCE, risen
from soak_picture import PANELS, picture

HERE = Path(__file__).parent
KEPT = [json.loads(line) for line in (HERE / "corpus.jsonl").read_text().splitlines()]


def run(script: str, *words: str, out: Path) -> dict:
    command = [sys.executable, str(HERE / script), *words, "--out", str(out)]
    path = os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, "PYTHONPATH": path})
    assert out.exists(), done.stdout + done.stderr
    report = json.loads(out.read_text())
    assert done.returncode == 0 and not report["failures"], report["failures"]
    return report


@pytest.mark.slow
def test_short_chaos(tmp_path):
    report = run("chaos.py", "--short", out=tmp_path / "chaos.json")
    assert report["total"] >= 8


@pytest.mark.slow
def test_short_fuzz(tmp_path):
    report = run("fuzz.py", "--short", "--workers", "1", "--seconds", "25", out=tmp_path / "fuzz.json")
    assert report["total"] > 2000 and len(report["counts"]) > 25


@pytest.fixture(scope="module")
def targets():
    return fuzz.targets()


@pytest.mark.parametrize("kept", KEPT, ids=[f"{i}-{kept['target']}" for i, kept in enumerate(KEPT)])
def test_what_was_found_once(kept, targets):
    assert fuzz.tried(targets[kept["target"]], kept["input"].encode("latin-1"))[0] in fuzz.GOOD


# ---------------------------------------------------------------------------------------------------- do they see it?
def test_the_fuzzer_sees_errors_hangs_and_memory():
    signal.signal(signal.SIGPROF, fuzz._too_long)

    def wrong(data: bytes) -> None:
        {}[data]

    def endless(data: bytes) -> None:
        while True:
            pass

    def large(data: bytes) -> None:
        bytearray(b"x") * 450_000_000

    try:
        assert fuzz.tried(Target(wrong, []), b"a") == ("traceback", "KeyError at outside")
        assert fuzz.tried(Target(wrong, [], (KeyError,)), b"a")[0] == "refused"
        assert fuzz.tried(Target(endless, [], seconds=0.2), b"a")[0] == "hang"
        child = os.fork()  # its peak of memory begins anew; that of this process may be higher already
        if not child:
            os._exit(fuzz.tried(Target(large, [], seconds=20.0), b"a")[0] != "memory")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def test_mutations_differ_and_keep_json_readable():
    rng, data = random.Random(0), b'{"a": [1, {"b": "c"}], "d": null}\n{"a": 2}\n'
    made = [mutated(data, [data], rng) for _ in range(400)]
    assert len(set(made)) > 200 and all(isinstance(one, bytes) for one in made)
    readable = 0
    for one in made:
        try:
            readable += all(json.loads(line) is not NotImplemented for line in one.splitlines())
        except (ValueError, RecursionError):
            continue
    assert readable > 40


def test_every_file_event_gets_every_signal(tmp_path):
    stage = Stage(tmp_path, 1.0)
    stage.events = {"credit": [("open", "x"), ("unlink", "x")], "train": [("rename", "y")]}
    stage.seconds = {"credit": 1.0, "train": 1.0}
    faults = chosen_faults(stage, None, 0)
    at_events = {(f.scene, f.detail["event"], f.detail["number"]) for f in faults if f.kind == "signal at a file event"}
    assert len(at_events) == 9
    assert {f.kind for f in faults} > {"full disk", "read-only folder", "out of memory", "signal at a random moment"}
    early = {f.kind for f in faults[: len(faults) // 2]}
    assert {"signal at a random moment", "signal at a file event"} <= early, "the time may be up before the end"
    assert len(chosen_faults(stage, 5, 0)) == 5
    assert {f.kind for f in chosen_faults(stage, 8, 0, "full")} == {"full disk"}


def test_a_result_that_differs_is_seen(tmp_path):
    stage, scene = Stage(tmp_path / "undisturbed", 1.0), SCENES["train"]
    for home in (tmp_path / "undisturbed" / "train", tmp_path / "home"):
        (home / "run").mkdir(parents=True)
        (home / "run" / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 0.5, "step_time": {len(str(home))}}}\n')
    home = tmp_path / "home"
    assert stage.difference(scene, home) is None, "times do not count"
    (home / "run" / ".x.partial").write_text("")
    assert stage.difference(scene, home) == "run/.x.partial is left behind"
    (home / "run" / ".x.partial").unlink()
    (home / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 0.6}\n')
    assert stage.difference(scene, home) == "run/metrics.jsonl differs"
    assert stage.difference(scene, home, home) is None, "as it is elsewhere"
    (home / "run" / "metrics.jsonl").unlink()
    assert stage.difference(scene, home) == "run/metrics.jsonl is missing"


def test_alarms_and_losses_are_found_in_metrics():
    calm, loud = {"guards/length": 10.0, "guards/alarm": 0.0}, {"guards/length": 40.0, "guards/alarm": 1.0}
    rows = [{"step": step, **(calm if step < 15 else loud)} for step in range(1, 21)]
    assert first_alarms(rows) == {"length": 15} and first_alarms(rows[:14]) == {}
    assert lost_at([0.1] * 20 + [0.9] * 20 + [0.0] * 20) is not None and lost_at([0.1] * 20 + [0.9] * 20) is None
    assert 40 < lost_at([0.5] * 40 + [0.0] * 30) < 55 and lost_at([0.5] * 40 + [0.0] * 14) is None
    assert verdict(Case("a", ("length",)), {"code": 0, "rang": {"length": 5}}) == "rang"
    assert verdict(Case("a", ("leak",)), {"code": 0, "rang": {"length": 5}}) == "missed"
    assert fell_at([0.5] * 40) is None and 40 < fell_at([0.5] * 40 + [0.1] * 30 + [0.6] * 20) < 60
    ordinary = Case("ordinary task.world=1", ())
    quiet, loud = {"code": 0, "rang": {}}, {"code": 0, "rang": {"length": 5}}
    well, recovered, lost = ({"lost_at": a, "fell_at": b} for a, b in ((None, None), (None, 4), (40, 30)))
    assert verdict(ordinary, loud | well) == "false alarm" and verdict(ordinary, quiet | well) == "silent"
    assert verdict(ordinary, loud | recovered) == "rang" and verdict(ordinary, quiet | recovered) == "recovered"
    assert verdict(ordinary, quiet | lost) == "missed", "it failed, and nobody said so"
    assert kind(ordinary, well) == "healthy task.world=1" and kind(ordinary, lost) == "fell on its own task.world=1"


def test_a_rise_is_seen():
    rows = [{"seconds": 10.0 * i, "memory_mb": 100.0 + i, "threads": 3.0} for i in range(40)]
    assert risen(rows, "memory_mb") > TOLERANCE["memory_mb"] and risen(rows, "threads") == 0


def test_the_picture_of_a_soak_has_a_line_for_each_measure():
    rows = [{"seconds": 10.0 * i, **dict.fromkeys(PANELS, float(i))} for i in range(1, 5)]
    shown = ElementTree.fromstring(picture({"rows": rows, "risen": dict.fromkeys(PANELS, 0.5)}))
    lines = shown.findall(".//{*}polyline")
    assert len(lines) == len(PANELS) and all(line.get("points").count(",") == len(rows) for line in lines)
