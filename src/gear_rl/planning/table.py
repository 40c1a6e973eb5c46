"""A plan for people, in 80 columns."""

from __future__ import annotations

import textwrap

from gear_rl.planning.hardware import MEASURED_ON, NETWORK, NODE
from gear_rl.planning.memory import GIB, RESERVE, SPARE, usable
from gear_rl.planning.plan import MethodPlan, what_would_fit
from gear_rl.planning.sampling import tensor_parallel
from gear_rl.planning.setup import Setup

WIDTH = 80


def in_words(plans: list[MethodPlan], width: int = WIDTH) -> str:
    base = plans[0]
    lines = [*_about(base.setup, width), "", *_step(base, width), "", *_methods(plans), ""]
    lines += _verdict(plans, width)
    return "\n".join([*lines, "", *_wrapped("assumed  " + " ".join(assumptions(base.setup)), width)])


def _about(setup: Setup, width: int) -> list[str]:
    shape, gpu = setup.shape, setup.gpu
    turns = f", {setup.turns} turns with replies of {setup.reply:,}" if setup.turns > 1 else ""
    said = [
        f"{shape.name} ({shape.parameters / 1e9:.1f} B parameters) on {setup.gpus} × {gpu.name} ({gpu.memory:.0f} GiB)",
        f"{setup.rollouts} rollouts a step in groups of {setup.group}; prompt {setup.prompt:,}, completion "
        f"{setup.completion:,} tokens{turns}",
    ]
    return [line for words in said for line in _wrapped(words, width)]


def _step(base: MethodPlan, width: int) -> list[str]:
    """The GRPO step: how it is run, where its memory and its time go."""
    setup, m, t = base.setup, base.memory, base.time
    training = f"LoRA of rank {setup.lora}" if setup.lora else "all weights trained"
    how = "FSDP2" if setup.sharding == "fsdp" else "weights whole on each GPU" if setup.gpus > 1 else "one process"
    checkpointing = "gradient checkpointing" if setup.checkpointing else "no checkpointing"
    split = tensor_parallel(setup)
    waves = f", {m.sampling_waves} parts" if m.sampling_waves > 1 and base.fits else ""
    sampler = f"split over {split} GPUs" if split > 1 else "whole on each GPU"
    kept = {"weights": m.weights, "optimizer": m.optimizer, "reserve": RESERVE}
    phases = {"training": m.training, "sampling": m.sampling}
    memory = ", ".join(f"{name} {value / GIB:.1f}" for name, value in kept.items())
    memory += "; then in turn " + ", ".join(f"{name} {value / GIB:.1f}" for name, value in phases.items())
    times = f"loss {seconds(t.loss)}, communication {seconds(t.exchange)}, sampling {seconds(base.sampling)}"
    lines = _wrapped(f"run      {how}, {training}, {setup.precision}, {checkpointing}, micro-batch "
                     f"{setup.micro_batch}; sampler {sampler}{waves}", width)  # fmt: skip
    lines += _wrapped(f"memory   GRPO, GiB per GPU: {memory}", width)
    return lines + (_wrapped(f"time     GRPO, per step: {times}", width) if base.fits else [])


def _methods(plans: list[MethodPlan]) -> list[str]:
    base = plans[0]
    theirs = base.time.total + base.sampling
    lines = [
        f"{'method':18}{'GiB':>7} {'fits':4}{'signals':>9}{'step':>9}{'× GRPO':>8}{'with sampling':>15}{'× GRPO':>8}"
    ]
    for p in plans:
        line = f"{p.name[:17]:18}{p.memory.peak / GIB:7.1f} {'yes' if p.fits else 'NO':4}"
        if p.fits and base.fits:
            whole = p.time.total + p.sampling
            line += f"{seconds(p.time.signals):>9}{seconds(p.time.total):>9}{p.time.total / base.time.total:8.2f}"
            line += f"{seconds(whole):>15}{whole / theirs:8.2f}"
        lines.append(line.rstrip())
    return lines


def _verdict(plans: list[MethodPlan], width: int) -> list[str]:
    room = usable(plans[0].setup) / GIB
    failing = [p for p in plans if not p.fits]
    if not failing:
        return _wrapped(f"fits     all of them, in {room:.0f} GiB", width)
    lines: list[str] = []
    told: dict[tuple[str, ...], list[str]] = {}
    for p in failing:
        told.setdefault(tuple(what_would_fit(p)), []).append(p.name)
    for changes, names in told.items():
        who = ", ".join(names) if len(names) < len(plans) else "nothing here"
        verb = "fits" if len(names) == len(plans) else "does not fit" if len(names) == 1 else "do not fit"
        lines += _wrapped(f"verdict  {who} {verb} in {room:.0f} GiB.", width)
        if not changes:
            lines += _wrapped(
                "         Nothing that this command can turn is enough: choose a smaller model or larger GPUs.", width
            )
        else:
            lines.append(f"         {'Any of these is' if len(changes) > 1 else 'This would be'} enough:")
            lines += [line for change in changes for line in _wrapped(f"           {change}", width, 13)]
    return lines


def assumptions(setup: Setup) -> list[str]:
    """What the numbers rest on, a sentence each."""
    gpu = (
        "measured on an H200" if setup.gpu.name == MEASURED_ON.name else "measured on an H200 and scaled by data sheet"
    )
    said = [
        f"Rates {gpu}: benchmarks/step_cost.py; docs/scaling.md compares.",
        "One optimizer step per batch of rollouts; all rollouts have the full length; groups share their prompt while scored.",
        f"Link between GPUs: {setup.gpu.node_link:.0f} GB/s within a node of {NODE}, {NETWORK:.0f} GB/s beyond.",
        f"The sampler reads all weights and the cache for each token. {100 * SPARE:.0f} % of the memory stays free.",
    ]
    if setup.turns > 1:
        said.append("Environments answer at once.")
    return said


def seconds(value: float) -> str:
    if value < 0.0005:
        return "0"
    if value < 1:
        return f"{1e3 * value:.0f} ms"
    return f"{value:.1f} s" if value < 600 else f"{value / 60:.0f} min"


def _wrapped(words: str, width: int, indent: int = 9) -> list[str]:
    return textwrap.wrap(words, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
