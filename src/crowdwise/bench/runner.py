"""Run the cells of a benchmark: several at once, each in a folder of its own, so that any of them can be interrupted.

A finished cell has a ``record.json`` and is never run again; one that failed has a ``failed.json`` and is tried again the
next time; what was interrupted goes on from its last epoch.
"""

from __future__ import annotations

import ctypes
import functools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from crowdwise._files import replacing
from crowdwise._lock import locked
from crowdwise._text import json_value
from crowdwise.bench.cells import Cell
from crowdwise.engine.checkpoint import read_json, write_json
from crowdwise.errors import ConfigError, ModelFileError

RECORDS = "records.jsonl"
_FIELDS: dict[str, type | tuple[type, ...]] = {  # what tables and figures rely on
    **dict.fromkeys(("experiment", "column", "row", "cell", "method", "dataset", "error"), str),
    **dict.fromkeys(("data", "simulate", "parameters"), dict),
    "seed": int,
    "curve": list,
    "seconds": (int, float),
}


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


Watch = Callable[[Status, dict[str, Any] | None], None]


def run(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
    ray: str | None = None,
    gpus_per_run: float | None = None,
) -> list[dict[str, Any]]:
    """Run all cells that have no record yet, ``jobs`` at a time, and return the records of all; failed ones have an error.

    ``jobs`` is the number of GPUs, or of processors where there are none. ``watch`` is called with the status whenever it
    changes, and with the record of each cell that ends. ``ray``, an address or ``"local"``, spreads the cells over a Ray
    cluster, where each takes ``threads`` CPUs (1) and ``gpus_per_run`` GPUs (1 where there are some).
    """
    with locked(out):
        _tidy(out)
        book = _Book(cells, out)
        todo = [cell for cell in book.cells.values() if "error" in book.found.get(cell.id, {"error": "not run"})]
        status = Status(len(book.cells), len(book.cells) - len(todo))

        def ended(record: dict[str, Any] | None) -> None:
            if record is not None:
                book.add(record)
            if watch is not None:
                watch(status, record)

        ended(None)
        if todo:
            pool = _Processes if ray is None else _ray_pool(ray, gpus_per_run)
            pool(out, _families(todo), status, ended, jobs, threads).run()
        shutil.rmtree(out / "shared", ignore_errors=True)
        return book.records()


class _Book:
    """The records of a folder, and its ``records.jsonl``: the cells of this run, and what earlier runs had elsewhere."""

    def __init__(self, cells: Sequence[Cell], out: Path) -> None:
        self.places, self.out = cells, out
        self.cells = {cell.id: cell for cell in cells}
        found = {cell.id: _read(_folder(out, cell)) for cell in self.cells.values()}
        self.found = {cell: record for cell, record in found.items() if record is not None}
        self.others = self._elsewhere()
        self.write()

    def add(self, record: dict[str, Any]) -> None:
        self.found[record["cell"]] = record
        self.write()

    def records(self) -> list[dict[str, Any]]:
        """Those of this run's cells, in their order; a cell that stands at several places has a record for each."""
        return [
            self.found[cell.id] | {"experiment": cell.experiment, "column": cell.column, "row": cell.row}
            for cell in self.places
            if cell.id in self.found
        ]

    def write(self) -> None:
        lines = (json.dumps(record) + "\n" for record in (*self.others, *self.records()))
        with replacing(self.out / RECORDS) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def _elsewhere(self) -> list[dict[str, Any]]:
        """Records of earlier runs, but of other cells and at other places."""
        try:
            earlier = read_records(self.out)
        except (ConfigError, ModelFileError):  # not there, or damaged: the cells' own records are what counts
            return []
        taken = {(cell.experiment, cell.column, cell.row, cell.seed) for cell in self.places}
        places = (tuple(record.get(key) for key in ("experiment", "column", "row", "seed")) for record in earlier)
        others = [record for record, place in zip(earlier, places, strict=True) if place not in taken]
        others = [record for record in others if record.get("cell") not in self.cells]
        return [record for record in others if (self.out / "cells" / str(record.get("cell"))).is_dir()]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records from a file of JSON lines, or from the folder of a benchmark."""
    path = path / RECORDS if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"{path}: there are no records; `crowdwise bench run` writes them")
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = json_value(line)
        except ValueError as error:
            raise ModelFileError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict) or "row" not in record or "column" not in record:
            raise ModelFileError(f"{path}, line {number} is no record of a benchmark: it has no row and column")
        for name, kind in _FIELDS.items():
            value = record.get(name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ModelFileError(f"{path}, line {number}: {name} cannot be {str(value)[:60]!r}")
        cell = record.get("cell")
        if cell is not None and (cell != Path(cell).name or "\0" in cell):  # it names a folder
            raise ModelFileError(f"{path}, line {number}: cell {cell[:60]!r} is not a name")
        records.append(record)
    return records


def default_jobs() -> int:
    return n_gpus() or os.cpu_count() or 1


def n_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def least_used(used: Sequence[int | None], gpus: int) -> int | None:
    """The GPU for one more worker; None where there are none.

    >>> least_used([0, 1, 1, 2], 3)
    0
    """
    return min(range(gpus), key=used.count) if gpus else None


@dataclass
class _Worker:
    """A process, the line to it, and what it was given and has not finished yet."""

    process: BaseProcess
    line: Connection
    waiting: deque[Cell]
    gpu: int | None = None


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
            shutil.rmtree(_shared(self.out, cell), ignore_errors=True)
        self.ended(record)


class _Processes(Pool):
    """Worker processes that take families of cells, and are replaced when they die.

    Each has a line of its own: a queue that all share would be broken by a process that is killed while it writes.
    """

    jobs: int
    threads: int

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        jobs = self.jobs if self.jobs is not None else default_jobs()
        self.threads = self.threads if self.threads is not None else max(1, (os.cpu_count() or 1) // jobs)
        self.jobs = min(jobs, len(self.families))
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []
        self.gpus = n_gpus()

    def underway(self) -> Iterable[deque[Cell]]:
        return [worker.waiting for worker in self.workers]

    def run(self) -> None:
        try:
            for _ in range(self.jobs):
                self._hire(self.families.popleft())
            while self.workers:
                ready = wait([worker.line for worker in self.workers])
                for worker in [worker for worker in self.workers if worker.line in ready]:
                    try:
                        kind, content = worker.line.recv()
                    except (EOFError, OSError):
                        self._bury(worker)
                    else:
                        self._hear(worker, kind, content)
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()

    def _hire(self, family: deque[Cell]) -> None:
        ours, theirs = self.context.Pipe()
        gpu = least_used([worker.gpu for worker in self.workers], self.gpus)
        sharing = -(-self.jobs // max(self.gpus, 1))  # of a GPU, or of all processors
        arguments = (theirs, list(family), self.out, self.threads, sharing, gpu, os.getpid())
        process = self.context.Process(target=_work, args=arguments, daemon=True)
        with _uninterrupted():
            process.start()
        theirs.close()  # so that the line ends with the process
        self.workers.append(_Worker(process, ours, family, gpu))

    def _hear(self, worker: _Worker, kind: str, content: Any) -> None:
        if kind == "epoch":
            self._begun(worker.waiting[0], content)
            return
        self._end(worker.waiting, content)
        if not worker.waiting and self.families:
            worker.waiting = self.families.popleft()
            with suppress(OSError):  # it is dead, and will be found so
                worker.line.send(list(worker.waiting))
        elif not worker.waiting:
            self._dismiss(worker)

    def _bury(self, worker: _Worker) -> None:
        """Replace a worker that died: the cell it was at has failed, the others of its family go on."""
        self._dismiss(worker)
        cell = worker.waiting[0]
        record = _read(_folder(self.out, cell))
        if record is None or "error" in record:
            code = worker.process.exitcode or 0
            record = _fail(cell, self.out, f"its process died with {_signal(code)} (out of memory?)", "")
        self._end(worker.waiting, record)
        if worker.waiting or self.families:
            self._hire(worker.waiting or self.families.popleft())

    def _dismiss(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.line.close()  # which ends it
        worker.process.join()


def _ray_pool(address: str, gpus: float | None) -> Callable[..., Pool]:
    from crowdwise.bench.ray_pool import RayPool

    return functools.partial(RayPool, address=address, gpus=gpus)


def _work(
    line: Connection, family: list[Cell], out: Path, threads: int, sharing: int, gpu: int | None, parent: int
) -> None:
    """A worker process: run families of cells until there are none."""
    _die_with(parent)
    import torch

    if gpu is not None:
        torch.cuda.set_device(gpu)
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError):  # nobody listens any more
        while True:
            for cell in family:
                line.send(("ended", _run(cell, out, sharing, lambda text: line.send(("epoch", text)))))
            family = line.recv()


def _run(cell: Cell, out: Path, sharing: int, tell: Callable[[str], None]) -> dict[str, Any]:
    import warnings

    from crowdwise.bench.measure import run_cell

    def watch(record: dict[str, Any]) -> None:
        tell(describe(record))

    folder = _folder(out, cell)
    folder.mkdir(parents=True, exist_ok=True)
    tell("starting")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = run_cell(cell, folder, _shared(out, cell), sharing=sharing, watch=watch)
    except BrokenPipeError:
        raise
    except Exception as error:
        return _fail(cell, out, f"{type(error).__name__}: {error}", traceback.format_exc())
    (folder / "failed.json").unlink(missing_ok=True)
    return record


def describe(epoch: dict[str, Any]) -> str:
    """What an epoch's record says, in a few words."""
    accuracy = f", {epoch['test_accuracy']:.2f} %" if "test_accuracy" in epoch else ""
    return f"{epoch['stage']}, epoch {epoch['epoch'] + 1}{accuracy}"


def _fail(cell: Cell, out: Path, message: str, trace: str) -> dict[str, Any]:
    record = cell.as_json() | {"cell": cell.id, "error": message, "traceback": trace}
    write_json(_folder(out, cell) / "failed.json", record)
    return record


def _read(folder: Path) -> dict[str, Any] | None:
    """The record of a cell, or how it failed; None where there is neither, or nothing that can be read."""
    for name in ("record.json", "failed.json"):
        with suppress(ModelFileError):
            record = read_json(folder / name)
            if isinstance(record, dict) and record.get("cell") == folder.name:
                return record
    return None


def _families(cells: Sequence[Cell]) -> deque[deque[Cell]]:
    """Cells with a crowd in common, together where they can share stages, else each alone; seed by seed."""
    from crowdwise.methods.bltm import BLTM
    from crowdwise.registry import METHODS

    families: dict[Any, deque[Cell]] = {}
    for number, cell in enumerate(cells):
        shares = issubclass(METHODS[cell.method], BLTM)
        families.setdefault((cell.family, "first stages" if shares else number), deque()).append(cell)
    return deque(families.values())


def _folder(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.id


def _shared(out: Path, cell: Cell) -> Path:
    return out / "shared" / cell.family


def _tidy(out: Path) -> None:
    """Remove what a killed benchmark left: files that were being written, and the state of runs that are finished."""
    from crowdwise.bench.measure import discard_runs

    for leftover in out.glob("**/.*.tmp"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    for record in out.glob("cells/*/record.json"):
        discard_runs(record.parent)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which is the parent's business."""
    resource_tracker.ensure_running()  # which lifts the block when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with(parent: int) -> None:
    """Have this process killed together with its parent, so that nobody writes into the folder behind a new run's back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _signal(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
