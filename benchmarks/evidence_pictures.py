"""Two pictures of docs/evidence.md, from the published runs:

    python benchmarks/evidence_pictures.py methods docs/images/evidence_methods.svg
    python benchmarks/evidence_pictures.py hints docs/images/evidence_hints.svg

`methods`: true success of every reported run with right hints, a dot each, on the embedded task and on the language model.
`hints`: the mean of each method for each kind of hint.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import words_settings
from evidence_tables import READERS, TITLES
from regret import Cells, cells_of, mean_of, read_runs
from words_rates import HINT, success

RESULTS = Path(__file__).parent / "results"
HINT_RUNS = (
    "", "_sibling_again", "_again", "_other_worlds", "_faulty_key_200", "_faulty_key_400", "_sibling_400", "_400", "_elsewhere",
)  # fmt: skip
"""Files hint_forms{name}.json in the order in which they count: a repeated run with better tuned strengths comes later."""
WORDS_RUNS = "twelfth", "thirteenth"
LABELS = {"grpo": "GRPO", "gear": "GEAR", "rlsd": "RLSD", "opsd": "OPSD", "random_segments": "random segments"}
COLOURS = {"grpo": "#6b7280", "gear": "#c2410c", "rlsd": "#1d4ed8", "opsd": "#7c3aed", "checked_hints": "#047857"}
OTHER = "#a8a29e"
ORDER = ("grpo", "oracle", "gear", "token", "random_segments", "rlsd", "checked_hints", "opsd")
LEFT, PANEL, ROW, TOP = 140, 330, 34, 58
Points = dict[str, list[float]]
"""Method → success of its runs in %."""


def embedded() -> tuple[Points, float]:
    runs = json.loads((RESULTS / "headline.json").read_text())["columns"]["perfect"]["runs"]
    points: Points = {}
    for run in runs:
        points.setdefault(run["method"], []).append(100 * run["success"])
    return points, 100 * mean(run["before"] for run in runs)


def language_model() -> tuple[Points, float]:
    files = [RESULTS / f"words_smollm2_{name}_h200.json" for name in WORDS_RUNS]
    found = words_settings.reported(words_settings.read(files), HINT)
    starts = json.loads(files[-1].read_text())["starts"].values()
    before = {start["warm_start"]["world"]: start["before"]["scores"]["student"] for start in starts}
    points = {method: [100 * success(run) for run in runs.values()] for method, runs in found.items() if runs}
    return points, 100 * mean(before[world] for world, _ in found["grpo"])


def hint_cells() -> Cells:
    return cells_of([run for name in HINT_RUNS for run in read_runs(RESULTS / f"hint_forms{name}.json")])


def _svg(width: int, height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""])


def _axis(left: int, top: int, bottom: int) -> list[str]:
    parts = []
    for share in (0, 25, 50, 75, 100):
        x = left + PANEL * share / 100
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555">{share}</text>')
    return parts


def _dot(x: float, y: float, size: int, colour: str, opacity: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}" opacity="{opacity}"/>'


def methods() -> str:
    (task, task_before), (words, words_before) = embedded(), language_model()
    panels = [
        (f"Embedded task, {len(task['gear'])} runs", task, task_before),
        (f"SmolLM2-135M, at most {max(map(len, words.values()))} runs", words, words_before),
    ]
    bottom = TOP + ROW * len(ORDER)
    parts = []
    for p, (title, points, before) in enumerate(panels):
        left = LEFT + p * (PANEL + 50)
        parts += [f'<text x="{left}" y="24" font-size="15">{title}</text>', *_axis(left, TOP - 8, bottom)]
        x = left + PANEL * before / 100
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#111" stroke-dasharray="3 3"/>'
            f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle" fill="#555" font-size="12">before</text>'
        )
        for row, method in enumerate(ORDER):
            y = TOP + ROW * row + ROW / 2
            if p == 0:
                name = LABELS.get(method, method)
                parts.append(f'<text x="{LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
            values = points.get(method, [])
            for i, value in enumerate(values):  # spread over the row's height, in the order of the runs
                at = y + 8 * (2 * (i + 0.5) / len(values) - 1)
                parts.append(_dot(left + PANEL * value / 100, at, 3, COLOURS.get(method, OTHER), 0.55))
            if values:
                x = left + PANEL * mean(values) / 100
                ends = f'y1="{y - 12:.1f}" y2="{y + 12:.1f}"'
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="#111" stroke-width="2"/>')
            else:
                parts.append(f'<text x="{left + 95}" y="{y + 4:.1f}" fill="#9ca3af" font-size="12">not run here</text>')
    foot = "true success in percent of unseen problems; a dot is a run, a black line the mean; every method tuned equally"
    parts.append(f'<text x="{LEFT}" y="{bottom + 42}" fill="#555">{foot}</text>')
    return _svg(LEFT + 2 * PANEL + 75, bottom + 56, parts)


def hints() -> str:
    cells = hint_cells()
    left, kinds = 260, [kind for kind in TITLES if kind in cells]
    bottom = TOP + 28 * len(kinds)
    parts = _axis(left, TOP - 8, bottom)
    for i, method in enumerate(("grpo", *READERS)):
        x = left - 170 + 105 * i
        parts.append(f'<circle cx="{x}" cy="20" r="5" fill="{COLOURS[method]}"/>')
        parts.append(f'<text x="{x + 10}" y="24">{LABELS.get(method, method)}</text>')
    for row, kind in enumerate(kinds):
        y = TOP + 28 * row + 14
        values = {method: mean_of(cells[kind][method]) for method in ("grpo", *READERS)}
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{TITLES[kind]}</text>')
        ends = [left + PANEL * value / 100 for value in (min(values.values()), max(values.values()))]
        parts.append(f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y}" y2="{y}" stroke="#d1d5db"/>')
        for method, value in values.items():
            parts.append(_dot(left + PANEL * value / 100, y, 5, COLOURS[method], 0.85))
    counts = [len(cells[kind]["gear"]) for kind in kinds]
    foot = f"true success in percent, means of {min(counts)} to {max(counts)} runs"
    parts.append(f'<text x="{left}" y="{bottom + 40}" fill="#555">{foot}</text>')
    return _svg(left + PANEL + 30, bottom + 54, parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=("methods", "hints"))
    parser.add_argument("svg", type=Path)
    given = parser.parse_args()
    given.svg.write_text({"methods": methods, "hints": hints}[given.picture]())
