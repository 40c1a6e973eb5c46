"""Test only: verl on a CPU. Loaded by verl before ours, VERL_USE_EXTERNAL_MODULES=verl_on_cpu,gear_rl.engines.verl.

A CPU platform, gloo where verl would ask for a backend of the device, rollouts by transformers (`verl_hf_rollout`), and a
replay buffer that looks more often. Engine, trainer, agent loop, queue and checkpoints are the real ones.
"""

from __future__ import annotations

import os
import types
from contextlib import contextmanager

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

torch.set_num_threads(1)
_ANSWERS = {
    "max_memory_allocated": 0, "max_memory_reserved": 0, "memory_allocated": 0, "memory_reserved": 0,
    "mem_get_info": (2**34, 2**34), "get_device_name": "CPU",
}  # fmt: skip
_SAME = {
    "get_rng_state": torch.get_rng_state, "set_rng_state": torch.set_rng_state, "manual_seed": torch.manual_seed,
    "manual_seed_all": torch.manual_seed,
}  # fmt: skip


class _Device(types.ModuleType):
    """What verl asks `torch.cuda` for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        return _SAME.get(name) or (lambda *args, **kwargs: _ANSWERS.get(name))


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    device_name, vendor_name, device_module = "cpu", "cpu", _Device("cpu_device")

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "GPU"  # verl's pools ask for it by name; ray.init(num_gpus=…) makes some up

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def rollout_env_vars(self):
        return {}

    def get_collective_module(self):
        return None

    def cudart(self):
        return None

    @contextmanager
    def nvtx_range(self, msg):
        yield

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_device(self, device_index): ...
    def synchronize(self, device_index=None): ...
    def set_allocator_settings(self, settings): ...
    def empty_cache(self): ...
    def profiler_start(self): ...
    def profiler_stop(self): ...


def _start_gloo(timeout_second=None, backend=None):
    """verl would ask for "cpu:gloo,cpu:gloo", which torch refuses."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", rank=int(os.environ.get("RANK", 0)), world_size=int(os.environ.get("WORLD_SIZE", 1)),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )  # fmt: skip


def _install():
    import verl.utils.distributed

    verl.utils.distributed.initialize_global_process_group_ray = _start_gloo
    from verl.trainer.ppo.v1 import replay_buffer
    from verl.workers.engine import EngineRegistry
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from gear_rl.engines.verl.engine import CreditFSDPEngine

    if "cpu" not in EngineRegistry._engines["language_model"]["fsdp2"]:
        EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(CreditFSDPEngine)
    base._ROLLOUT_REGISTRY[("hf", "async")] = "verl_hf_rollout.HFAdapter"

    def replica():
        from verl_hf_rollout import HFReplica

        return HFReplica

    RolloutReplicaRegistry.register("hf", replica)
    begin = replay_buffer.ReplayBuffer.__init__

    def impatient(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.poll_interval = 0.05

    replay_buffer.ReplayBuffer.__init__ = impatient


_install()
