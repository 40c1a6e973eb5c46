"""The picture of a soak, from its report: one small panel for each measure, over the time.

    python tests/chaos/soak_picture.py benchmarks/results/soak.json docs/images/soak.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PANELS = {
    "memory_mb": "memory, MB",
    "worker_memory_mb": "memory of judging processes, MB",
    "open_files": "open files",
    "threads": "threads",
    "step_seconds": "seconds per training step",
    "seconds_per_answer": "seconds per judged answer",
}
WIDTH, HEIGHT, COLUMNS = 330, 150, 2
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 26, 22


def picture(report: dict[str, Any]) -> str:
    lines = -(-len(PANELS) // COLUMNS)
    size = f"{COLUMNS * WIDTH} {lines * HEIGHT}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="11">',
        f'<rect width="{COLUMNS * WIDTH}" height="{lines * HEIGHT}" fill="#fff"/>',
    ]
    for i, (name, title) in enumerate(PANELS.items()):
        at = f"translate({i % COLUMNS * WIDTH} {i // COLUMNS * HEIGHT})"
        parts += [f'<g transform="{at}">', *_panel(report, name, title), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(report: dict[str, Any], name: str, title: str) -> list[str]:
    """From 0 to a little above the largest value, so that what looks flat is flat. The allowed rise is measured in the
    second half, which is shaded."""
    rows = report["rows"]
    minutes = [row["seconds"] / 60 for row in rows]
    most, last = max(row[name] for row in rows) * 1.15 or 1.0, max(minutes)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(minute: float) -> float:
        return LEFT + wide * minute / last

    def y(value: float) -> float:
        return TOP + high * (1 - value / most)

    half = x(minutes[len(rows) // 2])
    points = " ".join(f"{x(minute):.1f},{y(row[name]):.1f}" for minute, row in zip(minutes, rows, strict=True))
    risen = f"{100 * report['risen'][name]:+.1f} %"
    parts = [
        f'<rect x="{half:.1f}" y="{TOP}" width="{WIDTH - RIGHT - half:.1f}" height="{high}" fill="#f1f5f9"/>',
        f'<text x="{LEFT}" y="16" font-size="12">{title}</text>',
        f'<text x="{WIDTH - RIGHT}" y="16" text-anchor="end" fill="#555">{risen}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        value = share * most / 1.15
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#555">{value:.3g}</text>')
    parts.append(f'<polyline points="{points}" fill="none" stroke="#c2410c" stroke-width="1.5"/>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 7}" fill="#555">0</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 7}" text-anchor="end" fill="#555">{last:.3g} minutes</text>')
    return parts


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text())))
