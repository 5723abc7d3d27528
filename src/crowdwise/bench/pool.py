"""Whatever runs cells, several at a time: how far it is, and how one cell is run."""

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
    """How far a benchmark is, for whoever watches."""

    total: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """What went wrong, by cell."""
    running: dict[str, str] = field(default_factory=dict)
    """Stage and epoch, by cell."""
    seconds: list[float] = field(default_factory=list)


class Pool:
    """Whatever runs families of cells, several at a time; here is the account of what began and ended."""

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
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs cells")

    def underway(self) -> Iterable[deque[Cell]]:
        """Families that were begun, each with the cells that have not ended."""
        raise NotImplementedError(f"{type(self).__name__} does not say which cells are underway")

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
        self.status.seconds.append(time.perf_counter() - self.started.pop(cell.id, time.perf_counter()))
        if all(cell.family != other.family for rest in (*self.families, *self.underway()) for other in rest):
            shutil.rmtree(shared_of(self.out, cell), ignore_errors=True)
        self.ended(record)


def attempt(cell: Cell, out: Path, sharing: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run a cell in its folder, and return its record, or how it failed; ``tell`` hears of every epoch."""
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
    """What an epoch's record says, in a few words."""
    accuracy = f", {epoch['test_accuracy']:.2f} %" if "test_accuracy" in epoch else ""
    return f"{epoch['stage']}, epoch {epoch['epoch'] + 1}{accuracy}"
