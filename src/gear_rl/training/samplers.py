"""The samplers of `gear train` by name, and what each cannot do."""

from __future__ import annotations

import torch

from gear_rl.engines.trl_vllm import check_vllm
from gear_rl.errors import GearError
from gear_rl.sampling.continuous_batching import continuous_turns
from gear_rl.sampling.own_turns import own_turns
from gear_rl.sampling.turns import OpenSampler
from gear_rl.training.config import TrainOptions

IN_PROCESS: dict[str, OpenSampler] = {"own": own_turns, "continuous_batching": continuous_turns}
"""Those that run the policy itself. The third, vllm, is TRL's engine and comes with the trainer."""


def check_sampler(options: TrainOptions, device: torch.device, processes: int = 1) -> None:
    """Raise where `train.sampler` cannot do what the other settings ask for. Nothing is loaded before."""
    name = options.sampler
    if options.vllm_memory is not None and name != "vllm":
        raise GearError(f"train.vllm_memory: only train.sampler=vllm uses it, and the sampler is {name}.")
    if name == "own":
        return
    if options.engine != "trl":
        raise GearError(f"train.sampler={name} goes with train.engine=trl, and the engine is {options.engine}.")
    if name == "vllm":
        check_vllm(device)
        return
    if options.seeded_sampling or processes > 1:
        what = "train.seeded_sampling" if options.seeded_sampling else f"{processes} processes"
        raise GearError(
            f"train.sampler={name} has one stream of random numbers for a batch, and {what} need{'s' * (processes == 1)} "
            "one per rollout: use train.sampler=own or vllm."
        )
    from transformers.generation.continuous_batching import ContinuousBatchingManager

    if not hasattr(ContinuousBatchingManager, "pause"):
        raise GearError(
            f"train.sampler={name} needs a newer transformers, whose continuous batching can be paused: "
            "pip install 'transformers>=5.22'."
        )
