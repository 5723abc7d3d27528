"""Passes over the partitions of a store as tasks of Ray.

The partitions are dealt out in stretches, and their sums are added up in a tree, both of a shape that depends on the store
alone: with however many workers, and whichever of them are lost on the way, every sum has the same order, and so the same
value to the last bit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.cluster.connection import check_nodes, connect, remote
from crowdwise.streaming.passes import Advance, Pass, Sums, Workers

STRETCHES = 256  # at most, and so the workers that a pass can use
FAN = 8  # sums that a task adds up
SLOW, PATIENCE = 3.0, 2.0  # a task that takes so many times the median, and so many seconds more, is started once more

Refs = tuple[Any, ...]  # what a task will return, each of them


@dataclass(frozen=True)
class RayPasses:
    """Passes on Ray: ``passes`` of `crowdwise.streaming.aggregate`.

    All nodes must share the working folder. The number of workers does not change the result by a bit.
    """

    address: str
    """``"local"`` or ``HOST:PORT``, see `crowdwise.cluster.connect`."""
    workers: int | None = None
    """Tasks at a time; None: one for each CPU."""

    @contextmanager
    def start(self, folder: Path) -> Iterator[Workers]:
        """Connect, and check that all nodes see the folder."""
        with connect(self.address, self.workers) as found:
            check_nodes(folder)
            yield RayWorkers(found.workers)


@dataclass(frozen=True)
class RayWorkers:
    """Tasks of Ray, ``number`` at a time. Ray runs a task again when its worker is lost; those that are late are run here
    a second time."""

    number: int

    @property
    def tables(self) -> int:
        return 2  # as they come, and a copy that may be written to

    def sums(self, task: Pass, advance: Advance) -> Sums:
        import ray

        stretches, content = task.stretches(STRETCHES), _put(task)
        work, tree = remote(_sums), _Tree(task, len(stretches))
        for number, (sums,) in self._ended(lambda k: (work.remote(content, stretches[k]),), len(stretches)):
            tree.add(number, sums)
            advance(len(stretches[number]))
        return _writable(ray.get(tree.root()))

    def pieces(self, task: Pass, take: Callable[[Any], None], advance: Advance) -> Sums:
        import ray

        content, ready, taken = _put(task), dict[int, Any](), 0
        work, tree = remote(_piece, num_returns=2), _Tree(task, len(task))
        for number, (piece, sums) in self._ended(lambda k: tuple(work.remote(content, k)), len(task)):
            tree.add(number, sums)
            ready[number] = piece
            while taken in ready:
                take(ray.get(ready.pop(taken)))
                taken += 1
                advance(1)
        return _writable(ray.get(tree.root()))

    def _ended(self, start: Callable[[int], Refs], size: int) -> Iterator[tuple[int, Refs]]:
        """Run tasks 0..size-1 and yield each as it ends. Of one that is late a twin is started, and the first of them counts."""
        import ray

        running: dict[Any, tuple[int, Refs, float]] = {}
        seconds: list[float] = []
        started, twins, ended = 0, set[int](), set[int]()

        def begin(number: int) -> None:
            refs = start(number)
            running[refs[0]] = number, refs, time.perf_counter()

        while len(ended) < size:
            while started < size and len(running) < self.number:
                begin(started)
                started += 1
            for first in ray.wait(list(running), timeout=1.0)[0]:
                number, refs, since = running.pop(first)
                if number not in ended:
                    ended.add(number)
                    seconds.append(time.perf_counter() - since)
                    yield number, refs
            late = time.perf_counter() - (SLOW * statistics.median(seconds) if seconds else np.inf) - PATIENCE
            for number, _, since in list(running.values()):
                if started == size and len(running) < self.number and since < late and number not in twins:
                    twins.add(number)
                    begin(number)
        for first in running:
            ray.cancel(first, force=True)


class _Tree:
    """Adds up ``size`` sums in groups of neighbours, and their sums likewise, each group as soon as it is complete."""

    def __init__(self, task: Pass, size: int) -> None:
        self.combine, self.work = task.combine, remote(_combined)
        self.levels: list[list[Any]] = [[None] * size]
        while len(self.levels[-1]) > 1:
            self.levels.append([None] * -(-len(self.levels[-1]) // FAN))

    def add(self, number: int, sums: Any, level: int = 0) -> None:
        found = self.levels[level]
        found[number] = sums
        group = slice(number // FAN * FAN, number // FAN * FAN + FAN)
        if len(found) > 1 and all(member is not None for member in found[group]):
            total = self.work.remote(self.combine, *found[group])
            found[group] = [None] * len(found[group])  # so that Ray may forget them
            self.add(number // FAN, total, level + 1)

    def root(self) -> Any:
        return self.levels[-1][0]


def _put(task: Pass) -> Any:
    """The pass in the memory that workers share: arrays lie there once for each node."""
    import ray

    return ray.put(replace(task, store=replace(task.store, folder=task.store.folder.absolute())))


def _sums(task: Pass, partitions: Sequence[int]) -> Sums:
    return task(partitions)


def _piece(task: Pass, number: int) -> tuple[Any, Sums]:
    return task.piece(number)


def _combined(combine: Callable[[Sums, Sums], Sums], *sums: Sums) -> Sums:
    return reduce(combine, sums[1:], _writable(sums[0]))


def _writable(sums: Sums) -> Sums:
    """Copies of arrays, which Ray hands out to be read only."""
    return tuple(value.copy() if isinstance(value, np.ndarray) else value for value in sums)
