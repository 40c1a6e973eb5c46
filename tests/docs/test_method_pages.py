"""The methods' pages: every section is there, the index is complete, and the example prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gear_rl.methods import METHODS, method
from gear_rl.options import listing

PAGES = Path(__file__).parents[2] / "docs" / "methods"
HEADINGS = ["Equation", "Standing", "Needs", "Cost", "Mass", "Options", "Differences from its source", "Results"]


@pytest.mark.parametrize("name", METHODS)
def test_a_page_has_its_sections_in_order(name):
    page = (PAGES / f"{name}.md").read_text()
    assert page.startswith(f"# `{name}`\n")
    found = [heading for heading in re.findall(r"^## (.*)$", page, re.M) if heading in HEADINGS]
    assert found == HEADINGS
    assert f"{METHODS[name].cost.forwards} forwards, {METHODS[name].cost.backwards} backwards" in page
    assert (METHODS[name].hint is None) == ("No teacher" in page)
    mass = re.search(r"## Mass\n\n(.*?)\n\n", page, re.S).group(1)
    assert METHODS[name].mass.lower() in " ".join(mass.split()).lower()
    for option in listing(METHODS[name].Options):
        assert f"| `{option['name']}` | {option['default']} | {option['range']} | {option['description']} |" in page


def test_every_page_is_of_a_method_and_in_the_index():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README", "costs", "needs", "parity", "results"}
    assert pages == set(METHODS)
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (.*) \|$", (PAGES / "README.md").read_text(), re.M)
    assert sorted(name for name, _, _ in rows) == sorted(METHODS)
    for name, link, rest in rows:
        _family, needs, cost, standing, paper = rest.split(" | ")
        cls = METHODS[name]
        assert link == name and standing == cls.standing and paper == (cls.paper or "–")
        assert re.findall(r"`(\w+)`", needs) == list(cls.needs)
        assert ("distillation loss" in needs) == (method(name).distillation is not None)
        assert cost == f"{cls.cost.forwards} + {cls.cost.backwards}"


def test_the_example_of_gear_prints_what_its_page_says():
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", (PAGES / "gear.md").read_text(), re.S).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == printed
