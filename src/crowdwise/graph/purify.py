"""Purifying the annotator graph, and normalising it for a graph convolution.

A low-rank approximation keeps what many neighbourhoods agree on, the groups, and drops single wrong edges: Entezari,
Al-Sayouri, Darvishzadeh, Papalexakis, "All you need is low (rank)", WSDM 2020, as used by TAIDTM.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from crowdwise.constraints import PositiveInt, check_value
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import DataError
from crowdwise.graph._largest import by_blocks, largest_triplets, places, reaching

if TYPE_CHECKING:
    from crowdwise.graph._largest import SparseMatrix

    Graph: TypeAlias = ArrayLike | sparse.sparray

Norm = Literal["ref", "sym_row", "row"]
DENSE_ROWS = 5000  # annotators up to which every entry of the purified graph is kept; beyond, the largest of each row
ROW_LIMIT = 256
GRAPH_LIMIT = 8_000_000  # entries of the purified graph beyond which rows keep fewer, but at least 64
NEGLIGIBLE = 1e-6
DECIMALS = 12  # entries that differ by rounding error only are equal


def purify(
    adjacency: Graph, rank: int = 5, *, skipped: Collection[int] = (), k: int | None = None, device: str | None = None
) -> SparseMatrix:
    """A* = clip(U_s Σ_s V_sᵀ, 0, 1) of the unweighted directed graph A, with self loops; sparse (R, R), weighted.

    The diagonal is *set* to 1 after the approximation, and skipped annotators form a clique (:func:`add_self_loops`).

    With k = 1 or fewer than 3 annotators, the graph is left as it is: all singular values of mutual pairs are 1, so any
    s of them could be kept and the result would depend on the LAPACK build.

    Entries below 1e-6 are dropped. Beyond 5,000 annotators a row keeps its 256 largest entries (beyond 31,250, fewer: 80
    with 100,000 annotators, at least 64), rescaled to its sum (a big group would otherwise fill R x R entries with tiny
    weights); up to there ``purify(A.T) == purify(A).T``.

    Args:
        adjacency: (R, R) kNN graph.
        rank: s, the number of singular triplets kept, at least the expected number of groups; R or more keep the graph.
        skipped: annotators with too few examples for a head of their own.
        k: neighbours of each annotator in ``adjacency``; by default the mean number of edges.
        device: torch's, ``"cuda"`` for instance, on which the rows of more than 5,000 annotators are formed.

    >>> group = np.ones((3, 3)) - np.eye(3)
    >>> purify(np.kron(np.eye(2), group), rank=2).toarray().round(3)[0].tolist()
    [1.0, 0.667, 0.667, 0.0, 0.0, 0.0]
    """
    graph = as_graph(adjacency)
    size = graph.shape[0]
    check_value("rank", rank, PositiveInt)
    if size < 3 or rank >= size or (graph.nnz / size if k is None else k) <= 1:
        return add_self_loops(graph, skipped)
    return add_self_loops(_low_rank(graph, rank, device), skipped)


def add_self_loops(adjacency: Graph, skipped: Collection[int] = ()) -> SparseMatrix:
    """The graph with its diagonal and all weights between skipped annotators set to 1: TAIDTM without purifying.

    >>> add_self_loops([[0, 1, 0], [0, 0, 1], [1, 0, 0]], skipped=[0, 2]).toarray().tolist()
    [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
    """
    graph = as_graph(adjacency)
    size = graph.shape[0]
    members = np.unique(np.asarray(list(skipped), dtype=np.int64))
    if members.size and not 0 <= members[0] <= members[-1] < size:
        wrong = members[0] if members[0] < 0 else members[-1]
        raise DataError(f"skipped annotator {wrong} is out of range: this graph has {size} annotators (0..{size - 1})")
    loops = sparse.eye_array(size, format="csr")
    fixed = sparse.csr_array(loops + _clique(members, size))
    pattern = fixed.sign()
    return sparse.csr_array(graph - graph.multiply(pattern) + fixed)  # set, not added: weights there are replaced


def normalise(adjacency: Graph, norm: Norm = "ref") -> SparseMatrix:
    """Â of a graph with self loops, (R, R).

    * ``ref``: A[i, j] / sqrt(d_i d_j) with *column* sums d (how often an annotator is chosen as a neighbour), as in
      TAIDTM's released code;
    * ``sym_row``: the same with row sums, as in Kipf and Welling;
    * ``row``: A[i, j] / (sum of row i), as in TAIDTM's theory; rows sum to 1.

    >>> normalise([[1, 1], [0, 1]], "row").toarray().tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    graph = as_graph(adjacency)
    check_value("norm", norm, Norm)
    degree: Floats = np.asarray(graph.sum(axis=0 if norm == "ref" else 1), dtype=np.float64).ravel()
    if (degree <= 0).any():
        annotator = int(np.flatnonzero(degree <= 0)[0])
        raise DataError(f"annotator {annotator} has degree {degree[annotator]:g}; add self loops before normalising")
    if norm == "row":
        return sparse.csr_array(sparse.diags_array(1 / degree) @ graph)
    scale = sparse.diags_array(1 / np.sqrt(degree))
    return sparse.csr_array(scale @ graph @ scale)


def as_graph(adjacency: Graph) -> SparseMatrix:
    """The graph, dense or sparse, as a checked CSR array in float64."""
    matrix: Any = adjacency if sparse.issparse(adjacency) else np.asarray(adjacency, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"an annotator graph must have shape (annotators, annotators), not {matrix.shape}")
    graph: SparseMatrix = sparse.csr_array(matrix, dtype=np.float64)
    if not np.isfinite(graph.data).all():
        raise DataError("the annotator graph has weights that are not finite")
    return graph


def _low_rank(graph: SparseMatrix, rank: int, device: str | None) -> SparseMatrix:
    size = graph.shape[0]
    device = device if size > DENSE_ROWS else None
    left, values, right = largest_triplets(graph, rank, device)
    if device is not None:
        from crowdwise.graph import _device

        found = _device.purified_rows(left * values, right, row_limit(size), NEGLIGIBLE, DECIMALS, device)
        weights, rows, columns = (np.concatenate(part) for part in zip(*found, strict=True))
        return sparse.csr_array((weights, columns, np.searchsorted(rows, np.arange(size + 1))), shape=(size, size))
    parts = by_blocks(lambda start, stop: _sparse_rows((left[start:stop] * values) @ right), size)
    return sparse.vstack(list(parts), "csr")


def _sparse_rows(values: Floats) -> SparseMatrix:
    """Rows of A*, (rows, R), clipped and without negligible entries."""
    np.clip(values, 0.0, 1.0, out=values)
    np.putmask(values, values < NEGLIGIBLE, 0.0)
    size = values.shape[1]
    if size <= DENSE_ROWS:
        return sparse.csr_array(values)
    limit = row_limit(size)
    row, column = places(reaching(values, limit, slack=10.0**-DECIMALS, least=NEGLIGIBLE))
    order = np.lexsort((-np.round(values[row, column], DECIMALS), row))  # of equal entries the first
    first = np.searchsorted(row, np.arange(len(values)))
    largest = order[np.arange(len(row)) - first[row] < limit]
    row, column = row[largest], column[largest]
    kept = np.bincount(row, values[row, column], minlength=len(values))
    scale = np.divide(values.sum(axis=1), kept, out=np.ones_like(kept), where=kept > 0)
    return sparse.csr_array((values[row, column] * scale[row], (row, column)), shape=values.shape)


def row_limit(size: int) -> int:
    """Entries kept in a row of the purified graph of very many annotators.

    >>> [row_limit(size) for size in (10_000, 100_000, 1_000_000)]
    [256, 80, 64]
    """
    return min(ROW_LIMIT, max(64, GRAPH_LIMIT // size))


def _clique(members: Ints, size: int) -> SparseMatrix:
    """Weight 1 between all different members; beyond ``DENSE_ROWS`` annotators and `row_limit` members, a ring.

    In the ring, every member is joined to the next `row_limit` ones, with weights that preserve row and column sums.
    """
    others = max(len(members) - 1, 0)
    reach = min(others, row_limit(size)) if size > DENSE_ROWS else others
    rows = np.repeat(np.arange(len(members)), reach)
    columns = (rows + np.tile(np.arange(1, reach + 1), len(members))) % max(len(members), 1)
    weights = np.full(len(rows), others / max(reach, 1))
    return sparse.csr_array((weights, (members[rows], members[columns])), shape=(size, size))
