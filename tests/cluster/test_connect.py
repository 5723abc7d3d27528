"""Joining a Ray, or saying why not."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from crowdwise import cluster
from crowdwise.errors import ConfigError
from crowdwise.streaming import aggregate
from streaming_helpers import crowd, write


def refused(address: str, workers: int | None = None) -> str:
    with pytest.raises(ConfigError) as caught, cluster.connect(address, workers):
        pytest.fail("it was joined")
    return str(caught.value)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refused("local") == "Ray is not installed: pip install 'crowdwise[ray]'"


def test_workers_need_a_cluster(tmp_path: Path) -> None:
    path = write(tmp_path / "crowd.parquet", crowd())
    with pytest.raises(ConfigError, match="workers are those of a Ray cluster"):
        aggregate(path, "wawa", out=tmp_path / "labels.parquet", workers=2)


class TestWithRay:
    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        pytest.importorskip("ray", reason="needs Ray: pip install crowdwise[ray]")

    def test_an_address_that_does_not_answer(self) -> None:
        with socket.socket() as taken:  # bound, but nobody listens
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            assert refused(address).startswith(f"no Ray cluster answers at {address}: ")

    @pytest.mark.parametrize("address", ["ray://head:10001", "auto", "head:port"])
    def test_what_is_no_address(self, address: str) -> None:
        assert refused(address).startswith(f"{address!r} is no address of a Ray cluster: use local or HOST:PORT")

    def test_more_workers_than_this_machine_has(self) -> None:
        cpus = os.cpu_count() or 1
        asked = f"{cpus + 1} workers were asked for, and this machine has {cpus} CPUs; ask for no more than that"
        assert refused("local", cpus + 1) == asked
        assert refused("local", 0) == "workers must be 1 or more, got 0"
