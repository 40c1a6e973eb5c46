"""What the scripts share that write a page of this folder: write it, or with --check only say that it is out of date."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, fresh: str) -> int:
    """The exit code: 1 with --check where `page` does not hold `fresh`."""
    if "--check" not in sys.argv:
        page.write_text(fresh)
        return 0
    stale = not page.exists() or page.read_text() != fresh
    if stale:
        print(f"{page.name} is out of date: python docs/{Path(sys.argv[0]).name}", file=sys.stderr)
    return int(stale)
