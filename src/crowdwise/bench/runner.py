"""Run the cells of a benchmark, several at once, each in its own folder, so that any of them can be interrupted.

A finished cell has a ``record.json`` and is never run again; a failed one has a ``failed.json`` and is retried the next
time; an interrupted one continues from its last epoch.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Pool
from crowdwise.bench.pool import Status as Status
from crowdwise.bench.processes import Processes
from crowdwise.bench.records import RecordLog
from crowdwise.bench.records import read_records as read_records
from crowdwise.registry import METHODS
from crowdwise.storage.files import tidy
from crowdwise.storage.lock import locked

if TYPE_CHECKING:
    from crowdwise.methods.core.base import CrowdClassifier

Watch = Callable[[Status, dict[str, Any] | None], None]


def run(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
    pool: Callable[..., Pool] | None = None,
    ray: str | None = None,
    gpus_per_run: float | None = None,
) -> list[dict[str, Any]]:
    """Run all cells without a record, ``jobs`` at a time, and return all records; those of failed cells have an error.

    ``jobs`` defaults to the number of GPUs, or of processors without GPUs. ``watch`` is called with the status whenever it
    changes, and with the record of each cell that ends. ``pool`` runs the cells if not processes of this machine:
    ``functools.partial(crowdwise.cluster.RayPool, address=..., gpus=...)`` runs them on Ray, each on ``threads`` CPUs (1)
    and ``gpus`` GPUs (1 if there are any); ``ray`` and ``gpus_per_run`` are these by their old names.
    """
    if ray is not None:
        pool = _on_ray(ray, gpus_per_run)
    with locked(out):
        _tidy(out)
        log = RecordLog(cells, out)
        todo = [cell for cell in log.cells.values() if "error" in log.found.get(cell.id, {"error": "not run"})]
        status = Status(len(log.cells), len(log.cells) - len(todo))

        def ended(record: dict[str, Any] | None) -> None:
            if record is not None:
                log.add(record)
            if watch is not None:
                watch(status, record)

        ended(None)
        if todo:
            (pool or Processes)(out, _families(todo), status, ended, jobs, threads).run()
        shutil.rmtree(out / "shared", ignore_errors=True)
        return log.records()


def _on_ray(address: str, gpus: float | None) -> Callable[..., Pool]:
    """What ``ray`` and ``gpus_per_run`` stood for."""
    message = (
        "ray and gpus_per_run are deprecated; use pool=functools.partial(crowdwise.cluster.RayPool, address=, gpus=)"
    )
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    pool = importlib.import_module("crowdwise.cluster").RayPool  # lies above this layer
    return functools.partial(pool, address=address, gpus=gpus)


def _families(cells: Sequence[Cell]) -> deque[deque[Cell]]:
    """Cells with the same crowd, grouped if they can share stages and otherwise alone; seed by seed."""
    families: dict[Any, deque[Cell]] = {}
    for number, cell in enumerate(cells):
        method: type[CrowdClassifier] = METHODS[cell.method]
        families.setdefault((cell.family, "shared" if method.shares_stages else number), deque()).append(cell)
    return deque(families.values())


def _tidy(out: Path) -> None:
    """Remove what a killed benchmark left behind: temporary files, and the state of finished runs."""
    from crowdwise.bench.measure import discard_runs

    tidy(out, everywhere=True)
    for record in out.glob("cells/*/record.json"):
        discard_runs(record.parent)
