"""`python -m gear_rl.engines.verl` before verl is imported: versions, and a cluster that does not answer."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from gear_rl.engines.verl.__main__ import check_cluster, main
from gear_rl.errors import GearError


def config(address: str | None) -> SimpleNamespace:
    return SimpleNamespace(ray_kwargs={"ray_init": {"address": address}})


@pytest.fixture(autouse=True)
def no_address(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_dead_cluster_is_named(monkeypatch):
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(GearError, match=f"no Ray cluster answers at {address}"):
            check_cluster(config(address))
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        with pytest.raises(GearError, match="no Ray cluster answers at ray://"):
            check_cluster(config(None))


@pytest.mark.parametrize("address", [None, "auto", "local"])
def test_a_cluster_of_this_machine_is_left_to_ray(address):
    check_cluster(config(address))


def test_a_cluster_that_listens_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_cluster(config(f"127.0.0.1:{server.getsockname()[1]}"))


def test_without_verl_one_line_says_so(monkeypatch, capsys):
    from gear_rl.engines import versions

    def missing(name):
        raise versions.PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "error: verl is not installed: pip install 'gear-rl[verl]', in an environment of its own.\n"
    )
    monkeypatch.setattr(versions, "version", lambda name: "0.8.0")
    assert main([]) == 2 and "verl 0.8.0 is installed" in capsys.readouterr().err
