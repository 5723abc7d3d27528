"""Fill the gaps of a benchmark for a limited time, as many runs at once as pay.

Any number of processes may work in one folder, on one machine or on several that share it: each run is claimed by a lock,
which the system frees when its process ends, however it ends. An unfinished run continues from its last epoch.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Status, attempt
from crowdwise.bench.processes import die_with, least_used, n_gpus, uninterrupted
from crowdwise.bench.records import RecordLog, fail, folder_of, read_record, shared_of
from crowdwise.bench.runner import Watch
from crowdwise.errors import InUseError
from crowdwise.registry import METHODS
from crowdwise.storage.lock import locked
from crowdwise.system import n_cores

if TYPE_CHECKING:
    from crowdwise.methods.core.base import CrowdClassifier

PAYS = 1.1
"""By what factor twice as many runs at once must get on faster."""
_WINDOW = 20.0  # seconds, at least, in which the speed of a number of runs is measured
_MOST_ON_A_GPU = 8


@dataclass
class Packing:
    """How many runs go on at once: twice as many, as long as together they get on at least a tenth faster.

    >>> packing = Packing(most=8)
    >>> [packing.jobs, packing.measured(1.0), packing.measured(1.8), packing.measured(1.9), packing.measured(5.0)]
    [1, 2, 4, 2, 2]
    """

    most: int
    jobs: int = 1
    settled: bool = False
    _before: float | None = None

    def measured(self, speed: float) -> int:
        """Take in the speed with the present number of runs, in epochs a second; returns the next number."""
        if self.settled:
            return self.jobs
        pays = self._before is None or speed >= PAYS * self._before
        self.settled = not pays or self.jobs >= self.most
        if pays and not self.settled:
            self._before = speed
            self.jobs = min(2 * self.jobs, self.most)
        elif not pays:
            self.jobs = max(1, self.jobs // 2)
        return self.jobs


@dataclass
class _Worker:
    process: BaseProcess
    line: Connection
    gpu: int | None
    cell: str = ""
    """The run that it has begun."""


@dataclass
class Filled:
    """What a call of `fill` did."""

    records: list[dict[str, Any]] = field(default_factory=list)
    """Of the runs that ended in it."""
    left: int = 0
    """Runs that are still missing."""
    jobs: int = 1
    """How many went on at once in the end."""


def fill(
    cells: Sequence[Cell],
    out: Path,
    seconds: float,
    *,
    jobs: int | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
    places: Sequence[Cell] = (),
) -> Filled:
    """Run those of ``cells`` that have no record in ``out``, in their order, for so many seconds.

    ``jobs`` run at once; None: as many as pay, which the first ones show. ``watch`` is called as by
    `crowdwise.bench.runner.run`. ``places`` are all places in tables that a record may be written for, if one run
    stands at several; by default those of ``cells``.
    """
    places = places or cells
    write_records(places, out)
    with suppress(InUseError):
        _forget_shared(cells, out)
    filling = _Filling(cells, out, time.monotonic() + seconds, jobs, threads, watch)
    try:
        filling.run(max(_WINDOW, seconds / 30))
    finally:
        filling.stop()
        write_records(places, out)
    done = filling.filled
    done.left = sum(not _is_done(cell, out) for cell in cells)
    done.jobs = filling.packing.jobs
    return done


class _Filling:
    """The worker processes of one call, and what they have told."""

    def __init__(
        self,
        cells: Sequence[Cell],
        out: Path,
        deadline: float,
        jobs: int | None,
        threads: int | None,
        watch: Watch | None,
    ) -> None:
        self.cells, self.out, self.deadline, self.watch = list(cells), out, deadline, watch
        self.gpus = n_gpus()
        most = jobs or (self.gpus * _MOST_ON_A_GPU if self.gpus else n_cores())
        self.packing = Packing(most, jobs=jobs or max(1, self.gpus), settled=jobs is not None)
        self.threads = threads or max(1, n_cores() // most)
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []
        self.started = time.time()
        self.filled = Filled()
        self.epochs = 0
        total = len(self.cells)
        self.status = Status(total, sum(_is_done(cell, out) for cell in self.cells))
        self.more = self.status.finished < total

    def run(self, window: float) -> None:
        self._tell(None)
        began, full = time.monotonic(), False
        while time.monotonic() < self.deadline:
            while self.more and len(self.workers) < self.packing.jobs:
                self._hire()
            if not self.workers:
                return
            ends = min(self.deadline, began + window)
            patience = max(0.2, ends - time.monotonic())
            for line in wait([worker.line for worker in self.workers], patience):
                self._receive(next(worker for worker in self.workers if worker.line is line))
            busy = sum(bool(worker.cell) for worker in self.workers) >= self.packing.jobs
            if not full and busy:  # measured from when all of them train
                began, full, self.epochs = time.monotonic(), True, 0
            elif full and time.monotonic() - began >= window:
                before = self.packing.jobs
                self.packing.measured(self.epochs / (time.monotonic() - began))
                began, self.epochs, full = time.monotonic(), 0, self.packing.jobs == before

    def stop(self) -> None:
        """End all workers; what they have begun is continued another time."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.line.close()
        self.workers.clear()

    def _hire(self) -> None:
        ours, theirs = self.context.Pipe()
        gpu = least_used([worker.gpu for worker in self.workers], self.gpus)
        arguments = (theirs, self.cells, self.out, self.threads, gpu, self.started, os.getpid())
        process = self.context.Process(target=_work, args=arguments, daemon=True)
        with uninterrupted():
            process.start()
        theirs.close()  # so that the connection ends with the process
        self.workers.append(_Worker(process, ours, gpu))

    def _receive(self, worker: _Worker) -> None:
        try:
            kind, cell, content = worker.line.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if kind == "ready":  # for its next run, if it is still wanted
            worker.cell = ""
            wanted = len(self.workers) <= self.packing.jobs
            sharing = -(-self.packing.jobs // max(self.gpus, 1))  # of a GPU, or of all processors
            with suppress(OSError):
                worker.line.send(sharing if wanted else 0)
        elif kind == "none":
            self.more = False
        elif kind == "epoch":
            worker.cell = cell
            self.epochs += 1
            self.status.running[cell] = content
            self._tell(None)
        else:
            self._ended(cell, content)

    def _ended(self, cell: str, record: dict[str, Any]) -> None:
        self.status.running.pop(cell, None)
        if "error" in record:
            self.status.failed[cell] = record["error"]
        else:
            self.status.finished += 1
        self.status.seconds.append(record.get("seconds", 0.0))
        self.filled.records.append(record)
        self._tell(record)

    def _bury(self, worker: _Worker) -> None:
        """A worker has ended: of itself, or killed in the middle of a run, by lack of memory for instance."""
        self.workers.remove(worker)
        worker.line.close()
        worker.process.join()
        cell = next((cell for cell in self.cells if cell.id == worker.cell), None)
        if cell is None or not worker.process.exitcode:
            return
        self.packing.jobs, self.packing.settled = max(1, self.packing.jobs - 1), True
        if not _is_done(cell, self.out):
            message = f"its process died with status {worker.process.exitcode} (out of memory?)"
            self._ended(cell.id, fail(cell, self.out, message, ""))

    def _tell(self, record: dict[str, Any] | None) -> None:
        if self.watch is not None:
            self.watch(self.status, record)


def _work(
    line: Connection, cells: list[Cell], out: Path, threads: int, gpu: int | None, started: float, parent: int
) -> None:
    """A worker process: take the next free run until there is none, or the parent says that it is not needed."""
    die_with(parent)
    import torch

    if gpu is not None:
        torch.cuda.set_device(gpu)
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError):  # the parent is gone
        for cell in _free(cells, out, started):
            line.send(("ready", "", None))
            sharing = line.recv()
            if not sharing:
                return
            line.send(("epoch", cell.id, "starting"))

            def tell(text: str, cell: Cell = cell) -> None:
                line.send(("epoch", cell.id, text))

            line.send(("ended", cell.id, attempt(cell, out, sharing, tell)))
        line.send(("none", "", None))


def _free(cells: Iterable[Cell], out: Path, started: float) -> Iterator[Cell]:
    """The runs that nobody has done or is doing, each while it is claimed."""
    for cell in cells:
        if _is_done(cell, out) or _has_just_failed(cell, out, started):
            continue
        with suppress(InUseError), claimed(cell, out):
            if not _is_done(cell, out):  # by another process, meanwhile
                yield cell


@contextmanager
def claimed(cell: Cell, out: Path) -> Iterator[None]:
    """Have a run for this process alone, with those that share its first stages; `InUseError` if another has it."""
    method: type[CrowdClassifier] = METHODS[cell.method]
    with locked(shared_of(out, cell) if method.shares_stages else folder_of(out, cell)):
        yield


def _is_done(cell: Cell, out: Path) -> bool:
    record = read_record(folder_of(out, cell))
    return record is not None and "error" not in record


def _has_just_failed(cell: Cell, out: Path, started: float) -> bool:
    with suppress(OSError):
        return (folder_of(out, cell) / "failed.json").stat().st_mtime >= started
    return False


def _forget_shared(cells: Sequence[Cell], out: Path) -> None:
    """Remove the shared stages of families all of whose runs are done."""
    open_families = {cell.family for cell in cells if not _is_done(cell, out)}
    for folder in out.glob("shared/*"):
        if folder.name in open_families:
            continue
        with suppress(InUseError), locked(folder):
            for path in folder.iterdir():
                if path.name != ".lock":
                    path.unlink(missing_ok=True)


def write_records(cells: Sequence[Cell], out: Path, patience: float = 30.0) -> None:
    """Bring ``records.jsonl`` up to date with what all processes have done; wait while another one does."""
    until = time.monotonic() + patience
    while True:
        try:
            with locked(out):
                RecordLog(cells, out)
            return
        except InUseError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
