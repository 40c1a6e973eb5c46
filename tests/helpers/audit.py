"""`make audit`: the licence of every package in constraints.txt, from its installed metadata, and known vulnerabilities where
pip-audit is installed and can reach its database. Exit code 1: a licence that is unknown or not allowed, or a vulnerability.

pip-audit itself reports "no known vulnerabilities" when it reaches no database. Here, what was not checked is counted.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
ALLOWED = (
    "apache", "mit", "bsd", "0bsd", "isc", "isc iscl", "psf-2.0", "python foundation", "zlib", "cc0-1.0",
    "bsl-1.0", "mit-cmu", "cnri-python", "unlicense",
)  # fmt: skip
"""Licences without copyleft, as metadata names them, in lower case, what varies (version, "license", "clause") cut off."""
EXCEPTIONS = {
    "certifi": "MPL-2.0: copyleft for its own files only, and we change none",
    "hypothesis": "MPL-2.0, in tests only",
    "pathspec": "MPL-2.0: copyleft for its own files only, and we change none",
    "tqdm": "MPL-2.0 and MIT: copyleft for its own files only, and we change none",
    "zss": "BSD with three clauses, by its LICENSE file; its metadata names none",
}
_DECORATION = re.compile(r"\b(the|software|licen[cs]e|version|\d-clause|with llvm-exception|2(\.0)?)\b|[-,]")


def allowed(licence: str) -> bool:
    """Whether a licence expression is made of allowed ones: of A OR B one, of A AND B all."""
    choices = re.split(r"\s+or\s+", licence.strip().lower().replace("(", "").replace(")", ""))
    return any(all(_plain(part) for part in re.split(r"\s+and\s+", choice)) for choice in choices)


def _plain(name: str) -> bool:
    words = " ".join(_DECORATION.sub(" ", name).split())
    return name.strip() in ALLOWED or words in ALLOWED


def licence_of(about: Any) -> str | None:
    """What metadata says: the expression, the classifiers, or a short text."""
    if expression := about.get("License-Expression"):
        return expression
    named = [line.split("::")[-1].strip() for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    if named := [name for name in named if name not in ("OSI Approved", "DFSG approved")]:
        return " AND ".join(named)  # several: it may be all of them
    text = (about.get("License") or "").strip()
    return text if text and text != "UNKNOWN" and "\n" not in text else None


def problems(names: list[str], find: Callable[[str], Any] = metadata.metadata) -> list[str]:
    """A line for each package whose licence is unknown or not allowed. What is not installed here is not looked at."""
    found = []
    for name in names:
        try:
            licence = licence_of(find(name))
        except metadata.PackageNotFoundError:
            continue
        if name not in EXCEPTIONS and (licence is None or not allowed(licence)):
            found.append(f"{name}: {licence or 'its metadata names no licence'}")
    return found


def pinned(path: Path = CONSTRAINTS) -> list[str]:
    return [line.split("==")[0].strip() for line in path.read_text().splitlines() if "==" in line and line[0] != "#"]


def vulnerabilities(report: dict[str, Any]) -> tuple[list[str], str]:
    """A line for each vulnerability in pip-audit's JSON, and a line that says how many packages it could check."""
    packages = report["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for package in packages
        for known in package.get("vulns", [])
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if packages and len(skipped) == len(packages):
        return found, "vulnerabilities: NOT CHECKED, pip-audit reached no database (it needs pypi.org)"
    names = f", not checked: {', '.join(skipped)}" if skipped else ""
    return found, f"vulnerabilities: {len(packages) - len(skipped)} packages checked, {len(found)} found{names}"


def main() -> int:
    names = pinned()
    found = problems(names)
    for line in found:
        print(f"licence not allowed: {line}")
    print(f"licences: {len(names)} packages pinned, {len(found)} not allowed, {len(EXCEPTIONS)} exceptions with a reason")
    if importlib.util.find_spec("pip_audit") is None:
        print("vulnerabilities: NOT CHECKED, pip-audit is not installed (pip install pip-audit)")
        return 1 if found else 0
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json", "-r", str(CONSTRAINTS)]
    checked = subprocess.run(command, capture_output=True, text=True)
    try:
        vulnerable, said = vulnerabilities(json.loads(checked.stdout))
    except ValueError:  # it ended with an error of its own
        print(f"vulnerabilities: NOT CHECKED, pip-audit failed: {checked.stderr.strip().splitlines()[-1:]}")
        return 1
    for line in vulnerable:
        print(f"vulnerable: {line}")
    print(said)
    return 1 if found or vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
