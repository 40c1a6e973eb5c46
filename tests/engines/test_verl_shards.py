"""A teacher of shards on weights that FSDP2 has really sharded, over two processes."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from gear_rl.engines.verl.shard_teacher import ShardTeacher
from gear_rl.tasks.workshop import Workshop


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(Workshop().default_model(), dtype=torch.float32).eval()


def work(rank: int, port: int, reshard: bool, model: Any, results: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)  # both settings that verl has
    fully_shard(model, mesh=mesh)
    ids = torch.arange(12)[None] + rank
    with torch.no_grad():
        start = model(input_ids=ids).logits.clone()
        teachers = {kind: ShardTeacher(model, kind, 2, 0.5) for kind in ("base", "ema", "sync")}
        for part in model.modules():
            if hasattr(part, "reshard"):
                part.reshard()
        kept = {name: p.to_local().clone() for name, p in model.named_parameters()}
        for _ in range(2):
            for part in model.modules():
                if hasattr(part, "reshard"):
                    part.reshard()
            for parameter in model.parameters():
                parameter.to_local().mul_(1.1)
            for teacher in teachers.values():
                teacher.after_step()
        moved = model(input_ids=ids).logits.clone()
        read = {}
        for kind, teacher in teachers.items():
            with teacher.in_place():
                read[kind] = model(input_ids=ids).logits.clone()
                for part in model.modules():
                    if hasattr(part, "reshard"):
                        part.reshard()
                if kind == "ema":
                    for name, p in model.named_parameters():  # 1 → (1 + 1.1)/2 → (1.05 + 1.21)/2
                        assert torch.allclose(p.to_local(), kept[name] * 1.13, rtol=1e-5)
        after = model(input_ids=ids).logits.clone()
    results.put(
        (
            torch.equal(read["base"], start),
            torch.equal(read["sync"], moved),
            not torch.allclose(read["ema"], moved, atol=1e-3) and not torch.allclose(read["ema"], start, atol=1e-3),
            torch.equal(after, moved) and not torch.allclose(moved, start, atol=1e-3),
        )
    )
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("reshard", [True, False])
def test_sharded_weights_are_exchanged_for_the_teachers_and_come_back(model, reshard):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("fork")  # what is imported and loaded here they have
    results = context.Queue()
    processes = [context.Process(target=work, args=(rank, port, reshard, model, results)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    for _ in processes:
        base, sync, ema, back = results.get()
        assert base and sync and ema and back
