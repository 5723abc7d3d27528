"""The largest entries of long rows, without sorting the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ENTRIES = 2_000_000  # of a matrix (R, R) that are held at a time: few enough for the processor's caches


def rows_at_once(size: int) -> int:
    """How many rows of a matrix (size, size) make a block of about `ENTRIES`."""
    return max(1, ENTRIES // max(size, 1))


def reaching(values: NDArray[np.float64], k: int, slack: float = 0.0) -> NDArray[np.bool_]:
    """The entries of each row that may be among its k largest: all of these, and usually few others.

    The row is dealt out to many groups. The k-th largest of the groups' maxima is reached by k entries at least, so that
    the k-th largest entry is not below it. ``slack`` lowers this bound.

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
    reached: NDArray[np.bool_] = values >= bound - slack
    return reached


def places(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of what is true: ``np.nonzero`` of a matrix, many times as fast where little is.

    >>> [part.tolist() for part in places(np.array([[False, True], [True, False]]))]
    [[0, 1], [1, 0]]
    """
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column
