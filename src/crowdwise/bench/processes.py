"""Cells of a benchmark in local processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.bench.pool import Pool, attempt
from crowdwise.bench.records import fail, folder_of, read_record
from crowdwise.system import n_cores


@dataclass
class _Worker:
    """A process, the connection to it, and the cells it has not finished."""

    process: BaseProcess
    line: Connection
    waiting: deque[Cell]
    gpu: int | None = None


class Processes(Pool):
    """Worker processes that take families of cells, and are replaced when they die.

    Each has its own connection: a process that is killed while writing would corrupt a shared queue.
    """

    jobs: int
    threads: int

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        jobs = self.jobs if self.jobs is not None else default_jobs()
        self.threads = self.threads if self.threads is not None else max(1, n_cores() // jobs)
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
                        self._receive(worker, kind, content)
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
        with uninterrupted():
            process.start()
        theirs.close()  # so that the connection ends with the process
        self.workers.append(_Worker(process, ours, family, gpu))

    def _receive(self, worker: _Worker, kind: str, content: Any) -> None:
        if kind == "epoch":
            self._begun(worker.waiting[0], content)
            return
        self._end(worker.waiting, content)
        if not worker.waiting and self.families:
            worker.waiting = self.families.popleft()
            with suppress(OSError):  # it is dead, which will be noticed
                worker.line.send(list(worker.waiting))
        elif not worker.waiting:
            self._dismiss(worker)

    def _bury(self, worker: _Worker) -> None:
        """Replace a worker that died: its current cell has failed, the rest of the family continues."""
        self._dismiss(worker)
        cell = worker.waiting[0]
        record = read_record(folder_of(self.out, cell))
        if record is None or "error" in record:
            code = worker.process.exitcode or 0
            record = fail(cell, self.out, f"its process died with {_signal(code)} (out of memory?)", "")
        self._end(worker.waiting, record)
        if worker.waiting or self.families:
            self._hire(worker.waiting or self.families.popleft())

    def _dismiss(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.line.close()  # which ends it
        worker.process.join()


def _work(
    line: Connection, family: list[Cell], out: Path, threads: int, sharing: int, gpu: int | None, parent: int
) -> None:
    """A worker process: run families of cells until there are none."""
    die_with(parent)
    import torch

    if gpu is not None:
        torch.cuda.set_device(gpu)
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError):  # the parent is gone
        while True:
            for cell in family:
                line.send(("ended", attempt(cell, out, sharing, lambda text: line.send(("epoch", text)))))
            family = line.recv()


def default_jobs() -> int:
    return n_gpus() or n_cores()


def n_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def least_used(used: Sequence[int | None], gpus: int) -> int | None:
    """The GPU for another worker; None without GPUs.

    >>> least_used([0, 1, 1, 2], 3)
    0
    """
    return min(range(gpus), key=used.count) if gpus else None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Processes started here ignore Ctrl-C; the parent handles it."""
    resource_tracker.ensure_running()  # starting it would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with(parent: int) -> None:
    """Have this process killed together with its parent, so that it cannot interfere with a new run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _signal(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
