"""Memory and time of a step for GRPO and each method, and what to change where it does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from math import lcm
from typing import Any

from gear_rl.methods import Method, find_method
from gear_rl.planning.memory import GIB, Memory, memory, usable
from gear_rl.planning.readings import readings
from gear_rl.planning.sampling import sampling_time, tensor_parallel
from gear_rl.planning.setup import Setup
from gear_rl.planning.times import StepTime, step_time
from gear_rl.scoring.batching import MOST_TOKENS

BASELINE = "grpo"
MOST_GPUS = 4096
LORA = 32
SHORTEST = 64
"""Tokens. No advice goes below."""
Change = tuple[str, dict[str, Any]]
"""How it is said on the command line, and the fields of `Setup`."""


@dataclass(frozen=True)
class MethodPlan:
    name: str
    setup: Setup
    """As planned: with the sharding and micro-batch that were chosen."""
    memory: Memory
    time: StepTime
    sampling: float
    """Seconds"""
    reads: list[str]
    """What is read beyond a GRPO step."""

    @property
    def fits(self) -> bool:
        return self.memory.peak <= usable(self.setup)


def plan_method(method: Method, setup: Setup, choose_sharding: bool = False) -> MethodPlan:
    """With the largest micro-batch that fits, where none is given; sharded only where it must be, if that may be chosen."""
    tries = [setup]
    if choose_sharding and setup.gpus > 1:
        tries = [replace(setup, sharding="none"), replace(setup, sharding="fsdp")]
    for attempt in tries:
        for size in [setup.micro_batch] if setup.micro_batch else _micro_batches(setup):
            chosen = replace(attempt, micro_batch=size)
            needed = memory(method, chosen)
            if needed.peak <= usable(chosen):
                break
        else:
            continue
        break
    read = [reading.what for reading in readings(method, chosen)]
    return MethodPlan(
        method.name, chosen, needed, step_time(method, chosen), sampling_time(chosen, needed.sampling_waves), read
    )


def plan(setup: Setup, names: Iterable[str], choose_sharding: bool = False) -> list[MethodPlan]:
    """GRPO first, then the others as named."""
    methods = [find_method(name)() for name in dict.fromkeys([BASELINE, *names])]
    return [plan_method(method, setup, choose_sharding) for method in methods]


def as_json(plans: list[MethodPlan]) -> dict[str, Any]:
    base, setup = plans[0], plans[0].setup
    return {
        "model": {**asdict(setup.shape), "parameters": setup.shape.parameters},
        "gpu": {**asdict(setup.gpu), "usable_gib": usable(setup) / GIB},
        "setup": {k: v for k, v in asdict(setup).items() if k not in ("shape", "gpu", "micro_batch", "sharding")},
        "methods": [
            {
                "name": p.name,
                "fits": p.fits,
                "sharding": p.setup.sharding,
                "micro_batch": p.setup.micro_batch,
                "memory_gib": p.memory.as_gib(),
                "seconds": {**asdict(p.time), "sampling": p.sampling, "total": p.time.total + p.sampling},
                "sampling_waves": p.memory.sampling_waves,
                "sampling_gpus": tensor_parallel(p.setup),
                "over_grpo": p.time.total / base.time.total,
                "over_grpo_with_sampling": (p.time.total + p.sampling) / (base.time.total + base.sampling),
                "reads": p.reads,
                "what_would_fit": [] if p.fits else what_would_fit(p),
            }
            for p in plans
        ],
    }


def _micro_batches(setup: Setup) -> list[int]:
    """Divisors of a GPU's rollouts, largest first; more tokens than fill a GPU are no faster."""
    most = max(1, MOST_TOKENS // setup.length)
    return [n for n in range(min(setup.here, most), 0, -1) if setup.here % n == 0]


def what_would_fit(planned: MethodPlan) -> list[str]:
    """Alternatives: single changes that are enough, else several together; and the fewest GPUs. Empty: nothing is."""
    method, setup = find_method(planned.name)(), planned.setup

    def fits(changes: list[Change]) -> bool:
        merged = {name: value for change in changes for name, value in change[1].items()}
        return plan_method(method, replace(setup, **merged)).fits

    changes, shorter, larger = _changes(planned), list(_shorter(setup)), list(_more_gpus(setup))
    found = [[change] for change in changes if fits([change])]
    for alone in (shorter, larger):
        found += [[change] for change in alone if fits([change])][:1]
    several = ([*changes, *rest] for rest in ([], *([s] for s in shorter), *([s, g] for s in shorter for g in larger)))
    if not found and (needed := next((each for each in several if fits(each)), None)):
        for change in reversed(changes):  # the dearest first: is it needed?
            fewer = [other for other in needed if other is not change]
            needed = fewer if fits(fewer) else needed
        found = [needed]
    return [" and ".join(words for words, _ in each) for each in found]


def _shorter(setup: Setup) -> Iterator[Change]:
    """The longer of prompt and completion, halved again and again."""
    name = "prompt" if setup.prompt > setup.response else "completion"
    length: int = getattr(setup, name) // 2
    while length >= max(SHORTEST, setup.turns):
        yield f"--{name} {length}", {name: length}
        length //= 2


def _more_gpus(setup: Setup) -> Iterator[Change]:
    number = max(2, setup.gpus)
    while number <= MOST_GPUS:
        unit = lcm(number, setup.group)
        rollouts = -(-setup.rollouts // unit) * unit
        note = f" --rollouts {rollouts}" if rollouts != setup.rollouts else ""
        change = {"gpus": number, "rollouts": rollouts, "sharding": "fsdp", "micro_batch": 0}
        yield f"--gpus {number} --shard fsdp{note}", change
        number *= 2


def _changes(planned: MethodPlan) -> list[Change]:
    """What to turn, the cheapest first."""
    setup, options = planned.setup, list[Change]()
    if setup.micro_batch > 1:
        options.append(("--micro-batch 1", {"micro_batch": 1}))
    if not setup.checkpointing:
        options.append(("gradient checkpointing (leave out --no-checkpointing)", {"checkpointing": True}))
    if setup.gpus > 1 and setup.sharding == "none":
        options.append(("--shard fsdp", {"sharding": "fsdp"}))
    if setup.precision == "mixed":
        options.append(("--precision bf16", {"precision": "bf16"}))
    if planned.memory.teacher:
        options.append(("--teacher live", {"teacher": "live"}))
    if not setup.lora:
        options.append((f"--lora {LORA}", {"lora": LORA}))
    return options
