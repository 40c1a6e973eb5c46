"""mkdocs hooks: put files from outside docs/ into the site, and point links at their place there.

README.md becomes the home page. CONTRIBUTING.md, SECURITY.md and CHANGELOG.md become pages. The navigation lists every method.
Measured results and examples that pages link to are copied, so that the site is complete without the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"index.md": "README.md"} | {page: page for page in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}
COPIED = (
    "benchmarks/results/*.json", "benchmarks/*.py", "examples/*.py", "tests/chaos/chaos.py", "tests/chaos/corpus.jsonl",
    "LICENSE", "CITATION.cff",
)  # fmt: skip
_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """A new method's page needs no entry in mkdocs.yml."""
    listed = set(re.findall(r"methods/(\w+)\.md", str(config.nav)))
    peers = [path.stem for path in sorted((ROOT / "docs" / "methods").glob("*.md")) if path.stem not in listed]
    (methods,) = [section["Methods"] for section in config.nav if "Methods" in section]
    methods.append({"Peers": [{name: f"methods/{name}.md"} for name in peers]})
    return config


def on_files(files: Files, config: Any) -> Files:
    for uri, source in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links: in a page from the repository's root, `docs/x` becomes `x`; in a page of docs/, `../x` becomes the site's `x`."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # the home page is alone in its section
    depth = uri.count("/")

    def moved(found: re.Match[str]) -> str:
        target = found[2]
        if uri in PAGES:
            target = target.removeprefix("docs/")
        elif target.startswith("../" * (depth + 1)):
            target = "../" * depth + target.removeprefix("../" * (depth + 1))
            if target == "../" * depth + "README.md":
                target = "../" * depth + "index.md"
        return found[1] + target

    return _LINK.sub(moved, markdown)
