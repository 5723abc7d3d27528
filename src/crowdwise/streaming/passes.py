"""Passes: a question is put to the partitions of a store one by one, and their answers are added up.

`Threads` of this process run them, or the workers of a cluster (`crowdwise.cluster.RayPasses`). Queries are at the top
level of a module and leave their arguments alone, so that any question can be put anywhere, and again.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.bayes_kernels import GladStep
from crowdwise.aggregation.core.crowd import Query
from crowdwise.aggregation.core.kernels import Step
from crowdwise.progress import ProgressDisplay
from crowdwise.streaming.store import Part, Store

IN_PLACE = kernels.em_step, kernels.vote_step, kernels.confusion_counts  # can add to the first of the sums so far

Sums = tuple[Any, ...]  # arrays and numbers that are added up over partitions, and lists that are strung together
Advance = Callable[[int], None]  # is told how many more partitions are done
Cells = tuple[npt.NDArray[np.uint32], tuple[int, int]]  # numbers in place of cells, and the shape of a table of them


@dataclass(frozen=True, eq=False)
class Question:
    """A query and its arguments: the rows of an array over instances, for one partition at a time."""

    query: Query
    arguments: tuple[Any, ...] = ()  # of which questions are answered first
    by_instance: tuple[npt.NDArray[Any], ...] = ()  # further arguments (n,), of which a partition gets its own rows
    cells: Cells | None = None

    def ask(self, part: Part, **options: Any) -> Any:
        """The answer of a part."""
        layout = part.layout if self.cells is None else kernels.renumbered(part.layout, *self.cells)
        values = [value.of(part) if isinstance(value, Question) else value for value in self.arguments]
        return self.query(layout, *values, *(rows[part.start : part.stop] for rows in self.by_instance), **options)

    def sums(self, part: Part, total: Sums | None) -> Sums:
        """What the answer of a part adds to the sums so far; a large table is added in place.

        That is all of it but arrays over instances, which are left out or, in lists, strung together.
        """
        table = total[0] if total is not None and self.query in IN_PLACE else None
        answer = self.ask(part) if table is None else self.ask(part, onto=table)
        if isinstance(answer, GladStep):
            return answer.log_likelihood, answer.by_ability, [answer.by_easiness]
        found = answer[1:] if isinstance(answer, Step) else answer if isinstance(answer, tuple) else (answer,)
        return found if table is None else (table, *found[1:])

    def of(self, part: Part) -> Any:
        """The rows of a part; those of a step are its posterior."""
        answer = self.ask(part)
        return answer.posterior if isinstance(answer, Step | GladStep) else answer


@dataclass(frozen=True)
class Pass:
    """A question to all partitions, and how their answers are put together."""

    store: Store
    question: Question
    combine: Callable[[Sums, Sums], Sums]

    def __len__(self) -> int:
        return len(self.store)

    def __call__(self, partitions: Sequence[int], advance: Advance | None = None) -> Sums:
        """The sums of some partitions."""
        total: Sums | None = None
        for number in partitions:
            found = self.question.sums(self.store.load(number), total)
            total = found if total is None else self.combine(total, found)
            if advance is not None:
                advance(1)
        assert total is not None
        return total

    def piece(self, number: int) -> tuple[Any, Sums]:
        """The answer of one partition, where that is a piece and sums."""
        found: tuple[Any, Sums] = self.question.ask(self.store.load(number))
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
        total, numbers = None, iter(range(len(task)))
        with ThreadPoolExecutor(self.number) as pool:  # as many at work as there are threads, and no more waiting
            running = deque(pool.submit(task.piece, number) for number in islice(numbers, self.number))
            while running:
                piece, sums = running.popleft().result()
                take(piece)
                total = sums if total is None else task.combine(total, sums)
                advance(1)
                running.extend(pool.submit(task.piece, number) for number in islice(numbers, 1))
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
