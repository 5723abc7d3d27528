"""Run the cells of a benchmark: several at once, each in a folder of its own, so that any of them can be interrupted.

A finished cell has a ``record.json`` and is never run again; one that failed has a ``failed.json`` and is tried again the
next time; what was interrupted goes on from its last epoch.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import queue
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.engine.checkpoint import read_json, write_json
from crowdwise.errors import ConfigError, ModelFileError

RECORDS = "records.jsonl"
_POLL = 0.2  # seconds


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
    cells: Sequence[Cell], out: Path, *, jobs: int | None = None, threads: int | None = None, watch: Watch | None = None
) -> list[dict[str, Any]]:
    """Run all cells that have no record yet, ``jobs`` at a time, and return the records of all; failed ones have an error.

    ``jobs`` is the number of processors on a CPU, and 1 on a GPU. ``watch`` is called with the status whenever it
    changes, and with the record of each cell that ends.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _lock(out):
        todo = [cell for cell in _once(cells) if not (_folder(out, cell) / "record.json").exists()]
        status = Status(len(_once(cells)), len(_once(cells)) - len(todo))
        if watch is not None:
            watch(status, None)
        if todo:
            jobs = jobs if jobs is not None else default_jobs()
            _Pool(out, _families(todo), jobs, threads or max(1, (os.cpu_count() or 1) // jobs), status, watch).run()
        records = collect(cells, out)
        _write_lines(out / RECORDS, records)
        return records


def collect(cells: Sequence[Cell], out: Path) -> list[dict[str, Any]]:
    """The records of the cells that were run, in the order of the cells."""
    records = []
    for cell in _once(cells):
        for name in ("record.json", "failed.json"):
            path = _folder(out, cell) / name
            if path.exists():
                place = {"experiment": cell.experiment, "column": cell.column, "row": cell.row}
                records.append(read_json(path) | place)
                break
    return records


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records from a file of JSON lines, or from the folder of a benchmark."""
    path = path / RECORDS if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"{path}: there are no records; `crowdwise bench run` writes them")
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ModelFileError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict) or "row" not in record or "column" not in record:
            raise ModelFileError(f"{path}, line {number} is no record of a benchmark: it has no row and column")
        records.append(record)
    return records


def default_jobs() -> int:
    import torch

    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


class _Pool:
    """Worker processes that take families of cells, and are replaced when they die."""

    def __init__(
        self, out: Path, families: deque[list[Cell]], jobs: int, threads: int, status: Status, watch: Watch | None
    ) -> None:
        self.out, self.families, self.jobs, self.threads = out, families, jobs, threads
        self.status, self.watch = status, watch
        self.context = multiprocessing.get_context("spawn")
        self.events: Any = self.context.Queue()
        self.workers: dict[int, tuple[BaseProcess, Any]] = {}
        self.holding: dict[int, deque[Cell]] = {}  # what each worker has not finished yet
        self.started: dict[str, float] = {}

    def run(self) -> None:
        try:
            for number in range(min(self.jobs, len(self.families))):
                self._hire(number)
            while self.holding:
                try:
                    self._hear(*self.events.get(timeout=_POLL))
                except queue.Empty:
                    self._bury()
        finally:
            for process, _ in self.workers.values():
                process.kill()
                process.join()

    def _hire(self, number: int) -> None:
        tasks = self.context.Queue()
        arguments = (number, tasks, self.events, self.out, self.threads, self.jobs, os.getpid())
        process = self.context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        self.workers[number] = process, tasks
        self._give(number)

    def _give(self, number: int) -> None:
        if self.holding.get(number):
            family = list(self.holding[number])
        elif self.families:
            family = self.families.popleft()
        else:
            self.holding.pop(number, None)
            self.workers[number][1].put(None)
            return
        self.holding[number] = deque(family)
        self.workers[number][1].put([cell.as_json() for cell in family])

    def _hear(self, number: int, kind: str, content: Any) -> None:
        cell = self.holding[number][0]
        if kind == "epoch":
            self.started.setdefault(cell.id, time.perf_counter())
            self.status.running[cell.id] = content
            self._tell(None)
            return
        self._ended(number, content)
        if not self.holding[number]:
            self._give(number)

    def _ended(self, number: int, record: dict[str, Any]) -> None:
        cell = self.holding[number].popleft()
        self.status.running.pop(cell.id, None)
        self.status.finished += "error" not in record
        if "error" in record:
            self.status.failed[cell.id] = record["error"]
        self.status.seconds.append(time.perf_counter() - self.started.pop(cell.id, time.perf_counter()))
        waiting = [*self.families, *self.holding.values()]
        if not any(cell.family == other.family for cells in waiting for other in cells):
            shutil.rmtree(_shared(self.out, cell), ignore_errors=True)
        self._tell(record)

    def _bury(self) -> None:
        """Replace workers that died: the cell they were at has failed, the others of its family go on."""
        for number, (process, _) in list(self.workers.items()):
            if process.exitcode is not None and number in self.holding:
                cell = self.holding[number][0]
                died = f"its process died with {_signal(process.exitcode)}"
                self._ended(number, _fail(cell, self.out, f"{died} (out of memory?)", ""))
                if self.holding[number] or self.families:
                    self._hire(number)
                else:
                    self.holding.pop(number)

    def _tell(self, record: dict[str, Any] | None) -> None:
        if self.watch is not None:
            self.watch(self.status, record)


def _work(number: int, tasks: Any, events: Any, out: Path, threads: int, jobs: int, parent: int) -> None:
    """A worker process: run families of cells until there are none."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    import torch

    torch.set_num_threads(threads)
    sharing = jobs
    while (family := tasks.get()) is not None:
        for content in family:
            events.put(
                (number, "ended", _run(Cell(**content), out, sharing, lambda text: events.put((number, "epoch", text))))
            )


def _run(cell: Cell, out: Path, sharing: int, tell: Callable[[str], None]) -> dict[str, Any]:
    import warnings

    from crowdwise.bench.measure import run_cell

    def watch(record: dict[str, Any]) -> None:
        accuracy = f", {record['test_accuracy']:.2f} %" if "test_accuracy" in record else ""
        tell(f"{record['stage']}, epoch {record['epoch'] + 1}{accuracy}")

    folder = _folder(out, cell)
    folder.mkdir(parents=True, exist_ok=True)
    tell("starting")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = run_cell(cell, folder, _shared(out, cell), sharing=sharing, watch=watch)
    except Exception as error:
        return _fail(cell, out, f"{type(error).__name__}: {error}", traceback.format_exc())
    (folder / "failed.json").unlink(missing_ok=True)
    return record


def _fail(cell: Cell, out: Path, message: str, trace: str) -> dict[str, Any]:
    record = cell.as_json() | {"cell": cell.id, "error": message, "traceback": trace}
    write_json(_folder(out, cell) / "failed.json", record)
    return record


def _once(cells: Sequence[Cell]) -> list[Cell]:
    return list({cell.id: cell for cell in cells}.values())


def _families(cells: Sequence[Cell]) -> deque[list[Cell]]:
    """Cells with a crowd in common, together where they can share stages, else each alone; seed by seed."""
    from crowdwise.methods.bltm import BLTM
    from crowdwise.registry import METHODS

    families: dict[Any, list[Cell]] = {}
    for number, cell in enumerate(cells):
        shares = issubclass(METHODS[cell.method], BLTM)
        families.setdefault((cell.family, "first stages" if shares else number), []).append(cell)
    return deque(families.values())


def _folder(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.id


def _shared(out: Path, cell: Cell) -> Path:
    return out / "shared" / cell.family


def _write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    os.replace(temporary, path)


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """One benchmark at a time in a folder; the lock goes with its process."""
    import fcntl

    with open(out / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ConfigError(f"{out} is in use by process {file.read().strip() or 'of unknown number'}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _die_with(parent: int) -> None:
    """Have this process killed together with its parent, so that nobody writes into the folder behind a new run's back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _signal(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
