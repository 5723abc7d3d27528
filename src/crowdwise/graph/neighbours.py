"""The directed k-nearest-neighbour graph of annotators (section "annotator graph" of the TAIDTM paper)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from crowdwise.errors import ConfigError, DataError
from crowdwise.graph.similarity import SIMILARITIES, Evidence, embed

if TYPE_CHECKING:
    from crowdwise.graph.similarity import FloatArray

DECIMALS = 12  # similarities that differ by rounding error only are ties, whatever the order of summation was


class Neighbours(NamedTuple):
    """Who is near to whom, and how far that can be relied on."""

    graph: sparse.csr_array[np.float64]
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops."""
    unrelated: float
    """Share of pairs of annotators whose similarity is 0."""
    arbitrary: float
    """Share of edges that only the tie rule chose, though others were as similar."""


def nearest(evidence: Evidence, k: int, similarity: str = "delta-cosine", *, block: int = 1024) -> Neighbours:
    """The k annotators most like each by any of `SIMILARITIES`; memory O(R (D + block)).

    >>> found = nearest(Evidence(np.array([[3.0, 4], [4, 3], [3, -4]])), k=1, similarity="cosine")
    >>> found.graph.indices.tolist(), found.unrelated.__round__(2), found.arbitrary
    ([1, 0, 1], 0.33, 0.0)
    """
    found = SIMILARITIES[similarity](evidence)
    return _nearest(_rows(found, block) if sparse.issparse(found) else _products(found, block), found.shape[0], k)


def knn_graph(similarity: ArrayLike | sparse.sparray, k: int, *, block: int = 1024) -> sparse.csr_array[np.float64]:
    """A (R, R) with A[i, j] = 1 if j is among the k annotators most similar to i; no self loops.

    Among equally similar annotators those that follow i in number come first, and after the last one the first again: the
    smallest numbers would become everybody's neighbours. k is clipped to R - 1.

    Args:
        similarity: (R, R), dense or sparse (absent entries are 0).
        k: neighbours of each annotator; 50 in the paper's simulated crowds, 1 for LabelMe and Music.
        block: rows treated at a time; affects memory only.

    >>> knn_graph([[1, 0.96, -0.28], [0.96, 1, 0], [-0.28, 0, 1]], k=1).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if sparse.issparse(similarity):
        rows = sparse.csr_array(similarity)
        _check_square(rows.shape)
        return _nearest(_rows(rows, block), rows.shape[0], k).graph
    dense = np.asarray(similarity, dtype=np.float64)
    _check_square(dense.shape)
    return _nearest((dense[start : start + block] for start in range(0, len(dense), block)), len(dense), k).graph


def knn_from_heads(
    heads: ArrayLike, k: int, *, similarity: str = "cosine", global_head: ArrayLike | None = None, block: int = 1024
) -> sparse.csr_array[np.float64]:
    """:func:`knn_graph` of heads (R, D), without the (R, R) similarity matrix: memory O(R (D + block)).

    ``similarity`` and ``global_head`` are those of :func:`crowdwise.graph.similarity.embed`.

    >>> knn_from_heads([[3, 4], [4, 3], [3, -4]], k=1).indices.tolist()
    [1, 0, 1]
    """
    vectors = embed(heads, global_head, similarity)
    return _nearest(_products(vectors, block), len(vectors), k).graph


def _rows(similarity: sparse.csr_array[np.float64], block: int) -> Iterable[FloatArray]:
    return (similarity[start : start + block].toarray() for start in range(0, similarity.shape[0], block))


def _products(vectors: FloatArray, block: int) -> Iterable[FloatArray]:
    return (vectors[start : start + block] @ vectors.T for start in range(0, len(vectors), block))


def _nearest(blocks: Iterable[FloatArray], size: int, k: int) -> Neighbours:
    if k < 1:
        raise ConfigError(f"k must be at least 1 neighbour, not {k}")
    k = min(k, size - 1)
    if k < 1:  # one annotator has nobody to be near to
        return Neighbours(sparse.csr_array((size, size), dtype=np.float64), 0.0, 0.0)
    chosen: list[np.ndarray] = []
    start = zeros = by_rule = 0
    for values in blocks:
        values = np.round(values, DECIMALS)
        local = np.arange(len(values))
        if not np.isfinite(values).all():
            row = start + int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise DataError(f"the similarities of annotator {row} are not finite")
        values[local, start + local] = -np.inf
        kth = -np.partition(-values, k - 1, axis=1)[:, k - 1 : k]
        above, tied = values > kth, values == kth
        free = k - above.sum(axis=1, keepdims=True)  # places left for those tied at the k-th value
        total = tied.sum(axis=1, keepdims=True)
        zeros += int((values == 0).sum())
        by_rule += int(free[total > free].sum())
        # the place of each tied one in a round that starts after the row's own annotator
        place = np.cumsum(tied, axis=1)
        place -= place[local, start + local, None]
        place = np.where(place > 0, place, place + total)
        chosen.append(np.nonzero(above | (tied & (place <= free)))[1])
        start += len(values)
    columns = np.concatenate(chosen)
    graph = sparse.csr_array((np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, k)), shape=(size, size))
    return Neighbours(graph, zeros / (size * (size - 1)), by_rule / len(columns))


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"a similarity must have shape (annotators, annotators), not {shape}")
