"""These tests run where OpenEnv is installed: `make openenv` makes such an environment."""

import pytest

pytest.importorskip("openenv.core.env_server")
