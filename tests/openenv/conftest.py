"""These tests run where OpenEnv is installed: `make openenv` makes such an environment."""

import pytest

pytest.importorskip("openenv.core.env_server", reason="OpenEnv is not installed here: make openenv runs these tests")
