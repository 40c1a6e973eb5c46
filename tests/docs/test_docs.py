"""The documentation is true: a page per method with its real options, a fresh file tree, links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gear_rl.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_its_options_and_defaults(name):
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    method = METHODS[name]
    for heading in ("Standing", "Needs", "Cost"):
        assert heading in page, f"docs/methods/{name}.md lacks {heading}"
    for option in fields(method.Options):
        default = option.default if isinstance(option.default, str) else f"{option.default}"
        rows = [line for line in page.splitlines() if line.startswith(f"| `{option.name}` |")]
        assert rows, f"docs/methods/{name}.md lacks option {option.name}"
        assert f"| {default} |" in rows[0], f"docs/methods/{name}.md: default of {option.name} is {default}: {rows[0]}"
    for need in method.needs:
        assert need in page


def test_the_file_tree_in_the_readme_is_fresh():
    done = subprocess.run([sys.executable, ROOT / "docs" / "make_tree.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_results_on_the_method_pages_are_those_of_the_comparison():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_results.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
