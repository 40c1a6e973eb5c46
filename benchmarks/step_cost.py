"""What a step of GEAR and of other methods costs over a GRPO step in TRL, and where the time goes.

    PYTHONPATH=src python benchmarks/step_cost.py --size 0.6b 1.7b 4b --out benchmarks/results/step_cost_h200.json
    PYTHONPATH=src python benchmarks/step_cost.py --size tiny --device cpu            seconds; says nothing about a GPU
    PYTHONPATH=src python benchmarks/step_cost.py --size 4b --sharded                 see benchmarks/sharded_scoring.py

Random weights of Qwen3's shapes, bf16 on a GPU (weights, gradients and AdamW's state too), gradient checkpointing, one
optimizer step per batch, one micro-batch. Eight rollouts a prompt, hint of 64 tokens, and every completion token scored.

    given      the rollouts are supplied: a step without sampling
    sampled    our own sampler (CUDA graphs) samples them in the step; GRPO and GEAR only
    detail     as given, the device waited for after every part: where the time goes

One trainer runs all methods in turns, a step each, with the same optimizer: what slows the machine down slows all. A
ratio is of a method's step and the GRPO step of the same turn; printed are the median and the range of the ratios.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import shlex
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from random_qwen3 import GROUP, HINT, SIZES, OneState, RandomRollouts, random_model, reward
from step_parts import Clock, Parts

from gear_rl.engines.step import CreditStep, teacher_of
from gear_rl.methods import METHODS, method
from gear_rl.signals.reader import Reader
from gear_rl.signals.sources import Sources

BASELINE = "grpo"
MAIN = (BASELINE, "gear")
"""Measured most often, and with sampling too."""


def schedule(methods: list[str], options: argparse.Namespace) -> list[tuple[str, str]]:
    """(kind, method) of every step, in turns."""
    main = [name for name in MAIN if name in methods]
    turns = [("warm-up", methods), ("warm-up", main)]
    turns += [("given", methods)] * min(2, options.turns) + [("given", main)] * (options.turns - 2)
    turns += [("detail", methods)]
    turns += [("sampled warm-up", main[:1])] * bool(options.sampled) + [("sampled", main)] * options.sampled
    return [(kind, name) for kind, names in turns for name in names]


def build(size: Any, device: torch.device, folder: str, steps: int) -> tuple[Any, RandomRollouts]:
    from datasets import Dataset
    from transformers import PrinterCallback

    from gear_rl.engines.trl import CreditGRPOTrainer, GRPOConfig
    from gear_rl.models import load_tokenizer
    from gear_rl.tasks.workshop import Workshop

    on_gpu = device.type == "cuda"
    rollouts = RandomRollouts(size, device)
    config = GRPOConfig(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=size.rollouts, num_generations=GROUP,
        max_completion_length=size.completion, gradient_checkpointing=True, bf16=on_gpu, use_cpu=not on_gpu, beta=0.0,
        learning_rate=1e-6, report_to="none", disable_tqdm=True, save_strategy="no", logging_steps=10**6, seed=0,
    )  # fmt: skip
    trainer = CreditGRPOTrainer(
        model=random_model(size.shape, device, torch.bfloat16 if on_gpu else torch.float32), args=config,
        processing_class=load_tokenizer(Workshop().default_model()), reward_funcs=[reward], sampler=rollouts,
        train_dataset=Dataset.from_list(rollouts.rows * 4), credit=BASELINE,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer, rollouts


def credit_step(name: str, trainer: Any) -> CreditStep:
    """As `CreditGRPOTrainer` makes it, for another method on the same trainer."""
    of, sources = method(name), Sources(hint="hint", knowledge=OneState())
    scorer = type(trainer.credit_step.reader.scorer)(trainer.weights, trainer.temperature)
    reader = Reader(scorer, teacher_of(of, trainer.weights), trainer._tokenizer, sources, trainer._tokenized, name)
    return CreditStep(of, reader)


def measure(size: Any, methods: list[str], device: torch.device, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Trains, and gives what every step took: its kind, method, seconds, parts and peak memory."""
    steps = schedule(methods, options)
    with tempfile.TemporaryDirectory() as folder:
        trainer, rollouts = build(size, device, folder, len(steps))
        clock = Clock(device)
        credit_steps, kept = {}, {}
        for name in methods:
            before = clock.allocated()
            credit_steps[name] = credit_step(name, trainer)
            kept[name] = clock.allocated() - before  # a teacher with weights of its own keeps them from step to step
        parts = Parts(trainer, rollouts, credit_steps, kept, steps, clock)
        trainer.train()
        parts.close()
        return parts.done


def summary(size: Any, methods: list[str], done: list[dict[str, Any]]) -> dict[str, Any]:
    by = {kind: {m: [s for s in done if s["kind"] == kind and s["method"] == m] for m in methods}
          for kind in ("given", "detail", "sampled")}  # fmt: skip
    out: dict[str, Any] = {"prompt": size.prompt, "completion": size.completion, "rollouts": size.rollouts}
    for kind in ("given", "sampled"):
        out[kind] = {}
        base = [s["seconds"] for s in by[kind][BASELINE]]
        for name in methods:
            seconds = [s["seconds"] for s in by[kind][name]]
            if not seconds:
                continue
            ratios = sorted(mine / theirs for mine, theirs in zip(seconds, base, strict=False))
            out[kind][name] = {
                "ms": 1e3 * statistics.median(seconds), "all_ms": [1e3 * s for s in seconds],
                "ratio": statistics.median(ratios), "ratios": ratios,
                "peak_bytes": max(s["peak_bytes"] for s in by[kind][name]),
            }  # fmt: skip
    out["detail"] = {}
    for name in methods:
        shots = by["detail"][name]
        names = dict.fromkeys(part for shot in shots for part in shot["parts"])
        parts = {part: 1e3 * statistics.median([s["parts"].get(part, 0.0) for s in shots]) for part in names}
        total = 1e3 * statistics.median([s["seconds"] for s in shots])
        alone = 1e3 * statistics.median([s["teacher_alone"] for s in shots])
        out["detail"][name] = {
            "ms": total, "parts_ms": parts, "rest_ms": total - sum(parts.values()), "teacher_alone_ms": alone,
        }  # fmt: skip
    return out


def show(name: str, result: dict[str, Any]) -> None:
    gib = 2**30
    print(f"\n{name}: prompt {result['prompt']}, completion {result['completion']}, {result['rollouts']} rollouts")
    print(
        f"{'method':8}{'step ms':>10}{'over GRPO':>11}  {'range':15}{'peak GiB':>9}{'sampled ms':>12}{'over GRPO':>11}"
    )
    for method_name, row in result["given"].items():
        low, high = row["ratios"][0], row["ratios"][-1]
        line = f"{method_name:8}{row['ms']:10.1f}{row['ratio']:11.3f}  {f'{low:.3f}–{high:.3f}':15}"
        line += f"{row['peak_bytes'] / gib:9.1f}"
        if sampled := result["sampled"].get(method_name):
            line += f"{sampled['ms']:12.1f}{sampled['ratio']:11.3f}"
        print(line)
    for method_name, row in result["detail"].items():
        parts = {**row["parts_ms"], "rest": row["rest_ms"]}
        print(f"  {method_name}: " + ", ".join(f"{part} {ms:.1f}" for part, ms in parts.items()), flush=True)
        if row["teacher_alone_ms"]:
            floor = 1 + row["teacher_alone_ms"] / result["given"][BASELINE]["ms"]
            print(
                f"    the teacher's forward alone: {row['teacher_alone_ms']:.1f} ms, a floor of {floor:.3f} GRPO steps"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["0.6b"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["gear", "rlsd", "opsd", "gigpo"])
    parser.add_argument("--turns", type=int, default=5, help="measured steps of GRPO and GEAR; others at most 2")
    parser.add_argument("--sampled", type=int, default=0, metavar="STEPS", help="steps of GRPO and GEAR with sampling")
    parser.add_argument("--sharded", action="store_true", help="time scoring of sharded weights instead")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1 if device.type == "cpu" else torch.get_num_threads())
    results = {}
    for name in options.size:
        if options.sharded:
            from sharded_scoring import compare

            results[name] = compare(SIZES[name], device, options.shards)
        else:
            methods = list(dict.fromkeys([BASELINE, *options.methods]))
            results[name] = summary(SIZES[name], methods, measure(SIZES[name], methods, device, options))
            show(name, results[name])
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            print(f"left on the device: {torch.cuda.memory_allocated() / 2**30:.1f} GiB")
        if options.out:  # after every size, so that a run that is stopped has left the earlier ones
            machine = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "CPU"
            packages = ("torch", "transformers", "trl")
            about = {"command": shlex.join(["python", *sys.argv]), "device": machine, "hint": HINT, "group": GROUP,
                     "versions": {p: version(p) for p in packages}}  # fmt: skip
            key = "sharded" if options.sharded else "sizes"
            options.out.write_text(json.dumps({**about, key: results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
