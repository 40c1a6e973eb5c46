"""The picture of docs/audition.md: rank correlation in each setting, and all methods by their ranks. Plain SVG."""

from __future__ import annotations

from typing import Any

import numpy as np
from audition_ranks import ranks

WIDTH, ROW, TOP, LABELS, FOREST = 900, 22, 64, 176, 400
BLUE, ORANGE, GREY = "#1d4ed8", "#c2410c", "#555"


def picture(result: dict[str, Any]) -> str:
    rows = [(one["setting"], len(one["methods"]), one["spearman"], _first(one)) for one in result["settings"]]
    count = sum(n for _, n, *_ in rows)
    bottom = TOP + ROW * (len(rows) + 1)
    height = bottom + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(12, 20, "Does agreement before training go with true success after it?", size=14),
        _text(12, 40, "Rank correlation in each setting (95 % interval)", GREY),
        _text(FOREST + 70, 40, f"{count} results (method in a setting), by rank within their setting", GREY),
    ]

    def x(rho: float) -> float:
        return LABELS + (FOREST - LABELS) * (rho + 1) / 2

    for tick in (-1, -0.5, 0, 0.5, 1):
        dark = "#999" if tick == 0 else "#e5e5e5"
        parts.append(f'<line x1="{x(tick):.0f}" x2="{x(tick):.0f}" y1="{TOP - 10}" y2="{bottom}" stroke="{dark}"/>')
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}", GREY, "middle"))
    pooled = ("all settings", count, result["pooled"]["agreement"], None)
    for k, (name, n, (rho, low, high), first) in enumerate([*rows, pooled]):
        y = TOP + ROW * k + (8 if first is None else 0)
        colour, thick = ("#111", 4) if first is None else (BLUE if first else ORANGE, 2)
        parts.append(_text(LABELS - 10, y + 4, f"{name} ({n})", "#111", "end"))
        parts.append(
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="{thick}"/>'
        )
        parts.append(f'<circle cx="{x(rho):.1f}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(_text(FOREST + 8, y + 4, f"{rho:.2f}", colour))
    left, right = FOREST + 100, WIDTH - 20
    parts.append(f'<rect x="{left}" y="{TOP - 10}" width="{right - left}" height="{bottom - TOP + 10}" fill="#fafafa"/>')
    for one in result["settings"]:
        agreed, won = (_share([m[key] for m in one["methods"]]) for key in ("agreement", "success"))
        for a, b in zip(agreed, won, strict=True):
            place = left + 8 + (right - left - 16) * a, bottom - 8 - (bottom - TOP - 6) * b
            fill = BLUE if _first(one) else ORANGE
            parts.append(f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3.5" fill="{fill}" fill-opacity="0.55"/>')
    middle = (TOP + bottom) / 2
    parts += [
        _text((left + right) / 2, bottom + 16, "agreement: lowest → highest", GREY, "middle"),
        f'<text x="{left - 12}" y="{middle}" text-anchor="middle" fill="{GREY}" '
        f'transform="rotate(-90 {left - 12} {middle})">true success: lowest → highest</text>',
        f'<circle cx="{LABELS}" cy="{height - 18}" r="4" fill="{BLUE}"/>',
        _text(LABELS + 8, height - 14, "perfect hints in world 0, on which the measure was chosen"),
        f'<circle cx="{LABELS + 330}" cy="{height - 18}" r="4" fill="{ORANGE}"/>',
        _text(LABELS + 338, height - 14, "other worlds and hints, looked at afterwards"),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _first(one: dict[str, Any]) -> bool:
    return one["world"] == 0 and not one["hint"]


def _share(values: list[float]) -> np.ndarray:
    return ranks(values) / max(1, len(values) - 1)


def _text(x: float, y: float, text: str, fill: str = "#111", anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{fill}" text-anchor="{anchor}" font-size="{size}">{text}</text>'
