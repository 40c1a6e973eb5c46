"""How long does a batch of rollouts wait for its next token?

    PYTHONPATH=src python benchmarks/sampling.py --out benchmarks/results/sampling_h200.json

SmolLM2-135M's architecture with random weights, bf16; rows read their prompt, then one token after another. Without a GPU it
runs tiny shapes, and no recording, which says nothing about speed on one. Milliseconds from one token of all rows to the next:

    generate    transformers' generate, which TRL samples with unless it is given an inference engine
    growing     `gear_rl.sampling.decoding.Decoder`: transformers' cache, which grows with every token
    recorded    `gear_rl.sampling.graph_decoding.GraphDecoder`: a cache of fixed place, the forward replayed as a CUDA graph
    layers      the same with the model's own layers, of which norms and rotary embeddings are replaced one by one
    unfused     the same with the model's own norms and rotary embeddings too (`gear_rl.sampling.fused_forward`)
    words       as recorded, where half of the rows read 8 tokens of an environment's answer while the others speak
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from small_model import random_model

from gear_rl.sampling.decoding import MOST_TOKENS, Decoder
from gear_rl.sampling.fused_forward import FusedForward
from gear_rl.sampling.fused_layers import lay_side_by_side
from gear_rl.sampling.graph_decoding import GraphDecoder

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
SHAPES = ((64, 512), (256, 128), (32, 4096), (64, 4096)) if ON_GPU else ((4, 16),)
TOKENS = 32 if ON_GPU else 8
REPEATS = 3


def seconds(work: Callable[[], None]) -> float:
    if ON_GPU:
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def a_token(work: Callable[[], None]) -> dict[str, float]:
    """Median and range over `REPEATS` of milliseconds a token; the first run, which records or compiles, is left out."""
    work()
    times = sorted(1e3 * seconds(work) / TOKENS for _ in range(REPEATS))
    return {"median": round(statistics.median(times), 2), "least": round(times[0], 2), "most": round(times[-1], 2)}


def generated(model: Any, rows: int, prompt: int) -> dict[str, float]:
    ids = torch.full((rows, prompt), 7, device=DEVICE)

    def run(tokens: int) -> None:
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, min_new_tokens=tokens, max_new_tokens=tokens
        )

    run(2)
    prefill = min(seconds(lambda: run(1)) for _ in range(2))
    times = sorted(1e3 * (seconds(lambda: run(TOKENS + 1)) - prefill) / TOKENS for _ in range(REPEATS))
    return {"median": round(statistics.median(times), 2), "least": round(times[0], 2), "most": round(times[-1], 2)}


def read(decoder: Decoder, rows: int, prompt: int, words: int) -> dict[str, float]:
    decoder.read([[7] * prompt] * rows)
    ids = [[7] * (words if row % 2 else 1) for row in range(rows)]

    def run() -> None:
        for _ in range(TOKENS):
            torch.multinomial(
                decoder.read(ids).softmax(-1), 1
            ).tolist()  # the next token is needed before the next forward

    return a_token(run)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model, results = random_model(DEVICE, torch.bfloat16 if ON_GPU else torch.float32), []
    lay_side_by_side(model)  # as in a copy that samples for training
    for rows, prompt in SHAPES:
        row: dict[str, Any] = {"rows": rows, "prompt": prompt, "generate": generated(model, rows, prompt)}
        row["growing"] = read(Decoder(model), rows, prompt, 1)
        row["recorded"] = read(GraphDecoder(model, graphs=ON_GPU), rows, prompt, 1)
        layers = GraphDecoder(model, graphs=ON_GPU)
        layers.fused_forward.layers = []
        row["layers"] = read(layers, rows, prompt, 1)
        unfused = GraphDecoder(model, graphs=ON_GPU)
        unfused.fused_forward = FusedForward(model, kernels=False)
        row["unfused"] = read(unfused, rows, prompt, 1)
        row["words"] = read(GraphDecoder(model, graphs=ON_GPU), rows, prompt, MOST_TOKENS)
        results.append(row)
        print(
            f"{rows} x {prompt}: " + "  ".join(f"{k} {v['median']} ms" for k, v in row.items() if isinstance(v, dict))
        )
        if ON_GPU:
            torch.cuda.empty_cache()
    device = torch.cuda.get_device_name() if ON_GPU else platform.processor() or "CPU"
    versions = {name: version(name) for name in ("torch", "transformers")}
    if options.out:
        options.out.write_text(
            json.dumps({"device": device, "versions": versions, "ms_a_token": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
