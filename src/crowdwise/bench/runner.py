"""Run the cells of a benchmark: several at once, each in a folder of its own, so that any of them can be interrupted.

A finished cell has a ``record.json`` and is never run again; one that failed has a ``failed.json`` and is tried again the
next time; what was interrupted goes on from its last epoch.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Pool
from crowdwise.bench.pool import Status as Status
from crowdwise.bench.processes import Processes
from crowdwise.bench.records import Book
from crowdwise.bench.records import read_records as read_records
from crowdwise.storage.lock import locked

Watch = Callable[[Status, dict[str, Any] | None], None]


def run(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
    pool: Callable[..., Pool] = Processes,
    ray: str | None = None,
    gpus_per_run: float | None = None,
) -> list[dict[str, Any]]:
    """Run all cells that have no record yet, ``jobs`` at a time, and return the records of all; failed ones have an error.

    ``jobs`` is the number of GPUs, or of processors where there are none. ``watch`` is called with the status whenever it
    changes, and with the record of each cell that ends. ``pool`` runs the cells if not processes of this machine:
    ``functools.partial(crowdwise.cluster.RayPool, address=..., gpus=...)`` runs them on Ray, where each takes ``threads``
    CPUs (1) and ``gpus`` GPUs (1 where there are some); ``ray`` and ``gpus_per_run`` are these by their old names.
    """
    if ray is not None:
        pool = _on_ray(ray, gpus_per_run)
    with locked(out):
        _tidy(out)
        book = Book(cells, out)
        todo = [cell for cell in book.cells.values() if "error" in book.found.get(cell.id, {"error": "not run"})]
        status = Status(len(book.cells), len(book.cells) - len(todo))

        def ended(record: dict[str, Any] | None) -> None:
            if record is not None:
                book.add(record)
            if watch is not None:
                watch(status, record)

        ended(None)
        if todo:
            pool(out, _families(todo), status, ended, jobs, threads).run()
        shutil.rmtree(out / "shared", ignore_errors=True)
        return book.records()


def _on_ray(address: str, gpus: float | None) -> Callable[..., Pool]:
    """What ``ray`` and ``gpus_per_run`` stood for."""
    message = (
        "ray and gpus_per_run are deprecated; use pool=functools.partial(crowdwise.cluster.RayPool, address=, gpus=)"
    )
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    pool = importlib.import_module("crowdwise.cluster").RayPool  # lies above this layer
    return functools.partial(pool, address=address, gpus=gpus)


def _families(cells: Sequence[Cell]) -> deque[deque[Cell]]:
    """Cells with a crowd in common, together where they can share stages, else each alone; seed by seed."""
    from crowdwise.methods.bltm import BLTM
    from crowdwise.registry import METHODS

    families: dict[Any, deque[Cell]] = {}
    for number, cell in enumerate(cells):
        shares = issubclass(METHODS[cell.method], BLTM)
        families.setdefault((cell.family, "first stages" if shares else number), deque()).append(cell)
    return deque(families.values())


def _tidy(out: Path) -> None:
    """Remove what a killed benchmark left: files that were being written, and the state of runs that are finished."""
    from crowdwise.bench.measure import discard_runs

    for leftover in out.glob("**/.*.tmp"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    for record in out.glob("cells/*/record.json"):
        discard_runs(record.parent)
