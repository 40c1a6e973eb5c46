"""Write the file tree into README.md, one line per file from its own first line: `python docs/make_tree.py`."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"
FOLDERS = ("src/gear_rl", "examples", "benchmarks")


def first_sentence(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    for stop in (". ", ": `", "; "):
        text = text.split(stop)[0]
    return text.rstrip(".")


def tree() -> str:
    lines = []
    for folder in FOLDERS:
        lines.append(f"{folder}/")
        files = [p for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py" or p.parent == ROOT / folder]
        for path in sorted(files, key=lambda p: (len(p.relative_to(ROOT).parts), str(p))):
            name = str(path.relative_to(ROOT / folder))
            lines.append(f"  {name:36s} {textwrap.shorten(first_sentence(path), 86, placeholder=' …')}")
    return "\n".join(lines) + "\n"


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    fresh = before + BEGIN + tree() + END + after
    if "--check" in sys.argv:
        if fresh != text:
            print("README.md's file tree is out of date: python docs/make_tree.py", file=sys.stderr)
        return int(fresh != text)
    readme.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
