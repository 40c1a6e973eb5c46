"""Nothing hangs: tasks that sleep and servers that are silent, met by the real commands."""

import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from chat_server import message, serving

from gear_rl.cli.main import main

TASK = """
import time
from types import SimpleNamespace
from gear_rl.tasks.workshop import Workshop

class Rows(Workshop):
    def rows(self, split, count, seed=0):
        time.sleep(600)

class Episodes(Workshop):
    def episode(self, row):
        time.sleep(600)

class Replies(Workshop):
    def episode(self, row):
        return SimpleNamespace(reply=lambda turn: time.sleep(600))

class Verdicts(Workshop):
    def verdict(self, row, transcript):
        time.sleep(600)
"""
CALLS = {"Rows": "`rows`", "Episodes": "`episode`", "Replies": "`reply` of its episode", "Verdicts": "`verdict`"}
SMALL = ["--set", "train.steps=1", "--set", "train.prompts=1", "--set", "train.generations=2", "--set", "train.eval_rows=1"]


@pytest.fixture
def sleepy(tmp_path, monkeypatch):
    (tmp_path / "sleepy.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sleepy", raising=False)
    monkeypatch.setenv("GEAR_TASK_SECONDS", "1")


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("how", ["eval", "endpoint", "train"])
def test_a_task_that_sleeps_ends_with_a_message(sleepy, capsys, how, kind):
    began = time.monotonic()
    if how == "train":
        code = main(["train", "--task", f"sleepy:{kind}", *SMALL])
    elif how == "eval":
        code = main(["eval", "--task", f"sleepy:{kind}", "--rows", "1", "--mode", "greedy"])
    else:
        with serving(lambda body: message("saw p1")) as server:
            code = main(["eval", "--task", f"sleepy:{kind}", "--rows", "1", "--endpoint", server.url, "--model", "m"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert code == 2 and time.monotonic() - began < 60
    assert said.startswith(f"gear: error: task {kind}: {CALLS[kind]} took more than 1 s.") and "GEAR_TASK_SECONDS" in said


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_the_setting_is_checked(sleepy, capsys, monkeypatch, value):
    monkeypatch.setenv("GEAR_TASK_SECONDS", value)
    assert main(["eval", "--rows", "1"]) == 2
    assert f"GEAR_TASK_SECONDS='{value}': must be a number" in capsys.readouterr().err


def test_one_ctrl_c_ends_an_evaluation_at_a_silent_server(tmp_path):
    with serving(lambda body: message("x")) as server:
        server.trouble = [600.0] * 100
        words = ["eval", "--rows", "4", "--endpoint", server.url, "--model", "m", "--out", str(tmp_path / "eval")]
        command = [sys.executable, "-m", "gear_rl.cli.main", *words]
        heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # where the tests run in the background, it is ignored
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
        while len(server.requests) < 4 and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130 and err.strip().endswith("gear: interrupted."), err
