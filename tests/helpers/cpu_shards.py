"""FSDP2 and DeepSpeed on a CPU, for tests: accelerate allows both on GPUs only, so gloo ranks are called GPUs to it.

The device stays the CPU. Import it before accelerate builds its state; `STRATEGIES` are the variables that
`accelerate launch` would set.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os

FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    "FSDP_USE_ORIG_PARAMS": "true",
}
CPU = {"ACCELERATE_TORCH_DEVICE": "cpu", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
ZERO3 = {
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
    "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
}
STRATEGIES = {
    "one": {}, "ddp": {}, "fsdp2": CPU | FSDP2, "zero3_by_accelerate": CPU | ZERO3,
    "zero2": CPU, "zero3": CPU,  # by TrainingArguments.deepspeed
}  # fmt: skip


def unlock() -> None:
    """In processes started with the variables above; elsewhere without effect."""
    if "ACCELERATE_TORCH_DEVICE" not in os.environ:
        return
    from accelerate import PartialState
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType

    PartialState._prepare_backend = lambda self, cpu, sm=None, backend=None: ("gloo", DistributedType.MULTI_GPU)
    if os.environ.get("ACCELERATE_USE_FSDP") and "RANK" in os.environ:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")  # accelerate leaves it out where both CPU and GPU are asked for
    if os.environ.get("ACCELERATE_USE_DEEPSPEED"):
        _without_cpu(PartialState)
        _without_cpu(AcceleratorState)
    if importlib.util.find_spec("deepspeed"):
        backend = importlib.import_module("deepspeed.comm.torch")
        backend.build_shm_op = lambda: None  # would compile C++ for minutes


def _without_cpu(state: type) -> None:
    """accelerate leaves DeepSpeed out where it is told to use the CPU, which `gear train` on a CPU does."""
    begin, signature = state.__init__, inspect.signature(state.__init__)

    def init(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.arguments["cpu"] = False
        begin(*bound.args, **bound.kwargs)

    state.__init__ = init


def deepspeed_config(stage: int) -> dict:
    return {
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
    }
