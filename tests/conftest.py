"""Shared by all tests: one thread (the models are tiny), no hub, and the embedded model as the real model everywhere."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)

LONG = (
    "test_processes", "test_compare", "test_training", "test_run_folder", "test_report_large", "test_warm_start",
    "test_harnesses", "test_evidence", "test_fused", "test_package", "test_blocks", "test_report_watch", "test_verl_shards",
)  # fmt: skip
"""Files that take longest. They begin first, so that two processes (`make test`) end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(autouse=True)
def no_process_group_is_left_behind():
    """TRL's vLLM code names a process group in the environment. Later trainers would join it, and so would a later test's
    subprocess, on the same port."""
    yield
    named = [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name in os.environ]
    for name in named:
        del os.environ[name]
    if named and torch.distributed.is_initialized():
        from accelerate.state import AcceleratorState, PartialState

        torch.distributed.destroy_process_group()
        AcceleratorState._reset_state()
        PartialState._reset_state()


@pytest.fixture
def workshop():
    from gear_rl.tasks import make_task

    return make_task("workshop", steps=4)


@pytest.fixture
def model_and_tokenizer(workshop):
    from gear_rl.models import load_model

    return load_model(workshop.default_model(), "cpu")
