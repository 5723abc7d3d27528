"""The directed k-nearest-neighbour graph of annotators (section "annotator graph" of the TAIDTM paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from crowdwise.constraints import PositiveInt, check_value
from crowdwise.data.types import Floats, Ints, Mask
from crowdwise.errors import DataError
from crowdwise.graph._largest import by_blocks, places, reaching, row_counts
from crowdwise.graph.similarity import SIMILARITIES, Evidence, embed

if TYPE_CHECKING:
    from crowdwise.graph._largest import SparseMatrix

    # annotators (rows,) -> a new array (rows, R) of their similarities
    Rows: TypeAlias = Callable[[Ints], Floats]

DECIMALS = 12  # similarities that differ by rounding error only are ties, whatever the order of summation was


class Neighbours(NamedTuple):
    """Who is near whom, and how reliable that is."""

    graph: SparseMatrix
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops."""
    unrelated: float
    """Share of pairs of annotators whose similarity is 0."""
    arbitrary: float
    """Share of edges chosen by the tie rule alone, from others just as similar."""


def nearest(
    evidence: Evidence, k: int, similarity: str = "delta-cosine", *, block: int | None = None, device: str | None = None
) -> Neighbours:
    """The k annotators most similar to each, by any of `SIMILARITIES`; memory O(R (D + k)) and a block of rows.

    With a ``device`` of torch's, similarities that are inner products are searched there: ``"cuda"`` for very many annotators.

    >>> found = nearest(Evidence(np.array([[3.0, 4], [4, 3], [3, -4]])), k=1, similarity="cosine")
    >>> found.graph.indices.tolist(), found.unrelated.__round__(2), found.arbitrary
    ([1, 0, 1], 0.33, 0.0)
    """
    found = SIMILARITIES[similarity](evidence)
    if sparse.issparse(found):
        return _nearest(_rows(found), found.shape[0], k, block)
    return _nearest(Products(found), len(found), k, block, busy=np.flatnonzero(found.any(axis=1)), device=device)


def knn_graph(similarity: ArrayLike | sparse.sparray, k: int, *, block: int | None = None) -> SparseMatrix:
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops.

    Ties go to the annotators that follow i in number, cyclically: otherwise the smallest numbers would become everybody's
    neighbours. k is clipped to R - 1.

    Args:
        similarity: (R, R), dense or sparse (absent entries are 0).
        k: neighbours of each annotator; 50 in the paper's simulated crowds, 1 for LabelMe and Music.
        block: rows per block, which affects memory only; by default 2 million similarities are held.

    >>> knn_graph([[1, 0.96, -0.28], [0.96, 1, 0], [-0.28, 0, 1]], k=1).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    dense = not sparse.issparse(similarity)
    given: Any = np.asarray(similarity, dtype=np.float64) if dense else sparse.csr_array(similarity)  # type: ignore[arg-type]
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise DataError(f"a similarity must have shape (annotators, annotators), not {given.shape}")
    rows: Rows = (lambda chosen: given[chosen]) if dense else _rows(given)
    return _nearest(rows, given.shape[0], k, block).graph


def knn_from_heads(
    heads: ArrayLike,
    k: int,
    *,
    similarity: str = "cosine",
    global_head: ArrayLike | None = None,
    block: int | None = None,
) -> SparseMatrix:
    """:func:`knn_graph` of heads (R, D), without the (R, R) similarity matrix: memory O(R (D + k)) and a block of rows.

    ``similarity`` and ``global_head`` are those of :func:`crowdwise.graph.similarity.embed`.

    >>> knn_from_heads([[3, 4], [4, 3], [3, -4]], k=1).indices.tolist()
    [1, 0, 1]
    """
    vectors = embed(heads, global_head, similarity)
    return _nearest(Products(vectors), len(vectors), k, block).graph


@dataclass(frozen=True, eq=False)
class Products:
    """Similarities that are inner products of vectors (R, D)."""

    vectors: Floats

    def __call__(self, rows: Ints) -> Floats:
        return self.vectors[rows] @ self.vectors.T


def _rows(similarity: SparseMatrix) -> Rows:
    return lambda rows: similarity[rows].toarray()


def _nearest(
    rows: Rows, size: int, k: int, block: int | None, busy: Ints | None = None, device: str | None = None
) -> Neighbours:
    """``busy``: annotators that may be similar to somebody, by default all; nothing is computed for the others."""
    check_value("k", k, PositiveInt)
    k = min(k, size - 1)
    if k < 1:  # a single annotator has no neighbours
        return Neighbours(sparse.csr_array((size, size), dtype=np.float64), 0.0, 0.0)
    busy = np.arange(size) if busy is None else busy

    def choose(start: int, stop: int) -> tuple[int, int]:
        """Set the neighbours of a block; counts zero similarities, and edges chosen by the tie rule."""
        own = busy[start:stop]
        values = rows(own)
        if not np.isfinite(values.sum()):
            row = own[np.flatnonzero(~np.isfinite(values).all(axis=1))[0]]
            raise DataError(f"the similarities of annotator {row} are not finite")
        values[np.arange(len(own)), own] = -np.inf
        unrelated = row_counts(np.abs(values) <= 0.5 * 10.0**-DECIMALS)
        columns[own], arbitrary = _first(values, own, k, alone=unrelated == size - 1)
        return int(unrelated.sum()), arbitrary

    columns = _next(np.arange(size), k, size)
    idle = size - len(busy)
    counts = [(idle * (size - 1), k * idle if k < size - 1 else 0)]
    if device is not None and isinstance(rows, Products):
        from crowdwise.graph import _device

        for own, chosen, *found in _device.neighbours(rows.vectors, busy, k, DECIMALS, device, block):
            columns[own] = chosen
            counts.append((found[0], found[1]))
    else:
        counts += by_blocks(choose, size, block, len(busy))
    zeros, by_rule = np.sum(counts, axis=0).tolist()
    columns.sort(axis=1)
    starts = np.arange(0, columns.size + 1, k)
    graph: SparseMatrix = sparse.csr_array((np.ones(columns.size), columns.ravel(), starts), shape=(size, size))
    return Neighbours(graph, zeros / (size * (size - 1)), by_rule / columns.size)


def _next(own: Ints, k: int, size: int) -> Ints:
    """The k that follow each in number, cyclically, (len(own), k): neighbours of annotators similar to nobody."""
    return (own[:, None] + np.arange(1, k + 1)) % size


def _first(values: Floats, own: Ints, k: int, alone: Mask) -> tuple[Ints, int]:
    """The first k columns of each row, (rows, k), and how many of them the tie rule chose.

    Rows with few candidates are sorted; those with many, because of ties, are counted. In ``alone`` rows, all zeros, the
    next k come first.
    """
    size = values.shape[1]
    columns = _next(own, k, size)
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


def _by_sorting(values: Floats, own: Ints, k: int, reached: Mask) -> tuple[Ints, int]:
    row, column = places(reached)
    value = np.round(values[row, column], DECIMALS)
    order = np.lexsort(((column - own[row]) % values.shape[1], -value, row))
    first = np.searchsorted(row, np.arange(len(values)))
    kth = value[order[first + k - 1]]
    above, tied = np.bincount(row, value > kth[row]), np.bincount(row, value == kth[row])
    return column[order[first[:, None] + np.arange(k)]], int((k - above)[above + tied > k].sum())


def _by_counting(values: Floats, own: Ints, k: int, reached: Mask) -> tuple[Ints, int]:
    values = np.round(values, DECIMALS)
    kth = -np.partition(-values, k - 1, axis=1)[:, k - 1 : k]
    above, tied = values > kth, values == kth
    free = k - above.sum(axis=1, keepdims=True)  # places left for ties at the k-th value
    total = tied.sum(axis=1, keepdims=True)
    # the cyclic position of each tie, starting after the row's own annotator
    place = np.cumsum(tied, axis=1, dtype=np.int32)
    place -= place[np.arange(len(values)), own, None]
    place = np.where(place > 0, place, place + total)
    chosen = np.nonzero(above | (tied & (place <= free)))[1].reshape(-1, k)
    return chosen, int(free[total > free].sum())
