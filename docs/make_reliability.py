"""Write docs/reliability.md from the reports of tests/chaos in benchmarks/results: `python docs/make_reliability.py`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from generated import write_or_check

PAGE = Path(__file__).parent / "reliability.md"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
PICTURE = Path(__file__).parent / "images" / "soak.svg"
NOT_YET = "Not measured yet on this version.\n"
HEAD = """\
<!-- Written by docs/make_reliability.py from benchmarks/results. Do not edit by hand. -->
# Reliability

What was done to break it, and what came of it. Every table is the report of a harness in
[`tests/chaos`](../tests/chaos/chaos.py) that you can run; a short form of the first two runs in CI. Below each table stand its
command, the date, the commit and the machine.

{summary}
"""
CHAOS = """\
## Faults
`make chaos` runs real commands (`train`, `train --resume`, `warmstart`, `compare`, `eval`, `credit`,
`report`, `audition`) on the
embedded task and disturbs each: SIGKILL, SIGTERM and SIGINT at every file event (open, rename, unlink, mkdir, fsync, and in
the middle of a file that torch or safetensors writes) and at random moments; disks that are full, broken, read-only or gone;
one file of a run damaged; two processes on one folder; environments, judges and chat servers that raise, hang, die or lie;
memory that runs out in sampling, scoring and the loss.

After each fault the command is run again as its message says. **exact**: model, metrics, record and evaluation are those of
an undisturbed run, byte for byte but for times, and no scratch file is left. **refused**: exit code 2 and one line, and
nothing that was there before is lost. **survived**: ended well where another batch size or another environment's words
make other numbers; the same words said again must make the same ones. Everything else is a failure: a **traceback**; a
**hang**, no end within its limit; an **orphan**, a
process left behind; **lost**, a file of before is gone or changed; **different**, a result that is not the undisturbed one;
another **exit code**.

```bash title="Not run in the tests: the long form takes an hour on one core"
make chaos ARGS='--workers 16 --out benchmarks/results/chaos.json'
```

"""
FUZZ = """\
## Bad inputs
`make fuzz` changes good examples of everything that comes from outside (bytes, JSON values, words that hurt), and changes
what reached new lines of code further (Python 3.12). Only the documented error may come out; what a model says must not
even raise that. **read** and **refused** (the documented error) are right. Failures are a **traceback**, a **hang** (more
than a second of computing), **memory** (more than 200 MB) and **ends the run** (a model's words raise). Inputs that once
failed are kept in [`tests/chaos/corpus.jsonl`](../tests/chaos/corpus.jsonl) and run in CI.

```bash title="Not run in the tests: the long form takes minutes on 16 cores"
make fuzz ARGS='--inputs 2000000 --workers 16 --out benchmarks/results/fuzz.json'
```

"""
GUARDS = """\
## Guards
Runs built to fail, and healthy ones to their usual end: does a [guard](metrics.md#guards) ring? Success is lost at the step
from which its mean over ten steps stays below half of the best. Where the reward pays for something else, success is lost
within the first steps, and what an alarm saves is the rest of the run. **missed**: none of the guards that should ring did.
Ordinary runs go through five methods and five settings. Some fail on their own, so what is healthy is read from success
alone, without a look at the guards: its mean over twenty steps never fell below half of an earlier one. **false alarm**: any
guard rang in a healthy run. A run that fell and recovered may ring or not. The rules were made with runs of other seeds.
`leak` has since been narrowed to rollouts below the best reward; its three runs were repeated, and rang at steps 11 to 17.

```bash title="Not run in the tests: 13 minutes on 16 cores"
make guards ARGS='--ordinary 60 --workers 16 --out benchmarks/results/guards.json'
```

"""
SOAK = """\
## Soak
Trainings and judged answers in one process, one after the other. Flat: a straight line through the second half rises by less
than the tolerance. "growth in run" is what memory grows by from a quarter of a training to its end, the median over all.
The record of a run and its checkpoints are bounded by `train.record_megabytes` and `train.keep_checkpoints`.

```bash title="Not run in the tests: takes an hour"
make soak ARGS='--seconds 3600 --answers 10000 --out benchmarks/results/soak.json --svg docs/images/soak.svg'
```

"""


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(head: list[str], rows: list[list[Any]], others: str = "---:") -> str:
    """others: how the columns after the first are aligned."""
    lines = [head, ["---", *[others] * (len(head) - 1)], *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def counts(report: dict[str, Any], what: str, first: tuple[str, ...]) -> str:
    found = report["counts"]
    results = [*first, *sorted({r for row in found.values() for r in row} - {*first})]
    rows = [[kind, f"{sum(row.values()):,}", *[f"{row.get(r, 0):,}" for r in results]] for kind, row in found.items()]
    total = ["**all**", f"**{report['total']:,}**"]
    total += [f"**{sum(row.get(r, 0) for row in found.values()):,}**" for r in results]
    return table([what, "tried", *results], [*rows, total]) + ran(report) + failures(report)


def ran(report: dict[str, Any]) -> str:
    """The line below a table: how and where it was measured."""
    commit = f", commit {report['commit']}" if report.get("commit") else ""
    date = f" on {report['date']}" if report.get("date") else ""
    machine = ", ".join([f"{report['cores']} cores", *[report[key] for key in ("system",) if key in report]])
    command = re.sub(r" --(out|svg) \S+", "", report["command"])  # where somebody's files lay
    note = f" {report['note']}" if report.get("note") else ""  # written by hand, of what the figures do not say
    took = f": {report['seconds']:,.0f} s" if "seconds" in report else ":"  # unknown where runs were put together
    return f"\n`{command}`{took}{date}{commit}; {machine}, Python {report['python']}.{note}\n"


def failures(report: dict[str, Any]) -> str:
    """What failed, by kind and result, with one example each."""
    first: dict[tuple[str, str], str] = {}
    for found in report["failures"]:
        known = ("kind", "result", "case", "rang", "last", "verdict")
        more = {key: value for key, value in found.items() if key not in known and value is not None}
        first.setdefault((found["kind"], found["result"]), json.dumps(more, ensure_ascii=False)[:200].replace("|", "\\|"))
    rows = [[kind, result, f"`{example}`"] for (kind, result), example in first.items()]
    return "\n" + table(["failed", "how", "an example"], rows, "---") if rows else ""


def guards(report: dict[str, Any]) -> str:
    rows = []
    ordinary = ("healthy", "fell on its own")
    for case in sorted({run["case"] for run in report["runs"]}, key=lambda case: (case.startswith(ordinary), case)):
        runs = [run for run in report["runs"] if run["case"] == case]
        rang = [min(run["rang"].values()) for run in runs if run["rang"]]
        good = sum(run["verdict"] in ("rang", "silent", "recovered") for run in runs)
        lost = [run["lost_at"] for run in runs if run["lost_at"] is not None]
        names = sorted({name for run in runs for name in run["rang"]})
        gone = f"{span(lost)} ({len(lost)} of {len(runs)})" if lost else "never"
        rows.append([case, runs[0]["steps"], len(runs), good, ", ".join(names) or "–", span(rang), gone])
    head = ["run", "steps", "runs", "as they should", "guards that rang", "first at step", "success lost at step"]
    return table(head, rows) + ran(report) + failures(report)


def span(steps: list[int]) -> str:
    return "–".join(str(step) for step in dict.fromkeys([min(steps), max(steps)])) if steps else "–"


def soak(report: dict[str, Any]) -> str:
    first, last = report["rows"][len(report["rows"]) // 2], report["rows"][-1]
    record, checkpoints = (max(row[name] for row in report["rows"]) for name in ("record_mb", "checkpoints"))
    rows = [
        [name.replace("_", " "), f"{first[name]:.4g}", f"{last[name]:.4g}", f"{100 * rise:+.1f} %",
         f"{100 * report['tolerance'][name]:.0f} %"]
        for name, rise in report["risen"].items()
    ]  # fmt: skip
    text = f"{report['rounds']} trainings, {report['steps']:,} steps, {report['answers']:,} answers judged. The largest record "
    text += f"had {record:.2f} MB, and there were never more than {checkpoints:.0f} checkpoints.\n\n"
    if PICTURE.exists():
        text += f"![Memory, open files, threads and times over the soak](images/{PICTURE.name})\n\n"
    return text + table(["measure", "half time", "end", "rises by", "allowed"], rows) + ran(report)


def summary(chaos: dict | None, fuzz: dict | None, proven: dict | None, soaked: dict | None) -> str:
    rows = []
    if chaos:
        rows.append(["faults injected", f"{chaos['total']:,}", f"{chaos['failed']:,}"])
    if fuzz:
        rows.append(["bad inputs", f"{fuzz['total']:,}", f"{fuzz['failed']:,}"])
    if proven:
        healthy = [run for run in proven["runs"] if run["case"].startswith("healthy")]
        alone = [run for run in proven["runs"] if run["case"].startswith("fell on its own")]
        failing = [run for run in proven["runs"] if run not in healthy and run not in alone]
        rows.append(["runs built to fail: no alarm", len(failing), sum(r["verdict"] != "rang" for r in failing)])
        rows.append(["healthy runs: any alarm", len(healthy), sum(run["verdict"] != "silent" for run in healthy)])
        lost = [run for run in alone if run["lost_at"] is not None]
        if lost:
            rows.append(["ordinary runs that lost success: no alarm", len(lost), sum(not run["rang"] for run in lost)])
    if soaked:
        rows.append(["hours soaked: measures not flat", f"{soaked['seconds'] / 3600:.1f}", len(soaked["not_flat"])])
    return table(["what", "tried", "failed"], rows) if rows else NOT_YET


def page() -> str:
    chaos, fuzz, proven, soaked = (read(name) for name in ("chaos", "fuzz", "guards", "soak"))
    good = ("exact", "survived", "refused")
    return "".join([
        HEAD.format(summary=summary(chaos, fuzz, proven, soaked)), CHAOS,
        counts(chaos, "kind of fault", good) if chaos else NOT_YET, "\n", FUZZ,
        counts(fuzz, "parser", ("read", "refused")) if fuzz else NOT_YET, "\n", GUARDS,
        guards(proven) if proven else NOT_YET, "\n", SOAK, soak(soaked) if soaked else NOT_YET,
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
