"""The picture of `words.py curves`: divergence and gap around the first wrong token, and divergence by kind of token.
And that of `words.py table`: true success over training."""

from __future__ import annotations

from statistics import mean
from typing import Any

from words_curves import AFTER, BEFORE

COLOURS = {"all": "#111", "thought": "#1d4ed8", "tool": "#c2410c", "argument": "#15803d"}
LABELS = {"wrong": "#c2410c", "right": "#1d4ed8", "neither": "#9ca3af"}
WIDTH, LEFT, PANEL, BOTTOM = 780, 50, 320, 260
ARMS = (
    "#1d4ed8", "#c2410c", "#15803d", "#7c3aed", "#0891b2", "#111", "#be185d", "#a16207", "#4b5563", "#65a30d", "#b91c1c",
)  # fmt: skip
SMOOTH = 5
"""Steps on either side that a point of a training curve is the mean of."""


def picture(result: dict[str, Any]) -> str:
    bars = _bars(result, BOTTOM + 82)
    height = BOTTOM + 100 + 14 * len(bars)
    titles = {"D": "KL(student ‖ hinted self), nats", "gap": "log p − log q of the sampled token"}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_curves(result, "D", LEFT, titles["D"]),
        *_curves(result, "gap", LEFT + PANEL + 60, titles["gap"]),
    ]
    for i, (name, around) in enumerate(result["around_first_wrong"].items()):
        text = f"{'any' if name == 'all' else name}, {around['rollouts']} rollouts"
        parts.append(f'<text x="{LEFT + 185 * i}" y="{BOTTOM + 48}" fill="{COLOURS[name]}">first wrong: {text}</text>')
    parts.append(f'<text x="{LEFT}" y="{BOTTOM + 72}" font-size="13">mean KL by kind of token and label, nats</text>')
    return "\n".join([*parts, *bars, "</svg>", ""])


def _curves(result: dict[str, Any], signal: str, x0: float, title: str) -> list[str]:
    """One panel: a line for each kind that the first wrong token may be. Offsets that few rollouts reach are left out."""
    top = 34
    curves = {
        name: [p for p in around[signal] if p["n"] >= max(3, around["rollouts"] // 20)]
        for name, around in result["around_first_wrong"].items()
    }
    means = [p["mean"] for points in curves.values() for p in points] or [0.0]
    low, high = min(0.0, *means), max(1e-3, *means) * 1.05

    def at(offset: float, value: float) -> tuple[float, float]:
        share = (value - low) / (high - low)
        return x0 + PANEL * (offset + BEFORE) / (AFTER + BEFORE), BOTTOM - (BOTTOM - top) * share

    parts = [f'<text x="{x0}" y="20" font-size="13">{title}</text>']
    for value in (low, (low + high) / 2, high):
        y = at(0, value)[1]
        parts.append(f'<line x1="{x0}" x2="{x0 + PANEL}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 - 4}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{value:.2g}</text>')
    zero = at(0, 0)[0]
    parts.append(
        f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="{top}" y2="{BOTTOM}" stroke="#999" stroke-dasharray="3 3"/>'
    )
    for offset in (0, 10, 20, 30, 40):
        x = at(offset, 0)[0]
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle" fill="#555">{offset}</text>')
    parts.append(f'<text x="{x0}" y="{BOTTOM + 30}" fill="#555">tokens after the first wrong one</text>')
    for name, points in curves.items():
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(p["offset"], p["mean"]) for p in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.8"/>')
    return parts


def _bars(result: dict[str, Any], y0: float) -> list[str]:
    """A bar a kind and label, with the number of tokens."""
    rows = [
        (kind, label, told["D"]) for kind, labels in result["by_kind"].items() for label, told in labels.items()
    ]  # fmt: skip
    most = max([d["mean"] for *_, d in rows], default=0.0) or 1.0
    parts = []
    for i, (kind, label, d) in enumerate(rows):
        y, width = y0 + 14 * i, 440 * d["mean"] / most
        parts.append(
            f'<text x="{LEFT + 110}" y="{y + 9}" text-anchor="end" font-size="11">{kind}, {label}</text>'
            f'<rect x="{LEFT + 116}" y="{y}" width="{width:.1f}" height="10" fill="{LABELS[label]}"/>'
            f'<text x="{LEFT + 122 + width:.1f}" y="{y + 9}" font-size="10" fill="#555">{d["mean"]:.3g} (n {d["n"]})</text>'
        )
    return parts


def training(results: dict[str, Any], hint: str, rate: float) -> str:
    """True success of the sampled rollouts by step: a line for each arm, the mean over its seeds, smoothed."""
    runs: dict[str, list[list[float]]] = {}
    for run in results["runs"]:
        if run["hint"] in (hint, "calls" if run["arm"] in ("grpo", "oracle") else hint) and run["learning_rate"] == rate:
            runs.setdefault(run["arm"], []).append(run["curves"]["success"])
    wide, top, bottom = 560, 30, 330
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{bottom + 40}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13">true success of sampled rollouts, %, by step</text>',
    ]
    for share in range(0, 101, 20):
        y = bottom - (bottom - top) * share / 100
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{share}</text>')
    lines = {arm: _smoothed([mean(values) for values in zip(*curves, strict=True)]) for arm, curves in runs.items()}
    steps = max(len(line) for line in lines.values())
    for step in range(0, steps + 1, 10):
        x = LEFT + wide * step / steps
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555">{step}</text>')
    label = bottom + 16.0
    for colour, (arm, line) in zip(ARMS, sorted(lines.items(), key=lambda item: item[1][-1]), strict=False):
        points = [(LEFT + wide * (i + 1) / steps, bottom - (bottom - top) * value) for i, value in enumerate(line)]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        label = min(label - 15, points[-1][1] + 4)  # from the lowest up, so that labels do not overlap
        parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + wide + 8}" y="{label:.1f}" fill="{colour}">{arm} ({len(runs[arm])} seeds)</text>')
    return "\n".join([*parts, "</svg>", ""])


def _smoothed(values: list[float]) -> list[float]:
    return [mean(values[max(0, i - SMOOTH) : i + SMOOTH + 1]) for i in range(len(values))]
