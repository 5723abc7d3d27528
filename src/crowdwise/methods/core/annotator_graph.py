"""The annotator graph that TAIDTM or Concord finds, and the arrays that models keep it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from crowdwise import graph


@dataclass(frozen=True)
class AnnotatorGraph:
    """Who errs like whom. Rows are centres: ``before[i, j] > 0`` says that j is a neighbour of i."""

    before: sp.csr_array
    """k-nearest-neighbour graph (R, R), entries 1, no self loops."""
    after: sp.csr_array
    """Purified graph: weighted, diagonal 1."""
    positions: np.ndarray
    """Principal components (R, 2) of what sets each annotator's head apart, for drawing."""
    skipped: np.ndarray
    """Annotators with too few distilled examples for a head of their own."""
    unrelated: float
    """Share of pairs of annotators whose similarity is 0."""
    arbitrary: float
    """Share of the edges of ``before`` that only the tie rule chose."""


def graph_of_matrices(matrices: np.ndarray, k: int) -> AnnotatorGraph:
    """The graph of annotators whose matrices (R, C, C) depart alike from the mean one, with k neighbours each."""
    n = len(matrices)
    heads = np.log(np.maximum(matrices.reshape(n, -1).astype(np.float64), 1e-6))
    nobody = np.zeros(0, dtype=np.int64)
    if n < 3:
        alone = sp.csr_array((n, n))
        return AnnotatorGraph(alone, sp.csr_array(sp.eye_array(n)), np.zeros((n, 2)), nobody, 0.0, 0.0)
    centre = heads.mean(0)
    before = graph.knn_from_heads(heads, min(k, n - 1), similarity="delta-cosine", global_head=centre)
    return AnnotatorGraph(before, graph.purify(before, k=k), graph.pca(heads - centre), nobody, 0.0, 0.0)


_CSR = ("data", "indices", "indptr")


def graph_arrays(annotators: AnnotatorGraph) -> dict[str, np.ndarray]:
    arrays = {
        "graph_positions": annotators.positions,
        "graph_ties": np.array([annotators.unrelated, annotators.arbitrary]),
        "skipped": annotators.skipped,
    }
    for name, matrix in (("before", annotators.before), ("after", annotators.after)):
        arrays |= {f"graph_{name}_{part}": getattr(matrix, part) for part in _CSR}
    return arrays


def graph_of(arrays: Mapping[str, np.ndarray]) -> AnnotatorGraph:
    """What `graph_arrays` made arrays of."""
    size = len(arrays["graph_positions"])
    parts = [
        sp.csr_array(tuple(arrays[f"graph_{name}_{part}"] for part in _CSR), shape=(size, size))
        for name in ("before", "after")
    ]
    unrelated, arbitrary = arrays["graph_ties"].tolist()
    return AnnotatorGraph(parts[0], parts[1], arrays["graph_positions"], arrays["skipped"], unrelated, arbitrary)
