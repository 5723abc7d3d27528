"""Its place puts this folder on the import path, so that tests in subfolders can import ``fixtures``."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browsers import browser as browser  # once for all tests of a process: Playwright runs no second time in it

MEMORY = Path("/dev/shm")
SOURCE = Path(__file__).parents[1] / "src"


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory, where the system has much of it: most tests write, and wait for the disk."""
    import_packages_of(config.args)
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def import_packages_of(arguments: list[str]) -> None:
    """Import the packages of source files that are named on the command line, for their examples.

    Left to itself, pytest imports such a file and puts the module into its package, where it takes
    the place of a function of the same name: `crowdwise.graph.purify`, for one.
    """
    for argument in arguments:
        path = Path(argument.partition("::")[0]).resolve()
        if path.suffix == ".py" and SOURCE in path.parents:
            importlib.import_module(".".join(path.parent.relative_to(SOURCE).parts))


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder for files that are written thousands of times: in memory, where the system has a place for that."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="crowdwise-") as folder:
        yield Path(folder)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks start no processes of their own."""
    from bench_helpers import InThisProcess
    from crowdwise.bench import runner

    monkeypatch.setattr(runner, "Processes", InThisProcess)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods with their defaults take 60 steps: enough to run, where nothing depends on how well they do."""
    from crowdwise.engine import recipe

    for name, each in recipe.RECIPES.items():
        short = replace(each, epochs=min(each.epochs, 5), steps=min(each.steps, 60), early_steps=20)
        monkeypatch.setitem(recipe.RECIPES, name, short)


LONGEST = (
    "report/test_browser.py",
    "reviewing/test_browser.py",
    "methods/test_contract.py",
    "test_documents.py",
    "bench/test_runner.py",
    "methods/test_taidtm.py",
    "streaming/test_resuming.py",
    "streaming/test_streaming.py",
    "engine/test_loop.py",
    "cli/test_cli_report.py",
    "aggregation/test_contract.py",
    "test_under_attack.py",
    "aggregation/test_hierarchical.py",
    "report/test_content.py",
    "comparison/test_compare.py",
    "aggregation/test_recommend.py",
    "judges/test_estimate.py",
    "test_scikit_learn.py",
    "methods/test_large_crowds.py",
    "aggregation/test_machine_code.py",
    "cli/test_cli_train.py",
    "methods/test_type_three.py",
)
"""Files that take longest come first, so that no process is left with one of them while the others have finished."""


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    place = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file go to one process, for the fixtures they share; those of pages share a browser.

    Marks of groups would say the same, but pytest-xdist 3.8 overlooks them with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if "::test_ten_thousand" in nodeid:
                return nodeid
            return "browser" if file.endswith("/test_browser.py") else file

    return Files(config, log)
