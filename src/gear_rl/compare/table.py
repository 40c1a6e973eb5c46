"""The result as text: 80 columns for the terminal, Markdown for a page. Says "no difference found" where none was."""

from __future__ import annotations

import textwrap
from typing import Any


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


LEVEL = 0.05
"""Above this, a p (corrected by Holm) does not carry the word "better"."""


def verdict(cell: dict[str, Any], smallest: float) -> str:
    """One method against the baseline, as a phrase."""
    low, high = cell["difference_interval"]
    if low <= 0 <= high:
        need = cell["seeds_for_5_points"]
        hint = f"; {need} seeds would show 5 points" if need else ""
        return f"no difference found{hint}"
    word = "better" if low > 0 else "worse"
    if cell["p_holm"] > LEVEL:  # the interval is one comparison's; the p counts all of them
        word = f"{'above' if low > 0 else 'below'}, not significant"
    caution = f", p {cell['p_holm']:.3f}" + (
        f" (smallest possible {smallest:.3f})" if cell["p"] <= smallest * 1.001 else ""
    )
    return word + caution


def text(summary: dict[str, Any]) -> str:
    seeds, base = summary["plan"]["seeds"], summary["baseline"]
    lines = [
        f"true success on unseen problems, in points; {seeds} seeds, mean (95 % interval)",
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
            low, high = (_points(x) for x in cell["difference_interval"])
            line += f" {_points(cell['difference'])} ({low}…{high})"
        lines.append(line)
    lines.append("")
    for row in compared:
        if row["method"] == base:
            continue
        said = verdict(row["success"], summary["smallest_p"])
        share = row["success"].get("share_of_headroom")
        of_headroom = (
            f"; {100 * share:.0f} % of the headroom" if share is not None and row["method"] != "oracle" else ""
        )
        collapsed = f"; {row['collapsed']} of {seeds} seeds collapsed" if row["collapsed"] else ""
        lines.append(f"{row['method']:19s} {said}{of_headroom}{collapsed}")
    if summary["headroom"]:
        lines.append(f"\nheadroom (oracle − {base}): {_points(summary['headroom']['success'])} points")
    controlled = control_rows(summary)
    if controlled:
        lines.append("")
        lines.append(
            "what is left without the outcomes, or with another problem's hint, is distillation or luck, not credit:"
        )
        lines.append(f"{'method':19s} {'as it is':15s} {'outcomes shuffled':19s} {'wrong hint':15s}")
        lines += [
            f"{name:19s} {own:15s} {shuffled:19s} {wrong:15s}".rstrip() for name, own, shuffled, wrong in controlled
        ]
    first = summary["rows"][0]
    lines.append(f"compute: {first['rollouts']} rollouts per run for every method; seconds per run and extra passes:")
    cost = [f"{r['method']} {r['seconds']:.0f} s (+{r['extra_forwards']}f+{r['extra_backwards']}b)" for r in compared]
    for i in range(0, len(cost), 3):
        lines.append("  " + ", ".join(cost[i : i + 3]))
    if summary["smallest_p"] > 0.05:
        lines.append(
            f"with {seeds} seeds the permutation test cannot go below p = {summary['smallest_p']:.3f}: use 6 or more."
        )
    return "\n".join(part for line in lines for part in (_wrapped(line) or [""]))


def _wrapped(line: str) -> list[str]:
    """Sentences to 80 columns, a verdict continued under its beginning; table rows fit as they are."""
    indent = " " * 20 if line[19:20] == " " and line[:1] != " " and "  " in line else "  "
    return textwrap.wrap(line, 80, subsequent_indent=indent) if len(line) > 80 else [line]


def control_rows(summary: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Each method that was also run under a control: name, and success (share of the headroom) as it is, with its outcomes
    shuffled, and with a wrong hint; "" where that was not run."""

    def said(row: dict[str, Any] | None) -> str:
        if row is None:
            return ""
        share = row["success"].get("share_of_headroom")
        return f"{100 * row['success']['mean']:.1f}" + ("" if share is None else f" ({100 * share:.0f} %)")

    by_name = {row["method"]: row for row in summary["rows"]}
    controls = {tuple(row["control_of"]): row for row in summary["rows"] if row["control_of"]}
    names = [name for name in by_name if any(method == name for method, _ in controls)]
    return [
        (n, said(by_name[n]), said(controls.get((n, "shuffled_outcomes"))), said(controls.get((n, "wrong_hint"))))
        for n in names
    ]


def _with_interval(cell: dict[str, Any]) -> str:
    low, high = (100 * x for x in cell["interval"])
    return f"{100 * cell['mean']:.1f} ({low:.1f}–{high:.1f})"


def markdown(summary: dict[str, Any]) -> str:
    """One table; a method's controls stand in its own row."""
    base, controlled = summary["baseline"], {name: left for name, _, *left in control_rows(summary)}
    heads = ["method", "lr", "true success, sampled", "reward", "greedy", "area", f"vs {base}", "p (Holm)", "headroom"]
    heads += ["outcomes shuffled", "wrong hint"] if controlled else []
    lines = ["| " + " | ".join([*heads, "collapsed"]) + " |", "|---" * (len(heads) + 1) + "|"]
    for row in summary["rows"]:
        if row["control_of"]:
            continue
        cell = row["success"]
        if row["method"] == base:
            against = ["", "", ""]
        else:
            a, b = (_points(x) for x in cell["difference_interval"])
            share = cell.get("share_of_headroom")
            against = [
                f"{_points(cell['difference'])} ({a}…{b})",
                f"{cell['p_holm']:.3f}",
                f"{100 * share:.0f} %" if share is not None else "",
            ]
        cells = [
            row["method"],
            f"{row['learning_rate']:g}",
            _with_interval(cell),
            _with_interval(row["reward"]),
            f"{100 * row['greedy']['mean']:.1f}",
            f"{100 * row['area']['mean']:.1f}",
            *against,
            *(controlled.get(row["method"], ["", ""]) if controlled else []),
            f"{row['collapsed']}/{summary['plan']['seeds']}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
