"""The table `sensitivity` as a picture, one panel per option: `python benchmarks/sensitivity_plot.py TABLE.json OUT.svg`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean
from typing import Any

PANEL, HEIGHT, LEFT, TOP, BOTTOM = 230, 190, 40, 34, 36


def panels_of(table: dict[str, Any]) -> dict[str, list[tuple[str, float, tuple[float, float]]]]:
    """Option → (value, mean true success, least and most of the runs) in the order of the table."""
    panels: dict[str, list[tuple[str, float, tuple[float, float]]]] = {}
    for column, found in table["columns"].items():
        option, _, value = column.rpartition("_")
        runs = [run["success"] for run in found["runs"] if run["method"] == "gear"]
        panels.setdefault(option, []).append((value, mean(runs), (min(runs), max(runs))))
    return panels


def picture(table: dict[str, Any]) -> str:
    panels = panels_of(table)
    first = next(iter(table["columns"].values()))["summary"]["rows"]
    grpo = next(row["success"]["mean"] for row in first if row["method"] == "grpo")
    columns = min(4, len(panels))
    width, height = columns * PANEL + 20, -(-len(panels) // columns) * HEIGHT

    highest = max(most for points in panels.values() for _, _, (_, most) in points)
    end = math.ceil(10 * highest) / 10

    def y_of(value: float, row: int) -> float:
        return row * HEIGHT + TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / end)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for p, (option, points) in enumerate(panels.items()):
        row, left = p // columns, (p % columns) * PANEL + LEFT
        inner = PANEL - LEFT - 10
        parts.append(f'<text x="{left}" y="{row * HEIGHT + 18}" font-size="13">{option}</text>')
        for share in (0, end / 2, end):
            y = y_of(share, row)
            parts.append(f'<line x1="{left}" x2="{left + inner}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 5}" y="{y + 4:.0f}" text-anchor="end" fill="#555">{100 * share:.0f}</text>')
        y = y_of(grpo, row)
        parts.append(
            f'<line x1="{left}" x2="{left + inner}" y1="{y:.0f}" y2="{y:.0f}" stroke="#1d4ed8" stroke-dasharray="4 3"/>'
        )
        for i, (value, middle, (low, high)) in enumerate(points):
            x = left + inner * (i + 0.5) / len(points)
            parts.append(
                f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y_of(low, row):.0f}" y2="{y_of(high, row):.0f}" stroke="#c2410c"/>'
            )
            parts.append(f'<circle cx="{x:.0f}" cy="{y_of(middle, row):.1f}" r="4" fill="#c2410c"/>')
            parts.append(
                f'<text x="{x:.0f}" y="{y_of(0, row) + 16:.0f}" text-anchor="middle" fill="#555">{value}</text>'
            )
    parts.append(
        f'<text x="{LEFT}" y="{height - 4}" fill="#555">true success in percent; dashed: GRPO; bars: least to most run</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("svg", type=Path)
    args = parser.parse_args()
    args.svg.write_text(picture(json.loads(args.results.read_text())))
