"""Write what was measured of every method into its page, results.md and costs.md: `python docs/make_results.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from gear_rl.compare.results import COLLAPSED
from gear_rl.methods import METHODS

PAGES = Path(__file__).parent / "methods"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RESULTS = BENCHMARKS / "results"
COSTS = RESULTS / "method_cost_cpu.json"
TUNED = ("segments", "headline", "every_method")
"""Tables of `benchmarks/evidence.py` whose methods were tuned alike; a method that is in several is taken from the first."""
PLACES = [(world, seed) for world in (1, 2) for seed in (0, 1, 2)]
"""The runs that all these tables have."""
CONTROLS = {"wrong_hint": "gear+wrong_hint", "shuffled_outcomes": "shuffled_outcomes"}
"""Page of a control → its row in the table `controls`, which has other seeds."""


@dataclass(frozen=True)
class Measured:
    """A method's runs, and GRPO's at the same places."""

    method: str
    runs: list[dict[str, Any]]
    grpo: list[dict[str, Any]]

    def points(self, figure: str) -> float:
        return 100 * mean(run[figure] for run in self.runs)

    @property
    def over(self) -> list[float]:
        return [100 * (run["success"] - its["success"]) for run, its in zip(self.runs, self.grpo, strict=True)]

    @property
    def collapsed(self) -> int:
        return sum(run["success"] < COLLAPSED * run["before"] for run in self.runs)

    @property
    def rate(self) -> str:
        return self.runs[0]["setting"].split(" ")[0]

    @property
    def strength(self) -> str:
        return ", ".join(self.runs[0]["setting"].split(" ")[1:]).replace("=", " ") or "–"

    @property
    def apart(self) -> str:
        return f"{signed(mean(self.over))} ({signed(min(self.over))} to {signed(max(self.over))})"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def columns(table: str) -> Iterator[dict[str, dict[tuple[int, int], dict[str, Any]]]]:
    """Of each column, method → (world, seed) → run."""
    for column in json.loads((RESULTS / f"{table}.json").read_text())["columns"].values():
        found: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
        for run in column["runs"]:
            found.setdefault(run["method"], {})[run["world"], run["seed"]] = run
        yield found


def all_measured() -> dict[str, Measured]:
    made: dict[str, Measured] = {}
    for table in TUNED:
        for column in columns(table):
            grpo = [column["grpo"][place] for place in PLACES]
            for method, runs in column.items():
                made.setdefault(method, Measured(method, [runs[place] for place in PLACES], grpo))
    return made


def groups(made: dict[str, Measured]) -> dict[str, list[Measured]]:
    """By what a method is given beside the outcomes; best first."""
    sys.path.insert(0, str(BENCHMARKS))
    from evidence_tables import GIVEN

    rest = [name for name in made if not any(name in methods for methods in GIVEN.values())]
    found = {
        "The hint": [name for name in rest if METHODS[name].hint] + list(GIVEN["hint"]),
        "A sibling's rollout, or what the environment said": list(GIVEN["sibling_or_feedback"]),
        "Rewards or states of turns": list(GIVEN["turns"]),
        "Values measured by further rollouts from inside each rollout": list(GIVEN["continuations"]),
        "Nothing but the rollout, or the reference answer with it": [
            name for name in rest if not METHODS[name].hint and name != "oracle"
        ] + list(GIVEN["rollout"]),
        "Which decisions were wrong": ["oracle"],
    }  # fmt: skip
    return {given: sorted((made[name] for name in names), key=lambda m: -m.points("success")) for given, names in found.items()}


def tables(made: dict[str, Measured]) -> str:
    head = "| method | rate | strength | true success in % | over grpo, mean (least to most) | greedy | reward | collapsed |\n"
    parts = []
    for given, methods in groups(made).items():
        rows = [
            f"| [{m.method}]({m.method}.md) | {m.rate} | {m.strength} | {m.points('success'):.1f} "
            f"| {m.apart if m.method != 'grpo' else ''} | {m.points('greedy'):.1f} | {m.points('reward') / 100:.3f} "
            f"| {m.collapsed or ''} |\n"
            for m in methods
        ]
        parts.append(f"### {given}\n\n{head}{'|---' * 8}|\n{''.join(rows)}")
    return "\n".join(parts)


def sentence(m: Measured) -> str:
    """A method's own line."""
    said = "Embedded task, right hints, 200 steps, six runs, tuned like every other method: "
    said += f"true success {m.points('success'):.1f} % sampled, {m.points('greedy'):.1f} % greedy"
    said += f"; over GRPO {m.apart}" if m.method != "grpo" else ""
    said += f"; {m.collapsed} of six runs collapsed" if m.collapsed else ""
    strength = f", {m.strength}" if m.strength != "–" else ""
    return f"{said} (at {m.rate}{strength}). [Every method in one table](results.md).\n"


def control_sentence(row: str) -> str:
    (column,) = columns("controls")
    success, as_it_is = (100 * mean(run["success"] for run in column[name].values()) for name in (row, "gear"))
    return (
        f"Embedded task, 200 steps, six runs at GEAR's setting: true success {success:.1f} %, GEAR as it is {as_it_is:.1f} %. "
        "[Controls and their baselines](../evidence.md#controls).\n"
    )


def between(text: str, name: str, content: str) -> str:
    """`text` with `content` between its marks <!-- name --> and <!-- /name -->."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"no place marked {begin.strip()} … {end}")
    return before + begin + content + end + after


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


def main() -> int:
    pages: dict[Path, str] = {}

    def write(page: str, mark: str, content: str) -> None:
        path = PAGES / f"{page}.md"
        pages[path] = between(pages.get(path, path.read_text()), mark, content)

    made = all_measured()
    write("results", "tables", tables(made))
    for method, measured in made.items():
        write(method, "result", sentence(measured))
    for page, row in CONTROLS.items():
        write(page, "result", control_sentence(row))
    costs = json.loads(COSTS.read_text())["methods"]
    write("costs", "costs", cost_table(costs))
    for name, cost in costs.items():
        write(name, "cost", cost_sentence(cost))
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
