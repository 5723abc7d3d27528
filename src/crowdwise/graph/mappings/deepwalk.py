"""DeepWalk: annotators as words, random walks on the annotator graph as sentences."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import PositiveInt, checked
from crowdwise.graph.mappings.base import MAPPINGS, MappedHeads
from crowdwise.graph.purify import DENSE_SVD, as_graph

FloatArray: TypeAlias = NDArray[np.float64]


@MAPPINGS.register("deepwalk")
class DeepWalkHeads(MappedHeads):
    """Heads from embeddings by random walks (Perozzi, Al-Rfou, Skiena, KDD 2014), through Linear, ReLU and Linear.

    The embedding e_j is constant; H_bar = ReLU(first(e)), and the bias of the second linear layer is ``residual``: zero at
    the start unless it is given.
    """

    embedding: Tensor

    def __init__(
        self, embedding: Tensor, width: int, n_classes: int, *, hidden: int = 64, residual: Tensor | None = None
    ) -> None:
        """``embedding`` is (R, dimension)."""
        bias = torch.zeros(width + 1, n_classes, n_classes) if residual is None else residual
        super().__init__(len(embedding), hidden, width, n_classes, bias)
        self.register_buffer("embedding", embedding)
        self.first = nn.Linear(embedding.shape[1], hidden)

    @classmethod
    def from_graph(
        cls,
        graph: sp.csr_array,
        width: int,
        n_classes: int,
        *,
        hidden: int = 64,
        residual: Tensor | None = None,
        **walks: Any,
    ) -> Self:
        """``walks`` are arguments of `walk_embedding`."""
        seed = int(torch.randint(2**62, ()))  # from torch's generator, as the starting values of any module
        embedding = walk_embedding(graph, random_state=seed, **walks)
        return cls(torch.from_numpy(embedding).float(), width, n_classes, hidden=hidden, residual=residual)

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        hidden, d, n_classes, _ = tensors["last"].shape
        return cls(tensors["embedding"], d - 1, n_classes, hidden=hidden, residual=tensors["residual"])

    def hidden(self) -> Tensor:
        return F.relu(self.first(self.embedding))


@checked
def walk_embedding(
    graph: sp.csr_array,
    *,
    dimension: PositiveInt = 64,
    walks: PositiveInt = 80,
    length: PositiveInt = 40,
    window: PositiveInt = 10,
    random_state: int | np.random.Generator = 0,
) -> FloatArray:
    """Embedding (R, min(dimension, R)) of annotators that random walks visit together.

    Skip-gram factorises a shifted matrix of pointwise mutual information (Levy & Goldberg, NIPS 2014); here its positive
    part is factorised directly: U sqrt(S) of the largest singular triplets, scaled to a mean squared length of
    ``dimension``. An annotator that walks with nobody gets a random vector of that length, so that it learns alone.

    Args:
        graph: (R, R) weights; self loops are left out.
        dimension: length of the embedding.
        walks: walks that start at each annotator.
        length: annotators on a walk.
        window: annotators on a walk at most this far apart occur together.
        random_state: of the walks.
    """
    rng = np.random.default_rng(random_state)
    weights = as_graph(graph)
    weights = sp.csr_array(weights - sp.diags_array(weights.diagonal()))
    weights.eliminate_zeros()
    size = weights.shape[0]
    counts = sp.csr_array((size, size), dtype=np.float64)
    for _ in range(walks):
        counts = counts + cooccurrences(random_walks(weights, length, rng), window, size)
    information = positive_information(counts)
    rank = min(dimension, size)
    if size <= DENSE_SVD or rank > size // 2:
        left, values, _ = linalg.svd(information.toarray())
    else:  # a start vector of its own makes Lanczos deterministic
        triplets: Any = svds(information, k=rank, v0=np.random.default_rng(0).standard_normal(size))
        left, values = triplets[0], triplets[1]
    embedding = left[:, :rank] * np.sqrt(values[:rank])
    alone = np.diff(information.indptr) == 0
    embedding[~alone] *= np.sqrt(dimension * np.sum(~alone)) / max(float(np.linalg.norm(embedding[~alone])), 1e-12)
    embedding[alone] = rng.standard_normal((int(np.sum(alone)), rank)) * np.sqrt(dimension / rank)
    return np.asarray(embedding, dtype=np.float64)


def random_walks(weights: sp.csr_array, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A walk from every annotator, (R, length): the next is drawn in proportion to a row's weights; -1 after a dead end.

    >>> ring = sp.csr_array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]])
    >>> random_walks(ring, 4, np.random.default_rng(0)).tolist()
    [[0, 1, 2, -1], [1, 2, -1, -1], [2, -1, -1, -1]]
    """
    size = weights.shape[0]
    degree = np.diff(weights.indptr)
    # each row's weights laid out on the interval [row, row + 1): one search finds the next step of all walks
    running = np.concatenate([[0.0], np.cumsum(weights.data)])
    start, total = running[weights.indptr[:-1]], np.diff(running[weights.indptr])
    rows = np.repeat(np.arange(size), degree)
    borders = rows + (running[1:] - start[rows]) / total[rows]
    path = np.full((size, length), -1, dtype=np.int64)
    current = np.arange(size)
    for step in range(length):
        path[:, step] = current
        moving = np.flatnonzero((current >= 0) & (degree[current] > 0))
        at = current[moving]
        edge = np.searchsorted(borders, at + rng.random(len(at)), side="right")
        edge = np.clip(edge, weights.indptr[at], weights.indptr[at + 1] - 1)  # against rounding at the borders
        current = np.full(size, -1, dtype=np.int64)
        current[moving] = weights.indices[edge]
    return path


def cooccurrences(path: NDArray[np.int64], window: int, size: int) -> sp.csr_array:
    """How often two annotators are at most ``window`` steps apart on a walk: sparse (R, R), symmetric.

    >>> cooccurrences(np.array([[0, 1, 2, -1]]), window=1, size=3).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    pairs = [
        (path[:, :-apart].ravel(), path[:, apart:].ravel()) for apart in range(1, min(window, path.shape[1] - 1) + 1)
    ]
    if not pairs:
        return sp.csr_array((size, size), dtype=np.float64)
    before, after = (np.concatenate(part) for part in zip(*pairs, strict=True))
    seen = after >= 0  # nothing follows a dead end
    counts = sp.csr_array((np.ones(int(seen.sum())), (before[seen], after[seen])), shape=(size, size))
    return sp.csr_array(counts + counts.T)


def positive_information(counts: sp.csr_array) -> sp.csr_array:
    """max(0, ln(n_ij n / (n_i n_j))) of co-occurrences, sparse (R, R)."""
    entries = sp.coo_array(counts)
    occurrences = np.asarray(counts.sum(axis=1)).ravel()
    expected = occurrences[entries.row] * occurrences[entries.col] / max(float(occurrences.sum()), 1.0)
    information = np.maximum(np.log(entries.data / expected), 0.0)
    found = sp.csr_array((information, (entries.row, entries.col)), shape=counts.shape)
    found.eliminate_zeros()
    return found
