"""How alike two annotators err: TAIDTM's similarities of last-layer parameters, and those of its ablation.

Every similarity of heads is an inner product of embedded vectors, S = V Vᵀ (:func:`embed`), so that neighbours can be
found in blocks without holding the (R, R) matrix (:func:`crowdwise.graph.neighbours.knn_from_heads`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from crowdwise.errors import ConfigError, DataError
from crowdwise.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowdwise.annotations import Annotations

FloatArray: TypeAlias = NDArray[np.float64]

SIMILARITIES: Registry[Callable[[FloatArray, FloatArray | None], FloatArray]] = Registry("similarity")
"""Name -> function (heads (R, D), global head (D,) or None) -> vectors (R, D) whose inner products are similarities."""


def embed(heads: ArrayLike, global_head: ArrayLike | None = None, similarity: str = "delta-cosine") -> FloatArray:
    """Vectors V (R, D) with S = V Vᵀ for the named similarity; an annotator whose vector is zero is similar to nobody.

    Args:
        heads: flattened last-layer parameters, (R, D).
        global_head: flattened last layer that the heads started from, (D,); only ``delta-cosine`` reads it.
        similarity: ``delta-cosine``, ``cosine`` or ``l1-normalised``.
    """
    matrix = np.asarray(heads, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"heads must have shape (annotators, parameters), not {matrix.shape}: flatten each head")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise DataError(f"the head of annotator {bad[0]} is not finite ({bad.size} of {len(matrix)} heads are not)")
    reference = None if global_head is None else np.asarray(global_head, dtype=np.float64).ravel()
    if reference is not None and len(reference) != matrix.shape[1]:
        raise DataError(f"the global head has {len(reference)} parameters, the heads have {matrix.shape[1]}")
    return SIMILARITIES[similarity](matrix, reference)


def delta_cosine(heads: ArrayLike, global_head: ArrayLike) -> FloatArray:
    """Cosine of what sets each head apart from the global head, (R, R): TAIDTM's default.

    Raw heads share the global part, which hides their differences. A head that never left the global one (an
    annotator with too few examples) has similarity 0 to everybody, itself included.

    >>> delta_cosine([[3, 4], [4, 3], [3, -4]], [3, 3])[0].tolist()
    [1.0, 0.0, -1.0]
    """
    vectors = embed(heads, global_head, "delta-cosine")
    return vectors @ vectors.T


def cosine(heads: ArrayLike) -> FloatArray:
    """Cosine of the heads themselves, (R, R): the paper's formula read with the L2 norm.

    >>> cosine([[3, 4], [4, 3], [3, -4]]).round(6)[0].tolist()
    [1.0, 0.96, -0.28]
    """
    vectors = embed(heads, similarity="cosine")
    return vectors @ vectors.T


def l1_normalised(heads: ArrayLike) -> FloatArray:
    """Inner product of the heads over the product of their L1 norms, (R, R): the paper's formula to the letter.

    >>> l1_normalised([[3, 4], [4, 3], [3, -4]]).round(6)[0].tolist()
    [0.510204, 0.489796, -0.142857]
    """
    vectors = embed(heads, similarity="l1-normalised")
    return vectors @ vectors.T


def confusion(matrices: ArrayLike) -> FloatArray:
    """Cosine of flattened annotator matrices (R, C, C), e.g. of CoNAL or of Dawid-Skene, (R, R).

    >>> confusion([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0.5, 0.5], [0.5, 0.5]]]).round(6)[0].tolist()
    [1.0, 0.0, 0.707107]
    """
    stacked = np.asarray(matrices, dtype=np.float64)
    if stacked.ndim != 3:
        raise DataError(f"matrices must have shape (annotators, classes, classes), not {stacked.shape}")
    return cosine(stacked.reshape(len(stacked), -1))


def jaccard(annotations: Annotations) -> sparse.csr_array[np.float64]:
    """Jaccard index of the annotators' sets of (instance, label) pairs, sparse (R, R); an empty union gives 0.

    Kairam and Heer (CSCW 2016). Annotators share few instances in a sparse crowd, so many entries are 0 and the rest
    take few values: neighbours found from it are often decided by the tie rule.

    >>> from crowdwise import Annotations
    >>> crowd = Annotations.from_triples([0, 1, 2, 0, 1, 3], [0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 0, 1],
    ...                                  n_instances=4, n_annotators=2, n_classes=2)
    >>> jaccard(crowd).toarray().tolist()
    [[1.0, 0.2], [0.2, 1.0]]
    """
    pairs = annotations.instance.astype(np.int64) * annotations.n_classes + annotations.label
    shape = (annotations.n_annotators, annotations.n_instances * annotations.n_classes)
    indicator = sparse.csr_array((np.ones(len(pairs)), (annotations.annotator, pairs)), shape=shape)
    indicator.data[:] = 1.0  # a pair given twice is one member of the set
    sizes = np.diff(indicator.indptr)
    shared = (indicator @ indicator.T).tocoo()
    rows, columns = shared.row, shared.col
    return sparse.csr_array((shared.data / (sizes[rows] + sizes[columns] - shared.data), (rows, columns)), shared.shape)


@SIMILARITIES.register("delta-cosine")
def _delta(heads: FloatArray, global_head: FloatArray | None) -> FloatArray:
    if global_head is None:
        raise ConfigError("similarity 'delta-cosine' needs the global head; pass global_head or use 'cosine'")
    return _divide_rows(heads - global_head, order=2)


@SIMILARITIES.register("cosine")
def _unit(heads: FloatArray, global_head: FloatArray | None) -> FloatArray:
    return _divide_rows(heads, order=2)


@SIMILARITIES.register("l1-normalised")
def _unit_l1(heads: FloatArray, global_head: FloatArray | None) -> FloatArray:
    return _divide_rows(heads, order=1)


def _divide_rows(vectors: FloatArray, order: int) -> FloatArray:
    norms = np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)
    scaled: FloatArray = vectors / np.where(norms > 0, norms, 1.0)
    return scaled
