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
    runs = json.loads((ROOT / "benchmarks" / "results" / "trust_by_hint.json").read_text())["runs"]
    assert script.table(runs) in (ROOT / "docs" / "evidence.md").read_text()


def test_a_run_is_measured(script):
    found = script.measure("sibling", world=1, seed=0, steps=12)
    assert len(found["trust"]) == 12 and len(set(found["trust"])) > 6
    ringing = script.measure("another_problem", world=1, seed=0, steps=12) | {"trust": [0.0] * 20, "rang_at": 14}
    drawn = script.table([{**found, "trust": [0.5] * 20}, ringing])
    assert "| a sibling that won | 0.50 (0.50 to 0.50) | 0 of 1 |" in drawn
    assert "| another problem's | 0.00 (0.00 to 0.00) | 1 of 1, step 14 |" in drawn
