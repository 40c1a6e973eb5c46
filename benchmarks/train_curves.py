"""Curves of finished `gear train` runs in one small JSON file, and as a picture.

    python benchmarks/train_curves.py runs/* --warm warm/warm_start.json --out curves.json --svg curves.svg

Per step and run: reward, success, length, entropy, divergence of the hinted teacher, seconds, tokens a second. Per run: the
evaluation before and after with its intervals. What the machine was is said with --note.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

CURVES = {
    "reward": "reward",
    "success": "success",
    "mean_length": "completions/mean_length",
    "cut_off": "completions/clipped_ratio",
    "groups_without_signal": "frac_reward_zero_std",
    "malformed_calls": "malformed",
    "entropy": "entropy",
    "teacher_divergence": "signals/reverse_kl",
    "leak": "guards/leak",
    "alarm": "guards/alarm",
    "onsets": "credit/onsets_per_rollout",
    "grad_norm": "grad_norm",
    "seconds": "step_time",
}
COLOURS = {"gear": "#c2410c", "grpo": "#1d4ed8"}


def run_of(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rollouts = config["train"]["prompts"] * config["train"]["generations"]
    curves = {name: [_short(m[key]) for m in metrics] for name, key in CURVES.items() if key in metrics[0]}
    channels = [key for key in metrics[0] if key.startswith("channels/")]
    curves |= {key: [_short(m[key]) for m in metrics] for key in channels}
    later = metrics[1:] or metrics  # the first step also compiles kernels and checks the scorer
    seconds = sum(m["step_time"] for m in later)
    return {
        "credit": config["credit"]["name"],
        "seed": config["seed"],
        "steps": metrics[-1]["step"],
        "rollouts_a_step": rollouts,
        "seconds_a_step": _short(seconds / len(later)),
        "sampled_tokens_a_second": round(sum(m["completions/mean_length"] for m in later) * rollouts / seconds),
        "curves": curves,
        "evaluation": json.loads((folder / "evaluation.json").read_text()),
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def picture(runs: list[dict[str, Any]], curve: str, title: str) -> str:
    """Small multiples would be too much for two methods: one panel, a line per run, the mean of five steps drawn over it."""
    width, height, left, bottom = 640, 260, 52, 34
    steps = max(run["steps"] for run in runs)
    top = max(max(run["curves"][curve]) for run in runs) * 1.08 or 1.0

    def points(values: list[float]) -> str:
        at = (
            (left + (width - left - 12) * i / max(1, steps - 1), 28 + (height - bottom - 28) * (1 - v / top))
            for i, v in enumerate(values)
        )
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/><text x="{left}" y="17" font-size="13">{title}</text>',
    ]
    for share in (0, 0.5, 1):
        y = 28 + (height - bottom - 28) * (1 - share / 1.08)
        parts.append(f'<line x1="{left}" x2="{width - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{share * top / 1.08:.3g}</text>'
        )
    for run in runs:
        values, colour = run["curves"][curve], COLOURS.get(run["credit"], "#444")
        smooth = [sum(values[max(0, i - 4) : i + 1]) / len(values[max(0, i - 4) : i + 1]) for i in range(len(values))]
        parts.append(f'<polyline points="{points(values)}" fill="none" stroke="{colour}" stroke-opacity="0.3"/>')
        parts.append(f'<polyline points="{points(smooth)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for i, name in enumerate(dict.fromkeys(run["credit"] for run in runs)):
        parts.append(f'<text x="{width - 60 - 60 * i}" y="17" fill="{COLOURS.get(name, "#444")}">{name}</text>')
    parts.append(
        f'<text x="{(left + width) / 2}" y="{height - 8}" text-anchor="middle" fill="#555">step, 1 to {steps}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--warm", type=Path, help="warm_start.json of the model they began with")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--curve", default="reward")
    options = parser.parse_args()
    runs = [run_of(folder) for folder in options.runs]
    config = json.loads((options.runs[0] / "config.json").read_text())
    result: dict[str, Any] = {
        "note": options.note,
        "task": {key: value for key, value in config["task"].items() if key != "data"},
        "train": config["train"],
        "versions": json.loads((options.runs[0] / "versions.json").read_text()),
    }
    if options.warm:
        warm = json.loads(options.warm.read_text())
        every = max(1, len(warm["curve"]) // 24)
        curve = [point for i, point in enumerate(warm["curve"], 1) if i % every == 0 or i in (1, len(warm["curve"]))]
        result["warm_start"] = {**{key: warm[key] for key in ("seed", "warm", "counts")}, "curve": curve}
    head = json.dumps({**result, "runs": None}, indent=1).removesuffix("null\n}")
    options.out.write_text(head + "[\n" + ",\n".join(f"  {json.dumps(run)}" for run in runs) + "\n ]\n}\n")
    if options.svg:
        options.svg.write_text(
            picture(runs, options.curve, f"{config['task']['name']}: {options.curve} while training")
        )


if __name__ == "__main__":
    main()
