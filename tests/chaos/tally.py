"""The report that every harness of this folder gives: counts by kind, each failure with how to repeat it; JSON and lines."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SHOWN = 60
"""Failures that are printed; all of them are in the JSON."""


class Tally:
    """Counts of results by kind. A result in `good` is what should happen; every other one is a failure."""

    def __init__(self, name: str, good: Sequence[str]) -> None:
        self.name, self.good = name, tuple(good)
        self.counts: dict[str, Counter[str]] = {}
        self.failures: list[dict[str, Any]] = []
        self.began = time.time()

    def add(self, kind: str, result: str, failure: dict[str, Any] | None = None, count: int = 1) -> None:
        self.counts.setdefault(kind, Counter())[result] += count
        if result not in self.good:
            self.failures.append({"kind": kind, "result": result, **(failure or {})})

    def total(self, results: Iterable[str] | None = None) -> int:
        return sum(n for counts in self.counts.values() for r, n in counts.items() if results is None or r in results)

    @property
    def failed(self) -> int:
        return self.total() - self.total(self.good)

    def as_dict(self, **more: Any) -> dict[str, Any]:
        return {
            "harness": self.name,
            **about(),
            "seconds": round(time.time() - self.began, 1),
            "total": self.total(),
            "failed": self.failed,
            "counts": {kind: dict(sorted(counts.items())) for kind, counts in sorted(self.counts.items())},
            "failures": self.failures,
            **more,
        }

    def lines(self) -> list[str]:
        results = [*self.good, *sorted({r for c in self.counts.values() for r in c} - {*self.good})]
        width = max(map(len, [*self.counts, "kind"]))
        wide = [max(len(r), 7) for r in results]
        head = f"{'kind':{width}s}  {'tried':>7s}  " + "  ".join(f"{r:>{w}s}" for r, w in zip(results, wide, strict=True))
        rows = [head]
        for kind, counts in [*sorted(self.counts.items()), ("all", sum(self.counts.values(), Counter()))]:
            cells = "  ".join(f"{counts[r]:>{w}d}" for r, w in zip(results, wide, strict=True))
            rows.append(f"{kind:{width}s}  {counts.total():7d}  {cells}")
        shown = [json.dumps(failure, ensure_ascii=False)[:400] for failure in self.failures[:SHOWN]]
        left = [f"… and {len(self.failures) - SHOWN} more"] if len(self.failures) > SHOWN else []
        verdict = f"{self.total()} tried, {self.failed} failed, {time.time() - self.began:.0f} s"
        return [*rows, *shown, *left, verdict]

    def finish(self, out: Path | None, **more: Any) -> int:
        """Print the lines, write the JSON; the exit code: 1 where something failed."""
        print("\n".join(self.lines()), flush=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(self.as_dict(**more), indent=1, ensure_ascii=False) + "\n")
        return int(self.failed > 0)


def about() -> dict[str, Any]:
    """What was run, when, of which source and on what: the first lines of every report."""
    here = Path(__file__).parent
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True)
        commit = said.stdout.strip() or None
    except OSError:
        commit = None
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def resident_mb() -> float:
    """Memory of this process now, in MB."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:  # not Linux: the peak is all there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
