"""What does scoring a batch of rollouts cost, end to end, against plain forwards and against TRL's own way?

    PYTHONPATH=src python benchmarks/scoring.py --model FOLDER --out benchmarks/results/scoring_h200.json

Eight rollouts a prompt, prompt 1024, hinted prompt 1088, response 512, all response tokens scored, bf16. Without a GPU
it runs tiny shapes, which say nothing about speed on one. Without --model the weights of SmolLM2-135M's architecture are
random: the time is the same, the errors are not. Ways, all with passes of the same number of tokens at most:

    ours            Scorer.score: from prompts and completions to reverse KL, entropy and both log-probs of every token
    ours, unshared  the same with share_prompts=False
    two bodies      the model's body over student and teacher inputs, nothing else: no head, no divergence
    TRL             GRPOTrainer._get_per_token_logps_and_entropies over both: log-probs and entropies, no divergence
    error           mean difference from a float32 copy of the model reading one rollout at a time, in nats
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from small_model import random_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
GROUP = 8
PROMPT, HINT, RESPONSE = (1024, 64, 512) if ON_GPU else (64, 8, 32)
PROMPTS = (1, 4, 16) if ON_GPU else (1, 2)
MEMORY_PROMPTS = (4, 16, 64) if ON_GPU else (1, 2)
BUDGET = 65_536 if ON_GPU else 2048


def load(folder: Path | None) -> Any:
    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPE).to(DEVICE).eval()
    return random_model(DEVICE, DTYPE)


class Rollouts:
    """Random ids. Every response is complete, so that the plain ways have no padding to pay for."""

    def __init__(self, prompts: int, vocab: int) -> None:
        draw = torch.Generator().manual_seed(prompts)

        def ids(n: int) -> list[int]:
            return torch.randint(vocab, (n,), generator=draw).tolist()

        own = [ids(PROMPT) for _ in range(prompts)]
        hinted = [[*prompt, *ids(HINT)] for prompt in own]
        self.prompts = [list(own[i // GROUP]) for i in range(prompts * GROUP)]
        self.hinted = [list(hinted[i // GROUP]) for i in range(prompts * GROUP)]
        self.completions = [ids(RESPONSE) for _ in self.prompts]
        self.ids = torch.tensor(self.completions, device=DEVICE)
        self.mask = torch.ones(len(self.prompts), RESPONSE, dtype=torch.bool, device=DEVICE)

    def inputs(self) -> list[Tensor]:
        """Student's and teacher's ids, (B, P + R) each."""
        return [
            torch.tensor([p + c for p, c in zip(side, self.completions, strict=True)], device=DEVICE)
            for side in (self.prompts, self.hinted)
        ]


def ours(model: Any, rollouts: Rollouts, **options: Any) -> Callable[[], dict[str, Tensor]]:
    scorer, teacher = Scorer(model, token_budget=BUDGET, **options), Teacher(model)
    return lambda: scorer.score(rollouts.prompts, rollouts.hinted, rollouts.ids, rollouts.mask, teacher)


def two_bodies(model: Any, rollouts: Rollouts) -> Callable[[], None]:
    inputs = rollouts.inputs()

    @torch.no_grad()
    def run() -> None:
        for ids in inputs:
            for part in ids.split(max(1, BUDGET // ids.shape[1])):
                model.model(input_ids=part, use_cache=False)

    return run


def trl_way(model: Any, rollouts: Rollouts) -> Callable[[], list[Any]]:
    """TRL's method on a model prepared as its trainer prepares it; the trainer itself would only be carried along."""
    from accelerate import Accelerator
    from trl import GRPOTrainer
    from trl.trainer.utils import add_fused_lm_head

    patched = copy.copy(model)  # the same weights; the patch is a method of the instance
    patched.__dict__ = dict(model.__dict__)
    add_fused_lm_head(patched, temperature=1.0, outputs=("log_probs", "entropy"))
    trainer = SimpleNamespace(accelerator=Accelerator(cpu=not ON_GPU))
    read = GRPOTrainer._get_per_token_logps_and_entropies.__wrapped__  # without the profiler's decorator
    inputs = [(ids, torch.ones_like(ids)) for ids in rollouts.inputs()]

    @torch.no_grad()
    def run() -> list[Any]:
        return [
            read(trainer, patched, ids, mask, RESPONSE, max(1, BUDGET // ids.shape[1]), compute_entropy=True)
            for ids, mask in inputs
        ]

    return run


def milliseconds(ways: dict[str, Callable[[], Any]], repeats: int = 9) -> dict[str, float]:
    """Median wall-clock time of one call, from the host's start to the device's end. The ways take turns: what slows the
    machine down for a moment slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(repeats + 3):
        for name, run in ways.items():
            _synchronize()
            began = time.perf_counter()
            run()
            _synchronize()
            if i > 2:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(taken) for name, taken in times.items()}


def peak(run: Callable[[], Any]) -> int | None:
    """Bytes beyond what was allocated before."""
    if not ON_GPU:
        return None
    run()
    _synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    _synchronize()
    return torch.cuda.max_memory_allocated() - before


def _synchronize() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def errors(model: Any) -> dict[str, dict[str, float]]:
    """Mean absolute difference from float32, one rollout at a time; and of bf16 one at a time, which is rounding alone."""
    rollouts = Rollouts(1, model.config.vocab_size)
    exact = copy.deepcopy(model).float()

    def one_at_a_time(of: Any) -> dict[str, Tensor]:
        scorer, teacher = Scorer(of, share_prompts=False), Teacher(of)
        parts = [
            scorer.score(
                [rollouts.prompts[i]],
                [rollouts.hinted[i]],
                [rollouts.completions[i]],
                rollouts.mask[i : i + 1],
                teacher,
            )
            for i in range(GROUP)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in SIGNALS}

    truth = one_at_a_time(exact)
    ways = {"ours": ours(model, rollouts)(), "bf16, one at a time": one_at_a_time(model)}
    return {
        way: {name: float((signals[name] - truth[name]).abs().mean()) for name in SIGNALS}
        for way, signals in ways.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, help="folder of a Llama-like model; default: SmolLM2-135M's shape, random"
    )
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    options = parser.parse_args()
    model = load(options.model)
    rows = []
    for prompts in PROMPTS:
        rollouts = Rollouts(prompts, model.config.vocab_size)
        ways: dict[str, Callable[[], Any]] = {
            "ours": ours(model, rollouts),
            "ours, unshared": ours(model, rollouts, share_prompts=False),
            "two bodies": two_bodies(model, rollouts),
            "TRL": trl_way(model, rollouts),
        }
        row: dict[str, Any] = {"prompts": prompts, "rollouts": prompts * GROUP}
        row["ms"] = milliseconds(ways)
        row["peak_bytes"] = {name: peak(run) for name, run in ways.items()}
        row["ours_over"] = {name: row["ms"]["ours"] / ms for name, ms in row["ms"].items() if name != "ours"}
        rows.append(row)
        print(f"{row['rollouts']:4d} rollouts  " + "  ".join(f"{n} {ms:.1f} ms" for n, ms in row["ms"].items()))
        print("               ours over " + ", ".join(f"{n} {r:.3f}" for n, r in row["ours_over"].items()), flush=True)
    memory = {}
    for prompts in MEMORY_PROMPTS:
        memory[prompts * GROUP] = peak(ours(model, Rollouts(prompts, model.config.vocab_size)))
    print("peak memory of scoring by rollouts:", {n: b and f"{b / 2**20:,.0f} MiB" for n, b in memory.items()})
    difference = errors(model)
    for way, by_name in difference.items():
        print(f"mean error, {way}: " + ", ".join(f"{name} {value:.2e}" for name, value in by_name.items()))
    result = {
        "command": "python " + " ".join(sys.argv),
        "machine": {
            "device": torch.cuda.get_device_name() if ON_GPU else platform.processor(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "trl")},
        },
        "model": "random weights" if options.model is None else options.model.name,
        "shape": {"rollouts_per_prompt": GROUP, "prompt": PROMPT, "hinted_prompt": PROMPT + HINT, "response": RESPONSE},
        "token_budget": BUDGET,
        "rows": rows,
        "peak_bytes_by_rollouts": memory,
        "mean_error": difference,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
