"""Write what was measured of every method into its page, results.md and costs.md: `python docs/make_results.py`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from gear_rl.compare.table import points, under_controls, with_interval
from gear_rl.methods import METHODS

PAGES = Path(__file__).parent / "methods"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
SUMMARY, HINT_ERRORS = RESULTS / "compare_methods.json", RESULTS / "compare_hint_errors.json"
HINT_BIAS, COSTS = RESULTS / "compare_hint_bias.json", RESULTS / "method_cost_cpu.json"

EARLIER = {
    "rlsd": "λ constant, the teacher live",
    "serl": "λ constant, the teacher live",
    "crest": "MT-GRPO's turn advantages, and a product of gates",
    "opsd": "the Jensen–Shannon divergence without a clip",
    "sdpg": "a full KL towards the starting policy",
    "oar_p": "a threshold of 0.5",
    "oar_g": "a threshold of 0.5, and scores with float32's cancellation",
    "sdpo": "a sibling above the group's mean, with the feedback appended",
    "grail": "a weight of our own from the abstract",
    "shear": "a weight of our own from the abstract",
    "high_entropy": "the quantile over the batch",
    "gigpo": "with the std, and the mean over rollouts",
    "igpo": "the mean over the group's turns, no std",
    "crpo": "a form of our own from the abstract",
}
"""Methods whose definition has changed since they were measured, and what they were."""


# The stored summaries are of `gear compare`'s first format, in which learning rates alone were tuned.
def control_rows(summary: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Each method that was also run under a control: name, and success (share of the headroom) as it is, with its outcomes
    shuffled, and with a wrong hint; "" where that was not run."""

    def said(row: dict[str, Any] | None) -> str:
        if row is None:
            return ""
        share = row["success"].get("share_of_headroom")
        return f"{100 * row['success']['mean']:.1f}" + ("" if share is None else f" ({100 * share:.0f} %)")

    return [(own["method"], said(own), said(shuffled), said(wrong)) for own, shuffled, wrong in under_controls(summary)]


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
            a, b = (points(x) for x in cell["difference_interval"])
            share = cell.get("share_of_headroom")
            against = [
                f"{points(cell['difference'])} ({a}…{b})",
                f"{cell['p_holm']:.3f}",
                f"{100 * share:.0f} %" if share is not None else "",
            ]
        cells = [
            row["method"],
            f"{row['learning_rate']:g}",
            with_interval(cell),
            with_interval(row["reward"]),
            f"{100 * row['greedy']['mean']:.1f}",
            f"{100 * row['area']['mean']:.1f}",
            *against,
            *(controlled.get(row["method"], ["", ""]) if controlled else []),
            f"{row['collapsed']}/{summary['plan']['seeds']}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def between(text: str, name: str, content: str) -> str:
    """`text` with `content` between its marks <!-- name --> and <!-- /name -->."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"no place marked {begin.strip()} … {end}")
    return before + begin + content + end + after


def sentence(row: dict[str, Any], left: tuple[str, str] | None, summary: dict[str, Any]) -> str:
    """A method's own line: success, reward, share of the headroom, and what its controls leave of it."""
    low, high = (100 * x for x in row["success"]["interval"])
    steps, seeds = summary["plan"]["settings"]["train"]["steps"], summary["plan"]["seeds"]
    said = f"**Measured with an earlier definition** ({EARLIER[row['method']]}). " if row["method"] in EARLIER else ""
    said += f"Embedded task, {steps} steps, {seeds} seeds: true success {100 * row['success']['mean']:.1f} % "
    said += f"({low:.1f}–{high:.1f}) sampled, {100 * row['greedy']['mean']:.1f} % greedy, "
    said += f"reward {row['reward']['mean']:.3f}"
    share = row["success"]["share_of_headroom"]
    if row["method"] not in (summary["baseline"], "oracle") and share is not None:
        said += f"; {100 * share:.0f} % of the oracle's headroom over {summary['baseline']}"
    if row["collapsed"]:
        said += f"; {row['collapsed']} of {seeds} seeds collapsed"
    parts = [
        f"{what} {value}"
        for what, value in zip(("its outcomes shuffled", "a wrong hint"), left or (), strict=False)
        if value
    ]
    said += "." + (f" With {', with '.join(parts)}." if parts else "")
    return said + " [Every method in one table](results.md).\n"


def declared(method: str) -> str:
    """As `gear methods` prints it."""
    return f"{METHODS[method].cost.forwards}+{METHODS[method].cost.backwards}"


def cost_table(measured: dict[str, Any]) -> str:
    lines = ["| method | declared | ms a step | quartiles | over GRPO |", "|---|---|---|---|---|"]
    for name, m in measured.items():
        low, high = m["quartiles"]
        lines.append(
            f"| [{name}]({name}.md) | {declared(name)} | {m['ms']:.0f} | {low:.0f}–{high:.0f} | × {m['ratio']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def cost_sentence(m: dict[str, Any]) -> str:
    return f"Measured on the embedded default: {m['ratio']:.2f} times a GRPO step ([all methods](costs.md)).\n"


def by_hint_errors(perfect: dict[str, Any]) -> str:
    """True success of a method (row) by the share of wrong tools in its hints (column), with its share of the headroom."""
    found = json.loads(HINT_ERRORS.read_text())
    columns = {"none wrong": perfect}
    columns |= {f"{100 * float(share):.0f} % wrong": summary for share, summary in found["shares"].items()}
    rows = [{row["method"]: row["success"] for row in summary["rows"]} for summary in columns.values()]
    lines = [f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for method in dict.fromkeys(name for successes in rows[1:] for name in successes):
        cells = []
        for success in (successes.get(method) for successes in rows):
            low, high = (100 * x for x in success["interval"]) if success else (0.0, 0.0)
            part = (
                "" if not success or method in ("grpo", "oracle") else f"; {100 * success['share_of_headroom']:.0f} %"
            )
            cells.append(f"{100 * success['mean']:.1f} ({low:.1f}–{high:.1f}){part}" if success else "")
        lines.append(f"| [{method}]({method}.md) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def linked(table: str) -> str:
    """Each method's name leads to its page."""
    return re.sub(r"^\| (\w+) \|", r"| [\1](\1.md) |", table, flags=re.M).replace("[method](method.md)", "method")


def main() -> int:
    summary = json.loads(SUMMARY.read_text())
    left = {name: (shuffled, wrong) for name, _, shuffled, wrong in control_rows(summary)}
    page = PAGES / "results.md"
    text = between(page.read_text(), "table", linked(markdown(summary)))
    text = between(text, "hint errors", by_hint_errors(summary))
    pages = {page: between(text, "hint bias", linked(markdown(json.loads(HINT_BIAS.read_text())["summary"])))}
    for row in summary["rows"]:
        if "+" not in row["method"]:
            page = PAGES / f"{row['method']}.md"
            pages[page] = between(page.read_text(), "result", sentence(row, left.get(row["method"]), summary))
    measured = json.loads(COSTS.read_text())["methods"]
    pages[PAGES / "costs.md"] = between((PAGES / "costs.md").read_text(), "costs", cost_table(measured))
    for name, m in measured.items():
        page = PAGES / f"{name}.md"
        pages[page] = between(pages.get(page, page.read_text()), "cost", cost_sentence(m))
    stale = [page.name for page, text in pages.items() if page.read_text() != text]
    if "--check" in sys.argv:
        if stale:
            print(f"{', '.join(stale)} out of date: python docs/make_results.py", file=sys.stderr)
        return int(bool(stale))
    for page, text in pages.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
