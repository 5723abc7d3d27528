"""The largest entries of long rows without sorting, matrices (R, R) in blocks of rows, and largest singular triplets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import svds

from crowdwise.data.types import Floats, Ints, Mask

if TYPE_CHECKING:
    SparseMatrix: TypeAlias = sparse.csr_array[np.float64]

from crowdwise.system import n_cores

ENTRIES = 2_000_000  # of a matrix (R, R) that a thread holds at a time: few enough for the processor's caches
THREADS = 8  # at most: each holds a block and some copies of it
DENSE_SVD = 1000  # up to this size LAPACK's full decomposition is quick and exact; beyond, Lanczos is used

T = TypeVar("T")


def by_blocks(
    function: Callable[[int, int], T], size: int, block: int | None = None, rows: int | None = None
) -> Iterator[T]:
    """``function(start, stop)`` for all blocks of rows of a matrix (rows, size), in order; several run at a time.

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
    with ThreadPoolExecutor(threads) as pool:  # numpy releases the interpreter's lock
        yield from pool.map(lambda start: function(start, min(start + step, rows)), starts)


def rows_at_once(size: int) -> int:
    """Rows of a matrix (size, size) in a block of about `ENTRIES`."""
    return max(1, ENTRIES // max(size, 1))


def reaching(values: Floats, k: int, slack: float = 0.0, least: float = -np.inf) -> Mask:
    """The entries of each row that may be among its k largest: all of those, and usually few others.

    The row is split into many groups. At least k entries reach the k-th largest of the groups' maxima, so it is a lower
    bound of the k-th largest entry. ``slack`` lowers this bound; entries below ``least`` are left out.

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
    reached: Mask = values >= np.maximum(bound - slack, least)
    return reached


def places(mask: Mask) -> tuple[Ints, Ints]:
    """Rows and columns of the true entries: much faster than ``np.nonzero`` if there are few.

    >>> [part.tolist() for part in places(np.array([[False, True], [True, False]]))]
    [[0, 1], [1, 0]]
    """
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column


def row_counts(mask: Mask) -> Ints:
    """Number of true entries in each row: ``np.count_nonzero`` is slow along an axis.

    >>> row_counts(np.array([[False, True], [True, True]])).tolist()
    [1, 2]
    """
    return np.fromiter(map(np.count_nonzero, mask), np.int64, len(mask))


def largest_triplets(matrix: Any, rank: int, device: str | None = None) -> tuple[Floats, Floats, Floats]:
    """The ``rank`` largest singular triplets U (n, rank), S (rank,), V (rank, m) of a matrix, dense or sparse, unordered.

    Products with a large sparse matrix are computed on a ``device`` of torch's, if one is given.
    """
    smaller = min(matrix.shape)
    if smaller <= DENSE_SVD or rank > smaller // 2:
        dense = matrix.toarray() if sparse.issparse(matrix) else matrix  # type: ignore[attr-defined]
        left, values, right = linalg.svd(dense, full_matrices=False)
        return left[:, :rank], values[:rank], right[:rank]
    if device is not None and sparse.issparse(matrix):
        from crowdwise.graph._device import operator

        matrix = operator(matrix, device)
    # its own start vector makes Lanczos deterministic (a constant one may lie in an invariant subspace)
    triplets: Any = svds(matrix, k=rank, v0=np.random.default_rng(0).standard_normal(smaller))
    return triplets[0], triplets[1], triplets[2]
