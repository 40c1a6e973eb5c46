"""Every command and code block in the README and the documentation runs, or says why it is not tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_blocks import NOT_RUN, ROOT, PageRun, blocks_of, commands

LOGS = {"docs/methods/results.md", "docs/methods/costs.md"}
"""Records of what was run."""
PAGES = [
    path
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if str(path.relative_to(ROOT)) not in LOGS
]
TESTED = {"bash", "python", "json", "toml", "text", "diff", ""}
LEAST_RUN = 35
"""Blocks that are run. A page that stops being read by these tests shows here."""


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p.read_text())], ids=names)
def test_the_blocks_of_a_page_run(page, tmp_path):
    run = PageRun(tmp_path)
    for block in blocks_of(page.read_text()):
        run.run(block)


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_block_has_a_language_and_a_reason_if_it_is_not_tested(page):
    text = page.read_text()
    for block in blocks_of(text):
        where = f"{names(page)}, line {block.line}"
        assert block.language in TESTED, f"{where}: {block.language} is never run"
        assert not block.is_marked or len(block.title) > len(NOT_RUN) + 5, f"{where}: no reason"
        if block.language == "bash" and not block.is_marked:
            for words in commands(block.body):
                assert words[0] in ("gear", "make", "python"), f"{where}: `{words[0]}` is not run by these tests; mark it"


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name != "methods"], ids=names)
def test_no_command_hides_in_an_indented_block(page):
    outside = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.M | re.S)
    hidden = re.findall(r"^(?: {4}|\t)(?:\$ )?(?:gear|make|pip|python|git) .*$", outside, re.M)
    assert not hidden, f"put these into a ```bash block, so that they are tested or marked: {hidden}"


def test_most_blocks_are_run():
    blocks = [block for page in PAGES for block in blocks_of(page.read_text()) if block.language not in ("", "text")]
    marked = sum(block.is_marked for block in blocks)
    print(f"{len(blocks) - marked} blocks are run, {marked} are marked as not tested")
    assert len(blocks) - marked >= LEAST_RUN


def test_the_diff_in_the_readme_is_that_of_the_examples():
    def code(line: str) -> str:
        return line.split("  #")[0].strip()

    grpo, gear = ({code(l) for l in (ROOT / "examples" / name).read_text().splitlines()} for name in ("grpo.py", "gear.py"))
    for page in (ROOT / "README.md", ROOT / "docs" / "from_trl.md"):
        (diff,) = [block.body for block in blocks_of(page.read_text()) if block.language == "diff"]
        for line in diff.splitlines():
            if line[:1] == "+":
                assert code(line[1:]) in gear - grpo, line
            elif line[:1] == "-":
                assert code(line[1:]) in grpo - gear, line
