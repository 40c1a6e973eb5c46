"""The result as text: 80 columns for the terminal, Markdown for a page. Says "no difference found" where none was."""

from __future__ import annotations

import textwrap
from typing import Any

from gear_rl.compare.statistics import LEVEL

Row = dict[str, Any]
INTERVALS = (
    "in brackets: 95 % intervals over runs, of the mean and of the paired difference, made to hold when some runs collapse: "
    "wide with few seeds (docs/compare.md)"
)


def points(value: float) -> str:
    return f"{100 * value:+.1f}"


def verdict(cell: dict[str, Any], smallest: float) -> str:
    """One method against what it is compared with, as a phrase. "better" and "worse" need p ≤ 0.05 after Holm."""
    low, high = cell["difference_interval"]
    p = f"p {cell['p_holm']:.3f}" + (f" (smallest possible {smallest:.3f})" if cell["p"] <= smallest * 1.001 else "")
    if cell["p_holm"] <= LEVEL:
        word = "better" if cell["difference"] > 0 else "worse"
        undone = "; runs that collapse unseen could undo it" if low <= 0 <= high else ""
        return f"{word}, {p}{undone}"
    need = cell["seeds_for_5_points"]
    seeds = f"; {need} seeds would show 5 points" if need else ""
    if low <= 0 <= high:
        return f"no difference found, {p}{seeds}"
    return f"{'above' if low > 0 else 'below'}, not significant, {p}{seeds}"


def share(cell: dict[str, Any]) -> str:
    """The share of the headroom with its interval; "" where there is none."""
    found, interval = cell.get("share_of_headroom"), cell.get("share_interval")
    if found is None:
        return ""
    within = "" if interval is None else f" ({100 * interval[0]:.0f}–{100 * interval[1]:.0f})"
    return f"{100 * found:.0f} %{within}"


def setting(row: dict[str, Any]) -> str:
    return " ".join([f"{row['learning_rate']:g}", *(f"{name}={value:g}" for name, value in row["options"].items())])


def runs_of(summary: dict[str, Any]) -> str:
    """`5 seeds`, or `3 worlds × 12 seeds`."""
    plan = summary["plan"]
    worlds = f"worlds {', '.join(map(str, plan['worlds']))}, each with " if plan["worlds"] else ""
    return f"{worlds}{plan['seeds']} seeds"


def text(summary: dict[str, Any]) -> str:
    base, pairs = summary["baseline"], summary["pairs"]
    lines = [
        f"true success on unseen problems, in points; {runs_of(summary)}; mean (95 % interval)",
        "",
        f"{'method':19s} {'lr':7s} {'sampled':17s} {'greedy':>6s} {'area':>5s} {'vs ' + base}",
    ]
    compared = [row for row in summary["rows"] if row["control_of"] is None]
    for row in compared:
        cell = row["success"]
        low, high = (100 * x for x in cell["interval"])
        sampled = f"{100 * cell['mean']:4.1f} ({low:.1f}–{high:.1f})"
        line = f"{row['method']:19s} {row['learning_rate']:<7.2g} {sampled:17s}"
        line += f" {100 * row['greedy']['mean']:6.1f} {100 * row['area']['mean']:5.1f}"
        if row["method"] != base:
            low, high = (points(x) for x in cell["difference_interval"])
            line += f" {points(cell['difference'])} ({low}…{high})"
        lines.append(line)
    lines += [INTERVALS, ""]
    for row in compared:
        said = "the baseline" if row["method"] == base else verdict(row["success"], summary["smallest_p"])
        part = share(row["success"]) if row["method"] != "oracle" else ""
        of_headroom = f"; {part} of the headroom" if part else ""
        collapsed = f"; {row['collapsed']} of {pairs} runs collapsed" if row["collapsed"] else ""
        lines.append(f"{row['method']:19s} {said}{of_headroom}{collapsed}")
    if summary["headroom"]:
        lines.append(f"\nheadroom (oracle − {base}): {points(summary['headroom']['success'])} points")
    lines += _controls(summary)
    lines += ["", summary["budget"] + ":", "  " + ", ".join(f"{r['method']} {setting(r)}" for r in compared)]
    first = summary["rows"][0]
    lines.append(f"compute: {first['rollouts']} rollouts per run for every method; seconds per run and extra passes:")
    cost = [f"{r['method']} {r['seconds']:.0f} s (+{r['extra_forwards']}f+{r['extra_backwards']}b)" for r in compared]
    for i in range(0, len(cost), 3):
        lines.append("  " + ", ".join(cost[i : i + 3]))
    if summary["smallest_p"] * (len(summary["rows"]) - 1) > LEVEL:
        lines.append(
            f"with {pairs} pairs the permutation test cannot go below p = {summary['smallest_p']:.3f}, before Holm's "
            f"correction for {len(summary['rows']) - 1} comparisons: use more seeds."
        )
    return "\n".join(part for line in lines for part in (_wrapped(line) or [""]))


def _wrapped(line: str) -> list[str]:
    """Sentences to 80 columns, a verdict continued under its beginning; table rows fit as they are."""
    indent = " " * 20 if line[19:20] == " " and line[:1] != " " and "  " in line else "  "
    return textwrap.wrap(line, 80, subsequent_indent=indent) if len(line) > 80 else [line]


def _controls(summary: dict[str, Any]) -> list[str]:
    rows = control_rows(summary)
    if not rows:
        return []
    said = (
        "what is left without the outcomes, or with another problem's hint, is distillation or luck, not credit. In brackets: "
        f"points above grpo with shuffled outcomes at the same rate; above {summary['baseline']}; * p ≤ {LEVEL} after Holm:"
    )
    table = [f"{'method':19s} {'as it is':10s} {'outcomes shuffled':19s} {'wrong hint':15s}"]
    return ["", said, *table, *(f"{name:19s} {own:10s} {one:19s} {two:15s}".rstrip() for name, own, one, two in rows)]


def control_rows(summary: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Each method that was also run under a control: name, success as it is, with its outcomes shuffled, and with a wrong hint,
    each control with its points above what it is compared with; "" where that was not run."""

    def said(row: dict[str, Any] | None) -> str:
        if row is None:
            return ""
        cell = row["success"]
        return f"{100 * cell['mean']:.1f} ({points(cell['difference'])}{'*' if cell['p_holm'] <= LEVEL else ''})"

    return [
        (own["method"], f"{100 * own['success']['mean']:.1f}", said(shuffled), said(wrong))
        for own, shuffled, wrong in under_controls(summary)
    ]


def under_controls(summary: dict[str, Any]) -> list[tuple[Row, Row | None, Row | None]]:
    """The row of each method that was also run under a control, that with its outcomes shuffled, and that with a wrong hint."""
    controls = {tuple(row["control_of"]): row for row in summary["rows"] if row["control_of"]}
    return [
        (row, controls.get((row["method"], "shuffled_outcomes")), controls.get((row["method"], "wrong_hint")))
        for row in summary["rows"]
        if any(method == row["method"] for method, _ in controls)
    ]


def with_interval(cell: dict[str, Any]) -> str:
    low, high = (100 * x for x in cell["interval"])
    return f"{100 * cell['mean']:.1f} ({low:.1f}–{high:.1f})"


def markdown(summary: dict[str, Any]) -> str:
    """One table; a method's controls stand in its own row."""
    base, controlled = summary["baseline"], {name: left for name, _, *left in control_rows(summary)}
    heads = ["method", "lr, strength", "true success, sampled", "reward", "greedy", "area", f"vs {base}", "p (Holm)"]
    heads += ["headroom", *(["outcomes shuffled", "wrong hint"] if controlled else [])]
    lines = ["| " + " | ".join([*heads, "collapsed"]) + " |", "|---" * (len(heads) + 1) + "|"]
    for row in summary["rows"]:
        if row["control_of"]:
            continue
        cell = row["success"]
        if row["method"] == base:
            against = ["", "", ""]
        else:
            a, b = (points(x) for x in cell["difference_interval"])
            against = [f"{points(cell['difference'])} ({a}…{b})", f"{cell['p_holm']:.3f}", share(cell)]
        cells = [
            row["method"],
            setting(row),
            with_interval(cell),
            with_interval(row["reward"]),
            f"{100 * row['greedy']['mean']:.1f}",
            f"{100 * row['area']['mean']:.1f}",
            *against,
            *(controlled.get(row["method"], ["", ""]) if controlled else []),
            f"{row['collapsed']}/{summary['pairs']}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"{runs_of(summary)}; {summary['budget']}."]) + "\n"
