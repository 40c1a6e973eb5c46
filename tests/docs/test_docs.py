"""The documentation is true: a page per method with its real options, a fresh file tree, links that lead somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from forked import ForkedScript

from gear_rl import __version__
from gear_rl.assignment.signals import SIGNALS
from gear_rl.cli.main import main
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


@pytest.mark.parametrize("script", [f"make_{name}.py" for name in ("tree", "settings", "results", "scaling", "reliability")])
def test_generated_parts_are_fresh(script):
    """The file tree is that of the sources, the settings are those of the code, the results those of the comparison."""
    done = ForkedScript([ROOT / "docs" / script, "--check"]).wait()
    assert done.returncode == 0, done.stderr


def test_the_readme_begins_with_the_two_commands_and_has_at_most_900_words():
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make train") < readme.index("make test") < 200
    assert len(readme.split()) <= 900


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert citation and project == __version__ == citation[1]
    assert f"## {project} " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("credit", ["gear", "sdpg"])
def test_every_logged_metric_is_explained(credit, tmp_path):
    settings = ["train.steps=1", "train.eval_rows=2", "train.kl=0.04"]
    assert main(["train", "--credit", credit, *[w for s in settings for w in ("--set", s)], "--out", str(tmp_path)]) == 0
    logged = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    explained = set(re.findall(r"`([\w/]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    patterns = [re.compile(name.replace("NAME", r"\w+")) for name in explained]
    assert not [name for name in logged if not any(pattern.fullmatch(name) for pattern in patterns)]


def test_every_signal_has_a_row_among_the_metrics():
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert not [name for name in SIGNALS if f"| `signals/{name}` |" not in page]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
