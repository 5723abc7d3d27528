"""DeepWalk: annotators as words, random walks on the annotator graph as sentences."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import PositiveInt, checked
from crowdwise.data.types import Floats, Ints
from crowdwise.graph._largest import largest_triplets
from crowdwise.graph.mappings.base import MAPPINGS, MappedHeads
from crowdwise.graph.purify import as_graph


@MAPPINGS.register("deepwalk")
class DeepWalkHeads(MappedHeads):
    """Heads from embeddings by random walks (Perozzi, Al-Rfou, Skiena, KDD 2014), through Linear, ReLU and Linear.

    The embedding e_j is constant; H_bar = ReLU(first(e)), and ``residual`` is the bias of the second linear layer, which
    starts at zero by default.
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
        seed = int(torch.randint(2**62, ()))  # from torch's generator, like all initial values
        embedding = walk_embedding(graph, random_state=seed, **walks)
        return cls(torch.from_numpy(embedding).float(), width, n_classes, hidden=hidden, residual=residual)

    @classmethod
    def from_saved(cls, tensors: dict[str, Tensor]) -> Self:
        hidden, d, n_classes, _ = tensors["last"].shape
        embedding = tensors["embedding"].clone()  # aligned in memory as before, for the same products
        return cls(embedding, d - 1, n_classes, hidden=hidden, residual=tensors["residual"])

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
) -> Floats:
    """Embedding (R, min(dimension, R)) of annotators from the random walks they share.

    Skip-gram factorises a shifted matrix of pointwise mutual information (Levy & Goldberg, NIPS 2014). Here its positive
    part is factorised directly: U sqrt(S) of the largest singular triplets, scaled to a mean squared length of
    ``dimension``. An isolated annotator gets a random vector of that length, so that it learns alone.

    Args:
        graph: (R, R) weights; self loops are ignored.
        dimension: length of the embedding.
        walks: walks from each annotator.
        length: annotators on a walk.
        window: largest distance on a walk at which two annotators co-occur.
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
    left, values, _ = largest_triplets(information, rank)
    embedding = left * np.sqrt(values)
    alone = np.diff(information.indptr) == 0
    embedding[~alone] *= np.sqrt(dimension * np.sum(~alone)) / max(float(np.linalg.norm(embedding[~alone])), 1e-12)
    embedding[alone] = rng.standard_normal((int(np.sum(alone)), rank)) * np.sqrt(dimension / rank)
    return np.ascontiguousarray(embedding, dtype=np.float64)  # row by row, as it is loaded again


def random_walks(weights: sp.csr_array, length: int, rng: np.random.Generator) -> Ints:
    """A walk from every annotator, (R, length), with steps in proportion to the weights; -1 after a dead end.

    >>> ring = sp.csr_array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]])
    >>> random_walks(ring, 4, np.random.default_rng(0)).tolist()
    [[0, 1, 2, -1], [1, 2, -1, -1], [2, -1, -1, -1]]
    """
    size = weights.shape[0]
    degree = np.diff(weights.indptr)
    # each row's cumulative weights fill the interval [row, row + 1), so one search finds the next step of all walks
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


def cooccurrences(path: Ints, window: int, size: int) -> sp.csr_array:
    """How often two annotators are at most ``window`` steps apart on a walk, sparse (R, R), symmetric.

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
