"""What all pools share: the status of a benchmark, and how one cell is run."""

from __future__ import annotations

import shutil
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.records import fail, folder_of, shared_of


@dataclass
class Status:
    """The progress of a benchmark."""

    total: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Error by cell."""
    running: dict[str, str] = field(default_factory=dict)
    """Stage and epoch, by cell."""
    seconds: list[float] = field(default_factory=list)


class Pool:
    """Runs families of cells, several at a time. This base class keeps track of what has begun and ended."""

    def __init__(
        self,
        out: Path,
        families: deque[deque[Cell]],
        status: Status,
        ended: Callable[[dict[str, Any] | None], None],
        jobs: int | None,
        threads: int | None,
    ) -> None:
        self.out, self.families, self.status, self.ended = out, families, status, ended
        self.jobs, self.threads = jobs, threads
        self.started: dict[str, float] = {}

    def run(self) -> None:
        """Run them all."""
        raise NotImplementedError(f"{type(self).__name__} does not define run()")

    def underway(self) -> Iterable[deque[Cell]]:
        """Families in progress, each with its unfinished cells."""
        raise NotImplementedError(f"{type(self).__name__} does not define underway()")

    def _begun(self, cell: Cell, stage: str) -> None:
        self.started.setdefault(cell.id, time.perf_counter())
        if self.status.running.get(cell.id) != stage:
            self.status.running[cell.id] = stage
            self.ended(None)

    def _end(self, family: deque[Cell], record: dict[str, Any]) -> None:
        cell = family.popleft()
        self.status.running.pop(cell.id, None)
        if "error" in record:
            self.status.failed[cell.id] = record["error"]
        else:
            self.status.finished += 1
        now = time.perf_counter()
        self.status.seconds.append(now - self.started.pop(cell.id, now))
        if all(cell.family != other.family for rest in (*self.families, *self.underway()) for other in rest):
            shutil.rmtree(shared_of(self.out, cell), ignore_errors=True)
        self.ended(record)


def attempt(cell: Cell, out: Path, sharing: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run a cell in its folder and return its record, or that of its failure; ``tell`` is called after every epoch."""
    from crowdwise.bench.measure import run_cell

    def watch(record: dict[str, Any]) -> None:
        tell(describe(record))

    folder = folder_of(out, cell)
    folder.mkdir(parents=True, exist_ok=True)
    tell("starting")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = run_cell(cell, folder, shared_of(out, cell), sharing=sharing, watch=watch)
    except BrokenPipeError:
        raise
    except Exception as error:
        return fail(cell, out, f"{type(error).__name__}: {error}", traceback.format_exc())
    (folder / "failed.json").unlink(missing_ok=True)
    return record


def describe(epoch: dict[str, Any]) -> str:
    """An epoch's record in a few words."""
    accuracy = f", {epoch['test_accuracy']:.2f} %" if "test_accuracy" in epoch else ""
    return f"{epoch['stage']}, epoch {epoch['epoch'] + 1}{accuracy}"
