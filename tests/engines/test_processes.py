"""Two processes (torchrun, gloo) end where one does, whatever holds the weights; a killed one is resumed exactly.

The global batch of 12 rollouts in groups of 4 is the same everywhere, so in two processes one group of three spans both.
`tests/helpers/processes_matrix.py` does the same for every method and teacher.
"""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from process_cases import HERE, difference, launch, run_parts
from safetensors.torch import load_file

from gear_rl.engines.ranks import Alone, check_agreement, weighted_means
from gear_rl.errors import GearError
from gear_rl.training.config import TrainOptions
from gear_rl.training.processes import in_first, naming_lost_processes, rollouts_here
from gear_rl.training.run import _refuse_other_processes
from gear_rl.training.run_folder import RunFolder

TOLERANCE = 1e-5
"""Sums of floats in another order; the weights move by 3e-3 (measured: 4e-6 at most)."""
STEPS = {"steps": 2}
CASES = {
    "ddp": [
        {"name": "gear", "credit": "gear", **STEPS},
        {"name": "siblings", "credit": "sdpo", "teacher": "live", **STEPS},
        {"name": "hidden_distance", "credit": "shear", **STEPS},
        {"name": "over_the_batch", "credit": "high_entropy", **STEPS},
        {"name": "wrong_hint", "credit": "wrong_hint", **STEPS},
    ],
    "fsdp2": [
        {"name": "base", "credit": "opsd", "teacher": "base", **STEPS},
        {"name": "ema", "credit": "sdpo", "teacher": "ema", "accumulate": 2, **STEPS},
        {"name": "sync", "credit": "rlsd", "teacher": "sync", "steps": 3},
        {"name": "unequal_passes", "credit": "gear", "teacher": "base", "budgets": [8192, 150], "uneven": True, **STEPS},
        {"name": "reference", "credit": "sdpg", "options": {"reference": 0.3}, **STEPS},
        {"name": "saliency", "credit": "grail", **STEPS},
        {"name": "lora", "credit": "gear", "teacher": "ema", "lora": True, **STEPS},
    ],
}
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    result = run_parts(out, {"one": [case for some in CASES.values() for case in some], **CASES})
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("strategy, case", [(s, c["name"]) for s, cases in CASES.items() for c in cases])
def test_two_processes_end_where_one_does(runs, strategy, case):
    gap = difference(runs / "one", runs / strategy, case)
    assert gap.layout == {"ddp": "plain", "fsdp2": "FSDP2"}[strategy]
    assert gap.same_rollouts
    assert gap.largest < TOLERANCE
    assert gap.metrics == []
    assert json.loads((runs / strategy / f"{case}.json").read_text())["records"], "the first process records all"


@pytest.mark.slow
def test_the_cases_have_what_they_are_about(runs):
    saved = json.loads((runs / "one" / "unequal_passes.json").read_text())
    assert len({len(record["ids"]) for record in saved["records"]}) > 1
    assert difference(runs / "one", runs / "fsdp2", "base").shared, "prompts are shared under FSDP2 too"
    logged = json.loads((runs / "one" / "sync.json").read_text())["log"][0]
    assert logged["credit/weight_max"] > 1


# ---------------------------------------------------------------------------------------------- gear train
GEAR = ["--credit", "sdpo", "--set", "train.device=cpu", "--set", "train.teacher=ema"]
SMALL = dict(steps=4, prompts=3, generations=4, eval_rows=8, checkpoint_every=2, record_every=1)


def gear_train(*arguments, strategy="fsdp2", processes=2):
    return launch([str(HERE / "gear_processes.py"), "train", *map(str, arguments)], strategy, processes)


@pytest.mark.apart
@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_it_resumes_exactly(tmp_path, monkeypatch):
    arguments = [*GEAR, *(word for name, value in SMALL.items() for word in ("--set", f"train.{name}={value}"))]
    whole = gear_train(*arguments, "--out", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr[-4000:]
    monkeypatch.setenv("DIE", "1:3")
    killed = gear_train(*arguments, "--out", tmp_path / "killed")
    assert killed.returncode != 0
    assert "another process of this run died" in killed.stderr and "gear train --resume" in killed.stderr
    monkeypatch.delenv("DIE")
    resumed = gear_train("--resume", tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr[-4000:]

    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "killed"))
    assert one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)
    assert "lm_head.weight" not in one, "tied: saved once"
    records = [(tmp_path / name / "rollouts.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    assert records[0] == records[1] and len(records[0]) == 1 + SMALL["steps"] * 12
    metrics = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "killed")]
    timeless = [[{k: v for k, v in json.loads(line).items() if "time" not in k} for line in lines] for lines in metrics]
    assert timeless[0] == timeless[1] and [line["step"] for line in timeless[0]] == [1, 2, 3, 4]


# ---------------------------------------------------------------------------------------------- before anything runs
class Two(Alone):
    """Two processes that one test plays; `other` is what the second one gives."""

    size = 2

    def __init__(self, other, index=0):
        self.other, self.index = other, index

    def objects(self, value):
        return [value, self.other] if self.index == 0 else [self.other, value]


def test_different_settings_are_named():
    check_agreement(Two({"train.steps": "4"}), "configurations", {"train.steps": 4})
    with pytest.raises(GearError, match=r"train\.steps is 4 in process 0 and 5 in process 1"):
        check_agreement(Two({"train.steps": "5"}), "configurations", {"train.steps": 4})
    with pytest.raises(GearError, match="seed is 3 in process 0 and not set in process 1"):
        check_agreement(Two({}), "configurations", {"seed": 3})


def test_means_are_weighted_by_what_they_are_over():
    assert weighted_means(Two({"loss": (4.0, 1.0)}), {"loss": (2.0, 3.0)}) == {"loss": 2.5}
    assert weighted_means(Alone(), {"loss": (0.0, 0.0)}) == {"loss": 0.0}


def test_what_the_first_process_refuses_is_said_once():
    def refuse():
        raise GearError("no such folder")

    with pytest.raises(GearError, match="no such folder"):
        in_first(Two((None, None)), refuse)
    with pytest.raises(SystemExit):
        in_first(Two((None, "no such folder"), index=1), refuse)
    assert in_first(Two((7, None), index=1), refuse) == 7


def test_a_batch_that_cannot_be_shared():
    options = TrainOptions(prompts=3, generations=4)
    assert rollouts_here(options, 2) == (6, 6)
    with pytest.raises(GearError, match="12 rollouts a step, which 5 processes cannot share"):
        rollouts_here(options, 5)
    with pytest.raises(GearError, match="must divide the 6 rollouts"):
        rollouts_here(TrainOptions(prompts=3, generations=4, rollouts_per_pass=4), 2)


def test_a_process_that_the_launcher_ends_says_how_to_resume(tmp_path):
    """torchrun ends the others when one dies, often before they notice."""
    ended = r"died, so process 1 stopped \(ended by the launcher\).*2 processes: gear train"
    with pytest.raises(GearError, match=ended), naming_lost_processes(Two(None, index=1), tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    seen = r"process 0 stopped \(Connection closed by peer \[x\]\)"
    with pytest.raises(GearError, match=seen), naming_lost_processes(Two(None), tmp_path):
        raise RuntimeError("Connection closed by peer [x]")
    with pytest.raises(RuntimeError, match="Connection closed"), naming_lost_processes(Alone(), tmp_path):
        raise RuntimeError("Connection closed by peer")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_run_is_resumed_by_as_many_processes(tmp_path):
    folder = RunFolder(tmp_path)
    folder.versions.write_text(json.dumps({"processes": "2"}))
    _refuse_other_processes(folder, 2, resumes=True)
    _refuse_other_processes(folder, 1, resumes=False)
    with pytest.raises(GearError, match="was trained by 2 processes, and this is 1"):
        _refuse_other_processes(folder, 1, resumes=True)


def test_a_variable_of_the_launcher_does_not_leak_into_tests():
    assert "ACCELERATE_USE_FSDP" not in os.environ
