"""Does an audition predict what training gives? Its agreement of every method against true success after training.

    python benchmarks/audition_predicts.py benchmarks/results/every_method_seed0.json --out predicts.json --svg predicts.svg

The file has a run of each method on the embedded task: {"rows": [{"method", "sampled"}, …]}.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gear_rl.audition.findings import audition
from gear_rl.audition.groups import play_groups
from gear_rl.files import write_json
from gear_rl.models import load_model
from gear_rl.tasks import make_task

WIDTH, HEIGHT, LEFT, TOP = 720, 460, 60, 34


def ranks(values: list[float]) -> np.ndarray:
    """Ranks, ties sharing their mean."""
    v = np.asarray(values)
    return np.array([(v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])


def spearman(x: list[float], y: list[float], resamples: int = 2000) -> tuple[float, float, float]:
    """Rank correlation and its 95 % bootstrap interval over methods."""
    rng, n = np.random.default_rng(0), len(x)

    def of(chosen: np.ndarray) -> float:
        a, b = ([v[i] for i in chosen] for v in (x, y))
        a, b = ranks(a), ranks(b)
        return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0

    drawn = [of(rng.integers(0, n, n)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return of(np.arange(n)), float(low), float(high)


def picture(result: dict[str, Any]) -> str:
    rows = result["methods"]
    low, high = min(r["agreement"] for r in rows) - 0.02, max(r["agreement"] for r in rows) + 0.02

    def at(row: dict[str, Any]) -> tuple[float, float]:
        share = (row["agreement"] - low) / (high - low)
        return LEFT + (WIDTH - LEFT - 130) * share, HEIGHT - 50 - (HEIGHT - 50 - TOP) * row["trained"]

    rho, a, b = result["spearman"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13">true success after training against agreement before it: rank correlation '
        f"{rho:.2f} ({a:.2f} to {b:.2f})</text>",
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = HEIGHT - 50 - (HEIGHT - 50 - TOP) * share
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 130}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#555">{100 * share:.0f} %</text>')
    for tick in np.arange(np.ceil(low * 10) / 10, high, 0.1):
        x = LEFT + (WIDTH - LEFT - 130) * (tick - low) / (high - low)
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - 30}" text-anchor="middle" fill="#555">{tick:.1f}</text>')
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 10}" fill="#555">agreement with measured advantages, within rollouts</text>'
    )
    taken: list[tuple[float, float]] = []
    for row in sorted(rows, key=lambda r: -r["trained"]):
        x, y = at(row)
        label = y + 4
        while any(abs(label - v) < 10 and abs(x - u) < 90 for u, v in taken):
            label += 10  # labels of close points below one another
        taken.append((x, label))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1d4ed8"/>')
        parts.append(f'<text x="{x + 6:.1f}" y="{label:.1f}">{row["method"]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("--prompts", type=int, default=160)
    parser.add_argument("--measured", type=int, default=160)
    parser.add_argument("--continuations", type=int, default=32)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trained = {row["method"]: row["sampled"] for row in json.loads(args.trained.read_text())["rows"]}
    task = make_task("workshop")
    model, tokenizer = load_model(task.default_model(), "cpu")
    groups = play_groups(task, model, tokenizer, task.rows("train", args.prompts, 0), 8)
    found = audition(groups, list(trained), args.measured, args.continuations, print)
    rows = [{**row, "trained": trained[row["method"]]} for row in found["methods"]]
    rho = spearman([row["agreement"] for row in rows], [row["trained"] for row in rows])
    result = {
        "command": "python benchmarks/audition_predicts.py " + str(args.trained),
        "spearman": rho,
        **found,
        "methods": rows,
    }
    write_json(args.out, result)
    if args.svg:
        args.svg.write_text(picture(result))
    print(f"rank correlation over {len(rows)} methods: {rho[0]:.2f} ({rho[1]:.2f} to {rho[2]:.2f})")


if __name__ == "__main__":
    main()
