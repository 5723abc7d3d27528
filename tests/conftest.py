"""Its place puts this folder on the import path, so that tests in subfolders can import ``fixtures``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder for files that are written thousands of times: in memory, where the system has a place for that."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="crowdwise-") as folder:
        yield Path(folder)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks start no processes of their own."""
    from bench_helpers import InThisProcess
    from crowdwise.bench import runner

    monkeypatch.setattr(runner, "Processes", InThisProcess)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``--dist loadgroup`` the tests of a file go to one process, for the fixtures they share; damaged files to any."""
    for item in items:
        if "in_memory" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
