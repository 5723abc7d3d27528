"""A benchmark on a cluster has the records of one on this machine, whoever is lost on the way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.test_runner import TINY, Record, files, results
from cluster_helpers import once, two_workers
from crowdwise.bench import measure, runner
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import load_experiment
from crowdwise.cluster import RayPool
from crowdwise.cluster import pool as ray_pool
from crowdwise.errors import ConfigError
from extras import needs

needs("ray", "needs Ray: pip install crowdwise[ray]")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def ray() -> Iterator[None]:
    with two_workers(num_gpus=1):  # which nobody uses: only that they are dealt out is of interest
        yield


def cells(folder: Path, epochs: int = 3, **options: Any) -> list[Cell]:
    path = folder / "tiny.toml"
    path.write_text(TINY.replace("EPOCHS", str(epochs)), encoding="utf-8")
    return load_experiment(path).cells(**options)


def test_records_are_those_of_this_machine(tmp_path: Path) -> None:
    """The same command goes on with what failed, and only with that."""
    (cell,) = cells(tmp_path, methods=["ce"])
    broken = cells(tmp_path, methods=["ce"], seeds=[1], parameters={"backbone": "nonsense"})
    seen: list[str] = []
    tried: list[str] = []

    def run(*wanted: Cell) -> list[Record]:
        def watch(status: runner.Status, record: Record | None) -> None:
            seen.extend(status.running)
            tried.extend([record["cell"]] if record else [])

        return runner.run(wanted, tmp_path / "out", pool=partial(RayPool, address="local", gpus=0.5), watch=watch)

    failed, record = run(*broken, cell)
    assert failed["error"].startswith("ConfigError: unknown backbone 'nonsense'")
    assert set(seen) == set(tried) == {cell.id, broken[0].id}
    assert runner.read_records(tmp_path / "out") == [failed, record]
    assert {name for name in files(tmp_path / "out") if cell.id in name} == {f"cells/{cell.id}/record.json"}
    (tmp_path / "here").mkdir()
    assert results([record]) == results([measure.run_cell(cell, tmp_path / "here", tmp_path / "shared")])
    tried.clear()
    run(*broken, cell)
    assert tried == [broken[0].id]


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    wanted = cells(tmp_path, 20, methods=["bltm", "taidtm"])
    undisturbed = runner.run(wanted, tmp_path / "one", pool=partial(RayPool, address="local", gpus=0))
    reached: list[str] = []

    def watch(status: runner.Status, _: Record | None) -> None:
        reached.extend(stage for stage in status.running.values() if "epoch" in stage)

    with once(signal.SIGKILL, "_cell", lambda _: bool(reached)) as killed:
        disturbed = runner.run(wanted, tmp_path / "two", pool=partial(RayPool, address="local", gpus=0), watch=watch)
    assert killed
    assert results(disturbed) == results(undisturbed)
    assert files(tmp_path / "two") == files(tmp_path / "one")


def test_a_cell_that_kills_every_worker_fails_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = cells(tmp_path, methods=["ce", "bltm"])
    work = ray_pool._cell

    def deadly(cell: Cell, *rest: Any) -> Any:
        import os

        return os._exit(1) if cell.method == "ce" else work(cell, *rest)

    deadly.__module__ = "__main__"  # which Ray sends along, as workers have no such function
    monkeypatch.setattr(ray_pool, "_cell", deadly)
    records = runner.run(wanted, tmp_path / "out", pool=partial(RayPool, address="local", gpus=0))
    assert records[0]["error"].startswith("its worker was lost, also when it was tried again (WorkerCrashedError: ")
    assert "error" not in records[1]


def test_shares_of_gpus_that_are_not_there(tmp_path: Path) -> None:
    wanted = cells(tmp_path, methods=["ce"])
    with pytest.raises(ConfigError, match="takes 1 CPUs and 2 GPUs, and the Ray cluster at local has 2 and 1"):
        runner.run(wanted, tmp_path / "out", pool=partial(RayPool, address="local", gpus=2))
    with pytest.raises(ConfigError, match=r"between 0 and 1, or a whole number; got 1\.5"):
        runner.run(wanted, tmp_path / "out", pool=partial(RayPool, address="local", gpus=1.5))
