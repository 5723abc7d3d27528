"""Every test of data sets has its own empty cache, and finds only what it puts somewhere itself."""

import os

import pytest


@pytest.fixture(scope="session")
def real_data():
    """The value of CROWDWISE_DATA before the tests took it away."""
    return os.environ.get("CROWDWISE_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, real_data):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CROWDWISE_CACHE", str(folder))
    monkeypatch.delenv("CROWDWISE_DATA", raising=False)
    return folder
