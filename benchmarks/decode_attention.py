"""Attention of sampling: our kernel (`gear_rl.sampling.attention_kernel`) against torch's, on a GPU.

PYTHONPATH=src python benchmarks/decode_attention.py --out attention.json
PYTHONPATH=src python benchmarks/decode_attention.py --processes 6      # at the same time, under MPS for instance

layer     microseconds of one layer's attention; the caches of twelve layers, so that none stays in the GPU's cache
token     milliseconds from one token of 64 rollouts to the next, a whole recorded forward of SmolLM2's shape; `replies`:
          half of the rollouts read 8 tokens of an environment's reply
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from small_model import random_model
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gear_rl.sampling import attention_kernel
from gear_rl.sampling.decoding import MOST_TOKENS
from gear_rl.sampling.fused_layers import lay_side_by_side
from gear_rl.sampling.graph_decoding import GraphDecoder

ROWS, HEADS, GROUPS, WIDTH, LAYERS = 64, 9, 3, 64, 12
SHAPES = ((768, 400, 1), (768, 400, MOST_TOKENS), (4608, 4200, 1))
"""Columns of the cache, columns in use, tokens a rollout."""
ours = attention_kernel.attention


class TorchAttention:
    """In place of `attention`, as it was before: the query heads that share a head of the cache are more queries to it."""

    def __init__(self) -> None:
        self.prepared: tuple[Tensor, Tensor] | None = None
        """A forward's mask, and what its first layer has made of it."""

    def __call__(
        self, qkv: Tensor, keys: Tensor, values: Tensor, seen: Tensor, columns: Tensor, q_heads: int, scale: float
    ) -> Tensor:
        batch, heads, _, width = keys.shape
        shared, tokens = q_heads // heads, columns.numel()
        query = qkv[:, : q_heads * width].view(batch, tokens, q_heads, width).transpose(1, 2)
        wide = seen[:, :, None].expand(-1, -1, shared, -1, -1).flatten(2, 3)
        if self.prepared is None or self.prepared[0] is not seen:
            self.prepared = seen, torch.zeros_like(wide, dtype=query.dtype).masked_fill_(~wide, -torch.inf)
        query = query.reshape(batch, heads, shared * tokens, width)
        read = scaled_dot_product_attention(query, keys, values, attn_mask=self.prepared[1], scale=scale)
        return read.reshape(batch, q_heads, tokens, width).transpose(1, 2).reshape(-1, q_heads * width)


def layer() -> list[dict[str, Any]]:
    from triton.testing import do_bench_cudagraph

    rows = []
    for capacity, used, tokens in SHAPES:

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        qkv = draw(ROWS * tokens, (HEADS + 2 * GROUPS) * WIDTH)
        caches = [[draw(ROWS, GROUPS, capacity, WIDTH) for _ in range(2)] for _ in range(LAYERS)]
        columns = used - tokens + torch.arange(tokens, device="cuda")
        index = torch.arange(capacity, device="cuda")
        seen = ((torch.rand(ROWS, 1, 1, capacity, device="cuda") < 0.9) & (index <= columns[:, None])).contiguous()

        def run(
            attend: Callable[..., Tensor],
            qkv: Tensor = qkv,
            caches: Any = caches,
            seen: Tensor = seen,
            at: Tensor = columns,
        ) -> list[Tensor]:
            return [attend(qkv, keys, values, seen, at, HEADS, WIDTH**-0.5) for keys, values in caches]

        torchs = TorchAttention()
        apart = max(float((a.float() - b.float()).abs().max()) for a, b in zip(run(ours), run(torchs), strict=True))
        row: dict[str, Any] = {"capacity": capacity, "used": used, "tokens": tokens, "largest_difference": apart}
        for name, attend in (("ours", ours), ("torch", torchs)):
            milliseconds = do_bench_cudagraph(lambda attend=attend, run=run: run(attend), rep=40)
            row[name] = round(1e3 * milliseconds / LAYERS, 1)
        rows.append(row)
    return rows


@torch.no_grad()
def token(repeats: int = 2, tokens: int = 100) -> list[dict[str, Any]]:
    model = random_model(torch.device("cuda"), torch.bfloat16)
    lay_side_by_side(model)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, attend in (("ours", ours), ("torch", TorchAttention())):
            attention_kernel.attention = attend
            for kind, words in (("speaking", 1), ("replies", MOST_TOKENS)):
                decoder = GraphDecoder(model)
                decoder.read([[7] * 256] * ROWS)
                ids = [[7] * (words if row % 2 else 1) for row in range(ROWS)]
                for _ in range(3):  # compared with the model's own forward, and recorded
                    decoder.read(ids)
                assert decoder.plain is False and decoder.fused_forward.layers
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(tokens):
                    decoder.read(ids).argmax(-1).tolist()
                found.setdefault((name, kind), []).append(1e3 * (time.perf_counter() - began) / tokens)
    return [
        {
            "attention": name,
            "kind": kind,
            "median": round(statistics.median(times), 2),
            "times": [round(t, 2) for t in times],
        }
        for (name, kind), times in found.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="measure `token` in so many at once")
    parser.add_argument("--parts", nargs="+", default=["layer", "token"], choices=("layer", "token"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("decode_attention.py: the kernel runs on CUDA devices only, and there is none.", file=sys.stderr)
        return 2
    if options.processes > 1 and options.out:
        parser.error("--out goes with one process; several print what they measure")
    if options.processes > 1:
        each = [subprocess.Popen([sys.executable, __file__, "--parts", "token"]) for _ in range(options.processes)]
        return max(one.wait() for one in each)
    parts = {"layer": layer, "token": token}
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    result |= {name: parts[name]() for name in options.parts}
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
