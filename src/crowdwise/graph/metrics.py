"""How good an annotator graph is if the true groups are known, and which groups it suggests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

from crowdwise.data.types import Floats, Ints, Mask, RandomState
from crowdwise.errors import ConfigError, DataError
from crowdwise.graph._largest import DENSE_SVD
from crowdwise.graph.purify import as_graph

if TYPE_CHECKING:
    from crowdwise.graph._largest import SparseMatrix
    from crowdwise.graph.purify import Graph


class EdgePrecision(NamedTuple):
    """Share of edges inside a group: mean and minimum over annotators with edges, and over all edges."""

    mean: float
    minimum: float
    overall: float


def edge_precision(adjacency: Graph, groups: ArrayLike, threshold: float = 0.1) -> EdgePrecision:
    """Precision of the edges, i.e. of the entries above ``threshold`` without self loops; NaN if there are none.

    >>> edge_precision([[0, 1, 1], [1, 0, 0], [0, 1, 0]], groups=[0, 0, 1])
    EdgePrecision(mean=0.5, minimum=0.0, overall=0.5)
    """
    rows, _, same = _edges(adjacency, groups, threshold)
    if not len(rows):
        return EdgePrecision(float("nan"), float("nan"), float("nan"))
    counts = np.bincount(rows)
    shares = (np.bincount(rows, weights=same)[counts > 0] / counts[counts > 0]).tolist()
    return EdgePrecision(sum(shares) / len(shares), min(shares), float(np.mean(same)))


def neighbourhood_recall(adjacency: Graph, groups: ArrayLike, threshold: float = 0.1) -> float:
    """Mean share of an annotator's group mates among its neighbours (entries above ``threshold``).

    Annotators alone in their group are left out; NaN if all are. A kNN graph reaches at most k / (group size - 1).

    >>> neighbourhood_recall([[0, 1, 1], [1, 0, 0], [0, 1, 0]], groups=[0, 0, 0])
    0.6666666666666666
    """
    rows, membership, same = _edges(adjacency, groups, threshold)
    mates = np.bincount(membership)[membership] - 1
    if not mates.any():
        return float("nan")
    found = np.bincount(rows, weights=same, minlength=len(membership))
    return float(np.mean(found[mates > 0] / mates[mates > 0]))


def found_groups(
    adjacency: Graph, n_groups: int | None = None, random_state: RandomState = 0, *, max_groups: int = 20
) -> Ints:
    """Group of each annotator, (R,), by spectral clustering of the symmetrised graph, numbered by first member.

    Ng, Jordan, Weiss, "On spectral clustering", NIPS 2001: k-means on the unit rows of the first eigenvectors of the
    normalised Laplacian.

    Args:
        adjacency: (R, R); self loops are ignored.
        n_groups: number of groups; None takes the widest gap among the smallest ``max_groups`` + 1 eigenvalues.
        random_state: of k-means.
        max_groups: the largest number of groups to consider.

    >>> found_groups(np.kron(np.eye(2), np.ones((3, 3)))).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    from sklearn.cluster import KMeans

    graph = as_graph(adjacency)
    size = graph.shape[0]
    if n_groups is not None and not 1 <= n_groups <= size:
        raise ConfigError(f"n_groups must be between 1 and the number of annotators, {size}, not {n_groups}")
    if size == 0 or n_groups == size:
        return np.arange(size)
    wanted = min(n_groups or max_groups + 1, size)
    values, vectors = _smallest_eigenpairs(graph, wanted)
    if n_groups is None:
        if size <= max_groups:  # a graph without edges has R groups: the last eigenvalue needs a gap too
            values = np.append(values, 1.0)
        n_groups = int(np.argmax(np.diff(values).round(9))) + 1
    if n_groups == 1:
        return np.zeros(size, dtype=np.int64)
    coordinates = vectors[:, :n_groups]
    norms = np.linalg.norm(coordinates, axis=1, keepdims=True)
    seed = int(np.random.default_rng(random_state).integers(2**31))
    kmeans = KMeans(n_groups, n_init=10, random_state=seed)
    groups = kmeans.fit_predict(coordinates / np.where(norms > 0, norms, 1.0))
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def adjusted_rand(first: ArrayLike, second: ArrayLike) -> float:
    """Adjusted Rand index of two groupings of the same annotators: 1 if equal up to names, about 0 if unrelated.

    >>> adjusted_rand([0, 0, 1, 1], [5, 5, 2, 2])
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(first), np.asarray(second)))


def _edges(adjacency: Graph, groups: ArrayLike, threshold: float) -> tuple[Ints, Ints, Mask]:
    """Row of each edge, group number of each annotator, and whether each edge stays inside a group."""
    graph = as_graph(adjacency)
    names = np.asarray(groups)
    if names.shape != (graph.shape[0],):
        raise DataError(f"groups must have one entry per annotator, ({graph.shape[0]},), not {names.shape}")
    membership = np.unique(names, return_inverse=True)[1].astype(np.int64)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    edge = (graph.data > threshold) & (rows != graph.indices)
    rows = rows[edge]
    return rows, membership, membership[rows] == membership[graph.indices[edge]]


def _smallest_eigenpairs(graph: SparseMatrix, count: int) -> tuple[Floats, Floats]:
    """Of the Laplacian I - D^-1/2 W D^-1/2, W = (A + Aᵀ)/2 without self loops; 0 for isolated annotators."""
    size = graph.shape[0]
    off_diagonal = graph - sparse.diags_array(graph.diagonal())
    weights = sparse.csr_array((off_diagonal + off_diagonal.T) / 2)
    degree: Floats = np.asarray(weights.sum(axis=1)).ravel()
    isolated = (degree <= 0).astype(np.float64)
    scale = sparse.diags_array(1 / np.sqrt(degree + isolated))
    affinity: SparseMatrix = sparse.csr_array(scale @ weights @ scale + sparse.diags_array(isolated))
    if size <= DENSE_SVD or count > size // 2:
        values, vectors = linalg.eigh(affinity.toarray(), subset_by_index=(size - count, size - 1))
    else:
        start = np.random.default_rng(0).standard_normal(size)
        basis = min(size, max(20, 4 * count))  # large: the eigenvalues beyond the groups are close together
        values, vectors = eigsh(affinity, k=count, which="LA", tol=1e-3, ncv=basis, v0=start)
    order = np.argsort(-values)
    return 1.0 - values[order], vectors[:, order]
