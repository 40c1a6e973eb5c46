"""Write the file tree into docs/architecture.md, one line per file from its own first line: `python docs/make_tree.py`."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

from generated import write_or_check

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tree -->\n```text\n", "```\n<!-- /tree -->"
FOLDERS = ("src/gear_rl", "examples", "benchmarks")


def first_sentence(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    for stop in (". ", ": `", "; "):
        text = text.split(stop)[0]
    return text.rstrip(".")


def tree() -> str:
    """Package by package; a package's `__init__.py` gives the line of the package itself."""
    lines = []
    for folder in FOLDERS:
        if lines:
            lines.append("")
        top = ROOT / folder
        parents = sorted({path.parent for path in top.rglob("*.py")})
        for parent in parents:
            inside = parent.relative_to(ROOT)
            package = parent / "__init__.py"
            lines.append(line(f"{inside}/", first_sentence(package) if package.exists() else ""))
            files = sorted(path for path in parent.glob("*.py") if path.name != "__init__.py")
            lines += [line(f"  {path.name}", first_sentence(path)) for path in files]
    return "\n".join(lines) + "\n"


def line(name: str, text: str) -> str:
    return f"{name:40s} {textwrap.shorten(text, 88, placeholder=' …')}".rstrip()


def main() -> int:
    text = PAGE.read_text()
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{PAGE.name} has no place marked <!-- tree --> … <!-- /tree -->")
    fresh = before + BEGIN + tree() + END + after
    return write_or_check(PAGE, fresh)


if __name__ == "__main__":
    sys.exit(main())
