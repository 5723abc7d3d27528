"""The largest entries of long rows, without sorting the rows, and matrices (R, R) a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crowdwise.system import n_cores

ENTRIES = 2_000_000  # of a matrix (R, R) that a thread holds at a time: few enough for the processor's caches
THREADS = 8  # at most: each holds a block, and some copies of it

T = TypeVar("T")


def by_blocks(
    function: Callable[[int, int], T], size: int, block: int | None = None, rows: int | None = None
) -> Iterator[T]:
    """``function(start, stop)`` of all stretches of rows of a matrix (rows, size), in their order; several at a time.

    >>> list(by_blocks(lambda start, stop: (start, stop), size=5, block=2))
    [(0, 2), (2, 4), (4, 5)]
    """
    step = block or rows_at_once(size)
    rows = size if rows is None else rows
    starts = range(0, rows, step)
    threads = min(THREADS, n_cores(), len(starts))
    if threads <= 1:
        yield from (function(start, min(start + step, rows)) for start in starts)
        return
    with ThreadPoolExecutor(threads) as pool:  # numpy works without the interpreter's lock
        yield from pool.map(lambda start: function(start, min(start + step, rows)), starts)


def rows_at_once(size: int) -> int:
    """How many rows of a matrix (size, size) make a block of about `ENTRIES`."""
    return max(1, ENTRIES // max(size, 1))


def reaching(values: NDArray[np.float64], k: int, slack: float = 0.0, least: float = -np.inf) -> NDArray[np.bool_]:
    """The entries of each row that may be among its k largest: all of these, and usually few others.

    The row is dealt out to many groups. The k-th largest of the groups' maxima is reached by k entries at least, so that
    the k-th largest entry is not below it. ``slack`` lowers this bound; entries below ``least`` are left out.

    >>> reaching(np.array([[3.0, 1.0, 2.0, 0.0]]), k=2).tolist()
    [[True, False, True, False]]
    """
    rows, size = values.shape
    groups = 8 * k
    if size >= 4 * groups:
        members = size // groups
        maxima = values[:, : members * groups].reshape(rows, members, groups).max(axis=1)
    else:
        maxima = values
    bound = np.partition(maxima, maxima.shape[1] - k, axis=1)[:, maxima.shape[1] - k, None]
    reached: NDArray[np.bool_] = values >= np.maximum(bound - slack, least)
    return reached


def places(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of what is true: ``np.nonzero`` of a matrix, many times as fast where little is.

    >>> [part.tolist() for part in places(np.array([[False, True], [True, False]]))]
    [[0, 1], [1, 0]]
    """
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column


def row_counts(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How much of each row is true: ``np.count_nonzero`` by rows, which is slow along an axis.

    >>> row_counts(np.array([[False, True], [True, True]])).tolist()
    [1, 2]
    """
    return np.fromiter(map(np.count_nonzero, mask), np.int64, len(mask))
