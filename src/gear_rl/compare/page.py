"""The result as one self-contained HTML page: the table, and every seed as a dot on a common axis. No script, no network."""

from __future__ import annotations

from html import escape
from typing import Any

from gear_rl.compare.table import setting, share, text, verdict

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --quiet: #6b7280; --line: #d8dce2; --dot: #1f6fb5; --paper: #fdfcf9 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --quiet: #9aa3ad; --line: #3a4048; --dot: #6cb2eb; --paper: #16181c }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto; padding: 0 1rem;
       max-width: 62rem }
h1 { font-size: 1.5rem; margin: 0 0 .25rem } p, small { color: var(--quiet) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .45rem .7rem .45rem 0; border-bottom: 1px solid var(--line); white-space: nowrap }
th { font-weight: 500; color: var(--quiet) } svg { width: 14rem; height: 1.6rem; display: block }
td:last-child { white-space: normal; min-width: 12rem; color: var(--quiet) }
pre { overflow-x: auto; border-top: 1px solid var(--line); padding-top: 1rem }
"""
WIDTH, MIDDLE = 280, 16


def _x(share: float) -> float:
    return 6 + (WIDTH - 12) * min(1.0, max(0.0, share))


def _strip(cell: dict[str, Any]) -> str:
    """Interval as a line, mean as a tick, seeds as dots: position alone carries the meaning."""
    low, high = cell["interval"]
    dots = "".join(
        f'<circle cx="{_x(v):.1f}" cy="{MIDDLE}" r="4" fill="var(--dot)" fill-opacity=".55"/>' for v in cell["by_seed"]
    )
    said = f"mean {100 * cell['mean']:.1f}, interval {100 * low:.1f} to {100 * high:.1f}"
    return (
        f'<svg viewBox="0 0 {WIDTH} 32" role="img" aria-label="{escape(said)}">'
        f'<line x1="6" x2="{WIDTH - 6}" y1="{MIDDLE}" y2="{MIDDLE}" stroke="var(--line)"/>'
        f'<line x1="{_x(low):.1f}" x2="{_x(high):.1f}" y1="{MIDDLE}" y2="{MIDDLE}" stroke="var(--ink)" stroke-width="2"/>'
        f'{dots}<line x1="{_x(cell["mean"]):.1f}" x2="{_x(cell["mean"]):.1f}" y1="6" y2="26" stroke="var(--ink)" '
        'stroke-width="2"/></svg>'
    )


def html(summary: dict[str, Any]) -> str:
    base, pairs = summary["baseline"], summary["pairs"]
    rows = []
    for row in summary["rows"]:
        cell = row["success"]
        against = "" if row["method"] == base else f"{100 * cell['difference']:+.1f}"
        against += "" if row["versus"] == base else f" vs {row['versus']}"
        said = "the baseline" if row["method"] == base else verdict(cell, summary["smallest_p"])
        cells = [
            escape(row["method"]), escape(setting(row)), f"{100 * cell['mean']:.1f}", _strip(cell),
            f"{100 * row['greedy']['mean']:.1f}", escape(against), share(cell),
            f"{row['collapsed']}/{pairs}", escape(said),
        ]  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    heads = [
        "method",
        "lr, strength",
        "true success",
        f"{pairs} runs, 0–100 %",
        "greedy",
        f"vs {base}",
        "headroom",
        "collapsed",
        "",
    ]
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>gear compare</title><style>{STYLE}</style><h1>What was compared</h1>"
        f"<p>True success on unseen problems, sampled. {escape(', '.join(summary['plan']['methods']))}.</p>"
        f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div><pre>{escape(text(summary))}</pre></html>\n'
    )
