"""Passes: a function is mapped over the partitions of a store, and what it returns is added up.

`Threads` of this process run them, or the workers of a cluster (`crowdwise.cluster.RayPasses`). Functions are at the top
level and get a `Part`, the sums so far (to add to in place) and arguments that they leave alone, so that any of them can
be run anywhere, and again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from crowdwise.progress import ProgressDisplay
from crowdwise.streaming.store import Store

Sums = tuple[Any, ...]  # arrays and numbers that are added up over partitions, and lists that are strung together
Function = Callable[..., Any]  # (part, sums so far or None, question) -> sums of the part, or on top of those so far
Advance = Callable[[int], None]  # is told how many more partitions are done


@dataclass(frozen=True)
class Pass:
    """A function over partitions, and how its results are put together."""

    store: Store
    function: Function
    question: Any
    combine: Callable[[Sums, Sums], Sums]

    def __len__(self) -> int:
        return len(self.store)

    def __call__(self, partitions: Sequence[int], advance: Advance | None = None) -> Sums:
        """The sums of some partitions."""
        total: Sums | None = None
        for number in partitions:
            found = self.function(self.store.load(number), total, self.question)
            total = found if total is None else self.combine(total, found)
            if advance is not None:
                advance(1)
        assert total is not None
        return total

    def piece(self, number: int) -> tuple[Any, Sums]:
        """What the function makes of one partition, where that is more than sums."""
        found: tuple[Any, Sums] = self.function(self.store.load(number), None, self.question)
        return found

    def stretches(self, number: int) -> list[list[int]]:
        """All partitions in ``number`` stretches of about one length, or fewer."""
        return [part.tolist() for part in np.array_split(np.arange(len(self)), min(number, len(self)))]


class Progress(ProgressDisplay):
    """What a person sees of a long run: one bar for one step after the other at ``verbose=1``, a line for each at 2."""

    def __init__(self, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.title = "inferring labels"  # of the next passes over the data

    def columns(self, facts: Any) -> tuple[Any, ...]:
        from rich.progress import TaskProgressColumn, TimeRemainingColumn

        return TaskProgressColumn(), TimeRemainingColumn(), facts

    def step(self, name: str, total: int) -> None:
        """Begin something of ``total`` parts; what was before is done."""
        if self.lines:
            print(name, file=sys.stderr, flush=True)
        if self.bar is not None:
            self.task = self.bar.add_task(name, facts="") if self.task is None else self.task
            self.bar.reset(self.task, description=name, total=total)

    def advance(self, parts: int = 1) -> None:
        """Some parts are done; threads may call it."""
        if self.bar is not None:
            self.bar.advance(self.task, parts)


class Passes(Protocol):
    """Where passes are run."""

    def start(self, folder: Path) -> AbstractContextManager[Workers]:
        """Workers that see the ``folder``, for as long as the context lasts."""
        ...


class Workers(Protocol):
    """Whoever runs passes."""

    @property
    def tables(self) -> int:
        """Sums that they hold at once in the memory of this process."""
        ...

    def sums(self, task: Pass, advance: Advance) -> Sums:
        """The sums of all partitions."""
        ...

    def pieces(self, task: Pass, take: Callable[[Any], None], advance: Advance) -> Sums:
        """Hand the piece of every partition to ``take``, in their order, and return the sums."""
        ...


@dataclass(frozen=True)
class Threads:
    """Threads of this process, each with a stretch of the partitions."""

    number: int

    def start(self, folder: Path) -> AbstractContextManager[Workers]:
        return nullcontext(self)

    @property
    def tables(self) -> int:
        return self.number

    def sums(self, task: Pass, advance: Advance) -> Sums:
        stretches = task.stretches(self.number)
        with ThreadPoolExecutor(len(stretches)) as pool:
            return reduce(task.combine, pool.map(partial(task, advance=advance), stretches))

    def pieces(self, task: Pass, take: Callable[[Any], None], advance: Advance) -> Sums:
        total: Sums | None = None
        for piece, sums in _in_order(task.piece, len(task), self.number):
            take(piece)
            total = sums if total is None else task.combine(total, sums)
            advance(1)
        assert total is not None
        return total


def added(total: Sums, more: Sums) -> Sums:
    """Sums of two stretches; arrays are added in place, but for one that is in both, to which was added already."""

    def plus(a: Any, b: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a + b
        return a if a is b else np.add(a, b, out=a)

    return tuple(map(plus, total, more))


def larger(total: Sums, more: Sums) -> Sums:
    """The larger of two."""
    return tuple(map(max, total, more))


def _in_order(function: Callable[[int], Any], size: int, threads: int) -> Iterator[Any]:
    """``function(0)``, ``function(1)``, ..., with as many at work as there are threads, and no more waiting."""
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(function, k) for k in range(min(threads, size))]
        for k in range(threads, size + threads):
            yield running.pop(0).result()
            if k < size:
                running.append(pool.submit(function, k))
