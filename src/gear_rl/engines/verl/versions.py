"""Which verl this is tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from gear_rl.errors import GearError

TESTED = "0.9"
"""The engine uses private parts of verl's v1 trainer; tests/verl/test_contract.py holds them for this version."""


def check_version(found: str | None = None) -> str:
    """The installed version of verl, if it is a tested one. `found`: instead of the installed one."""
    if found is None:
        try:
            found = version("verl")
        except PackageNotFoundError:
            raise GearError(
                "verl is not installed: pip install 'gear-rl[verl]', in an environment of its own."
            ) from None
    if found.split(".")[:2] != TESTED.split("."):
        raise GearError(
            f"verl {found} is installed; gear_rl.engines.verl is tested with verl {TESTED}.* only: "
            f"pip install 'verl=={TESTED}.*'."
        )
    return found
