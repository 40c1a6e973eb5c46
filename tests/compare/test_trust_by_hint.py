"""benchmarks/trust_by_hint.py: a run of its own, and the table that docs/evidence.md shows."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("trust_by_hint")


def test_the_published_table(script):
    """Kinds have other names there; what follows them is the same."""
    runs = json.loads((ROOT / "benchmarks" / "results" / "trust_by_hint.json").read_text())["runs"]
    page = (ROOT / "docs" / "evidence.md").read_text().replace("−", "-")
    drawn = script.table(runs).replace(", step 20 to 20", ", step 20").splitlines()
    assert len(drawn) == 2 + len(script.KINDS)
    for line in drawn[2:]:
        assert line.split("|", 2)[2] in page


def test_a_run_is_measured(script):
    found = script.measure("sibling", world=1, seed=0, steps=2)
    assert len(found["trust"]) == 2 and found["rang_at"] is None
    assert "| sibling |" in script.table([found])
