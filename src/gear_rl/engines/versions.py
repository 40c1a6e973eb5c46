"""Which versions of TRL and verl the engines are tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from gear_rl.errors import GearError

TESTED = {"trl": "1.16", "verl": "0.9"}
"""The engines use private parts of both. tests/engines/test_trl_contract.py and tests/verl/test_contract.py check these."""
_INSTALL = {"trl": "pip install 'gear-rl[trl]'", "verl": "pip install 'gear-rl[verl]', in an environment of its own"}


def fits(package: str, found: str) -> bool:
    return found.split(".")[:2] == TESTED[package].split(".")


def check_version(package: str, found: str | None = None) -> str:
    """The installed version of `package`, if it is a tested one. `found`: instead of the installed one."""
    if found is None:
        try:
            found = version(package)
        except PackageNotFoundError:
            raise GearError(f"{package} is not installed: {_INSTALL[package]}.") from None
    if not fits(package, found):
        tested = TESTED[package]
        raise GearError(
            f"{package} {found} is installed; gear_rl.engines.{package} is tested with {package} {tested}.* only: "
            f"pip install '{package}=={tested}.*'."
        )
    return found
