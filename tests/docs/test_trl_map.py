"""docs/trl_tests.md names tests that exist, and counts its own rows rightly."""

from __future__ import annotations

import re

from doc_blocks import ROOT

PAGE = (ROOT / "docs" / "trl_tests.md").read_text()
ROWS = re.findall(r"^\| `(test_\w+)` \| (.*) \| (.*) \|$", PAGE, re.M)


def test_every_test_that_is_named_exists():
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for theirs, ours, _ in ROWS:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)(?:\[(\w+)\])?`", ours)
        assert named or ours.startswith("– "), theirs
        assert len(named) == ours.count("`") // 2, f"{theirs}: {ours}"
        for file, function, case in named:
            assert f"def {function}(" in sources[file], f"{theirs}: {file} has no {function}"
            assert not case or f'"{case}"' in sources[file], f"{theirs}: {function} has no case {case}"


def test_the_counts_are_those_of_the_table():
    absent = [theirs for theirs, ours, _ in ROWS if ours.startswith("– ")]
    passing = [theirs for theirs, _, outcome in ROWS if outcome == "passes"]
    names = {theirs for theirs, _, _ in ROWS}
    assert len(names) == len(ROWS)
    assert f"with the {len(ROWS)} test functions" in PAGE
    assert f"Of the {len(ROWS)}, {len(ROWS) - len(absent)} are covered, and {len(absent)} do not apply" in PAGE
    assert f"by function: {len(passing)} pass" in PAGE
