"""The annotator graph: a kNN graph of annotators who err alike, purified by a low-rank approximation, measured and drawn.

Everything except :mod:`crowdwise.graph.mappings` is pure functions of float64 arrays. A[i, j] > 0 means that j is a
neighbour of i: rows are centres, columns are neighbours, and the graph is directed.
"""

from __future__ import annotations

from crowdwise.graph.layout import pca
from crowdwise.graph.metrics import EdgePrecision, adjusted_rand, edge_precision, found_groups, neighbourhood_recall
from crowdwise.graph.neighbours import Neighbours, knn_from_heads, knn_graph, nearest
from crowdwise.graph.purify import add_self_loops, normalise, purify
from crowdwise.graph.similarity import (
    SIMILARITIES,
    Evidence,
    communities,
    confusion,
    cosine,
    delta_cosine,
    embed,
    jaccard,
    l1_normalised,
)

__all__ = [
    "SIMILARITIES",
    "EdgePrecision",
    "Evidence",
    "Neighbours",
    "add_self_loops",
    "adjusted_rand",
    "communities",
    "confusion",
    "cosine",
    "delta_cosine",
    "edge_precision",
    "embed",
    "found_groups",
    "jaccard",
    "knn_from_heads",
    "knn_graph",
    "l1_normalised",
    "nearest",
    "neighbourhood_recall",
    "normalise",
    "pca",
    "purify",
]
