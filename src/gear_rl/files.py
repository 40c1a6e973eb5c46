"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """All of it or nothing: a reader never sees half a file."""
    scratch = path.with_name(path.name + ".tmp")
    with open(scratch, "w") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
