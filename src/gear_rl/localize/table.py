"""The result for people, in 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

from gear_rl.errors import printable

WIDTH = 80
UNITS = {"token": "action token", "turn": "turn", "step": "step"}


def text(summary: dict[str, Any]) -> str:
    level = f"{100 * summary['interval']['level']:.0f} %"
    unit = UNITS[summary["unit"]]
    head = f"Does blame find the first wrong {unit}? Means over rollouts, {level} bootstrap intervals."
    source = summary["source"]
    if "rows" in source:
        head += f" {source['rows']} rows read; {source['measured']} of those with a wrong step are measured."
    lines = textwrap.wrap(head, WIDTH)
    for part in summary["parts"]:
        lines += ["", *_part(part)]
    lines.append("")
    for missing in dict.fromkeys(summary["left_out"].values()):
        names = [name for name, why in summary["left_out"].items() if why == missing]
        lines += textwrap.wrap(f"Left out, for want of {missing}: {', '.join(names)}.", WIDTH)
    lines += textwrap.wrap(_legend(summary), WIDTH)
    return "\n".join(lines)


def _part(part: dict[str, Any]) -> list[str]:
    teacher = f", {part['teacher']} teacher" if part["teacher"] in ("live", "frozen") else ""
    said = f"{part['with_mistake']} of {part['rollouts']} rollouts have a mistake"
    if part["with_mistake"]:
        said += f", {part['action_tokens']:.1f} action tokens each"
    if "success" in part:
        said += f"; success {100 * part['success']:.1f} %"
    lines = [_fit(f"{part['name']}{teacher}", WIDTH), *textwrap.wrap(said, WIDTH)]
    lines.append(_columns("", "n", "AUC", "hit@1 %", "MRR", "distance"))
    return lines + [_row(row) for row in part["rows"]]


def _row(row: dict[str, Any]) -> str:
    return _columns(
        row["name"] if len(row["name"]) <= 15 else row["name"][:14] + "…",
        str(row["rollouts"]),
        _cell(row["auc"], "{:.3f}", 1, 5),
        _cell(row["hit"], "{:.0f}", 100, 3),
        _cell(row["mrr"], "{:.2f}", 1, 4),
        _distance(row["distance"]),
    )


def _columns(name: str, n: str, auc: str, hit: str, mrr: str, distance: str) -> str:
    return f"{name:15}{n:>5} {auc:<17} {hit:<11} {mrr:<14} {distance}".rstrip()


def _distance(value: dict[str, float | None]) -> str:
    largest = value["high"] or value["mean"] or 0.0
    if largest < 100:
        return _cell(value, "{:.1f}", 1, 4)
    return _cell(value, "{:.0f}", 1, 4) if largest < 1000 else _cell(value, "{:.0f}k", 1e-3, 4)


def _cell(value: dict[str, float | None], form: str, scale: float, width: int) -> str:
    if value["mean"] is None:
        return "-"
    mean = f"{form.format(scale * value['mean']):>{width}}"
    if value["low"] is None or value["high"] is None:
        return mean
    return f"{mean} {form.format(scale * value['low'])}–{form.format(scale * value['high'])}"


def _fit(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def _legend(summary: dict[str, Any]) -> str:
    steps = (
        " Steps after the first wrong one are not labelled, and count as not wrong."
        if summary["unit"] == "step"
        else ""
    )
    return (
        "n: rollouts with a mistake; for methods, those of them that lost. AUC: how often the wrong one outranks another "
        "of its rollout. distance: action tokens between the most blamed and the wrong one. random is chance; wrong_hint: "
        f"the teacher read another problem's hint.{steps}"
    )
