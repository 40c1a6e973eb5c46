"""What the command says when a run fails: real Ray processes, with a few lines in place of verl's trainer."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from gear_rl.engines.verl.__main__ import TOO_FEW_GPUS, run
from gear_rl.engines.versions import check_version
from gear_rl.errors import GearError

try:
    check_version("verl")
except GearError as error:
    pytest.skip(f"{error} `make verl-smoke` makes it and runs these.", allow_module_level=True)
import ray
from verl.trainer.main_ppo import main

CONFIG = SimpleNamespace(trainer=SimpleNamespace(nnodes=2, n_gpus_per_node=8))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Worker:
    def fail(self, error):
        raise error

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


@ray.remote(num_cpus=0, max_retries=0)
def train(what, *given):
    """As verl's: the trainer is a task that asks workers."""
    ray.get(getattr(Worker.remote(), what).remote(*given))


def said(monkeypatch, what, *given) -> str:
    monkeypatch.setattr(main, "__wrapped__", lambda config: ray.get(train.remote(what, *given)))
    with pytest.raises(GearError) as caught:
        run(CONFIG)
    return str(caught.value)


def test_a_worker_s_message_comes_through_as_it_is(monkeypatch):
    assert said(monkeypatch, "fail", GearError("the 'ema' teacher does not fit.")) == "the 'ema' teacher does not fit."


def test_too_few_gpus_are_named_with_the_options(monkeypatch):
    told = said(monkeypatch, "fail", ValueError(f"{TOO_FEW_GPUS} 4.0 is less than total desired GPUs 16"))
    assert told.startswith(TOO_FEW_GPUS) and "trainer.nnodes=2 × trainer.n_gpus_per_node=8" in told


def test_a_worker_that_dies_is_named_with_how_to_go_on(monkeypatch):
    told = said(monkeypatch, "die")
    assert "died" in told and "Run the same command again" in told and "\n" not in told


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr(main, "__wrapped__", lambda config: ray.get(train.remote("fail", KeyError("x"))))
    with pytest.raises(KeyError):
        run(CONFIG)
