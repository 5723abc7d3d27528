"""The directed k-nearest-neighbour graph of annotators (section "annotator graph" of the TAIDTM paper)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from crowdwise.errors import ConfigError, DataError
from crowdwise.graph._largest import by_blocks, places, reaching, row_counts
from crowdwise.graph.similarity import SIMILARITIES, Evidence, embed

if TYPE_CHECKING:
    from crowdwise.graph.similarity import FloatArray

    Rows: TypeAlias = Callable[[int, int], FloatArray]  # similarities (stop - start, R) of rows start to stop, to write on

DECIMALS = 12  # similarities that differ by rounding error only are ties, whatever the order of summation was


class Neighbours(NamedTuple):
    """Who is near to whom, and how far that can be relied on."""

    graph: sparse.csr_array[np.float64]
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops."""
    unrelated: float
    """Share of pairs of annotators whose similarity is 0."""
    arbitrary: float
    """Share of edges that only the tie rule chose, though others were as similar."""


def nearest(evidence: Evidence, k: int, similarity: str = "delta-cosine", *, block: int | None = None) -> Neighbours:
    """The k annotators most like each by any of `SIMILARITIES`; memory O(R (D + k)) and a block of rows.

    >>> found = nearest(Evidence(np.array([[3.0, 4], [4, 3], [3, -4]])), k=1, similarity="cosine")
    >>> found.graph.indices.tolist(), found.unrelated.__round__(2), found.arbitrary
    ([1, 0, 1], 0.33, 0.0)
    """
    found = SIMILARITIES[similarity](evidence)
    return _nearest(_rows(found) if sparse.issparse(found) else _products(found), found.shape[0], k, block)


def knn_graph(
    similarity: ArrayLike | sparse.sparray, k: int, *, block: int | None = None
) -> sparse.csr_array[np.float64]:
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops.

    Among equally similar annotators those that follow i in number come first, and after the last one the first again: the
    smallest numbers would become everybody's neighbours. k is clipped to R - 1.

    Args:
        similarity: (R, R), dense or sparse (absent entries are 0).
        k: neighbours of each annotator; 50 in the paper's simulated crowds, 1 for LabelMe and Music.
        block: rows treated at a time, affects memory only; by default 2 million similarities are held.

    >>> knn_graph([[1, 0.96, -0.28], [0.96, 1, 0], [-0.28, 0, 1]], k=1).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if sparse.issparse(similarity):
        rows = sparse.csr_array(similarity)
        _check_square(rows.shape)
        return _nearest(_rows(rows), rows.shape[0], k, block).graph
    dense = np.asarray(similarity, dtype=np.float64)
    _check_square(dense.shape)
    return _nearest(lambda start, stop: dense[start:stop].copy(), len(dense), k, block).graph


def knn_from_heads(
    heads: ArrayLike,
    k: int,
    *,
    similarity: str = "cosine",
    global_head: ArrayLike | None = None,
    block: int | None = None,
) -> sparse.csr_array[np.float64]:
    """:func:`knn_graph` of heads (R, D), without the (R, R) similarity matrix: memory O(R (D + k)) and a block of rows.

    ``similarity`` and ``global_head`` are those of :func:`crowdwise.graph.similarity.embed`.

    >>> knn_from_heads([[3, 4], [4, 3], [3, -4]], k=1).indices.tolist()
    [1, 0, 1]
    """
    vectors = embed(heads, global_head, similarity)
    return _nearest(_products(vectors), len(vectors), k, block).graph


def _rows(similarity: sparse.csr_array[np.float64]) -> Rows:
    return lambda start, stop: similarity[start:stop].toarray()


def _products(vectors: FloatArray) -> Rows:
    return lambda start, stop: vectors[start:stop] @ vectors.T


def _nearest(rows: Rows, size: int, k: int, block: int | None) -> Neighbours:
    if k < 1:
        raise ConfigError(f"k must be at least 1 neighbour, not {k}")
    k = min(k, size - 1)
    if k < 1:  # one annotator has nobody to be near to
        return Neighbours(sparse.csr_array((size, size), dtype=np.float64), 0.0, 0.0)

    def chosen(start: int, stop: int) -> tuple[NDArray[np.int64], int, int]:
        """Columns of the neighbours (rows * k,), zeros among the similarities, and edges that only the tie rule chose."""
        values = rows(start, stop)
        if not np.isfinite(values.sum()):
            row = start + int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise DataError(f"the similarities of annotator {row} are not finite")
        own = np.arange(start, stop)
        values[own - start, own] = -np.inf
        unrelated = row_counts(np.abs(values) <= 0.5 * 10.0**-DECIMALS)
        columns, arbitrary = _first(values, own, k, alone=unrelated == size - 1)
        return np.sort(columns, axis=1).ravel(), int(unrelated.sum()), arbitrary

    parts, zeros, by_rule = zip(*by_blocks(chosen, size, block), strict=True)
    columns = np.concatenate(parts)
    graph: sparse.csr_array[np.float64]
    graph = sparse.csr_array((np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, k)), shape=(size, size))
    return Neighbours(graph, sum(zeros) / (size * (size - 1)), sum(by_rule) / len(columns))


def _first(
    values: FloatArray, own: NDArray[np.int64], k: int, alone: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int]:
    """The k columns that come first in each row, (rows, k), and how many of them only the tie rule chose.

    Rows are sorted where few columns can be among the first k, and counted through where ties leave many. ``alone`` are
    rows of zeros: there the next k come first.
    """
    size = values.shape[1]
    columns = (own[:, None] + np.arange(1, k + 1)) % size
    arbitrary = k * int(alone.sum()) if k < size - 1 else 0
    reached = reaching(values, k, slack=10.0**-DECIMALS)
    few = row_counts(reached) <= 8 * k
    for rows, choose in ((few & ~alone, _by_sorting), (~few & ~alone, _by_counting)):
        if rows.all():
            columns, arbitrary = choose(values, own, k, reached)
        elif rows.any():
            columns[rows], by_rule = choose(values[rows], own[rows], k, reached[rows])
            arbitrary += by_rule
    return columns, arbitrary


def _by_sorting(
    values: FloatArray, own: NDArray[np.int64], k: int, reached: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int]:
    row, column = places(reached)
    value = np.round(values[row, column], DECIMALS)
    order = np.lexsort(((column - own[row]) % values.shape[1], -value, row))
    first = np.searchsorted(row, np.arange(len(values)))
    kth = value[order[first + k - 1]]
    above, tied = np.bincount(row, value > kth[row]), np.bincount(row, value == kth[row])
    return column[order[first[:, None] + np.arange(k)]], int((k - above)[above + tied > k].sum())


def _by_counting(
    values: FloatArray, own: NDArray[np.int64], k: int, reached: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int]:
    values = np.round(values, DECIMALS)
    kth = -np.partition(-values, k - 1, axis=1)[:, k - 1 : k]
    above, tied = values > kth, values == kth
    free = k - above.sum(axis=1, keepdims=True)  # places left for those tied at the k-th value
    total = tied.sum(axis=1, keepdims=True)
    # the place of each tied one in a round that starts after the row's own annotator
    place = np.cumsum(tied, axis=1, dtype=np.int32)
    place -= place[np.arange(len(values)), own, None]
    place = np.where(place > 0, place, place + total)
    chosen = np.nonzero(above | (tied & (place <= free)))[1].reshape(-1, k)
    return chosen, int(free[total > free].sum())


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"a similarity must have shape (annotators, annotators), not {shape}")
