"""These tests run where verifiers is installed: `make verifiers` makes such an environment."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed here: make verifiers runs these tests")
sys.path.insert(0, str(Path(__file__).parent / "environments"))
