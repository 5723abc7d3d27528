"""How similarly two annotators err: TAIDTM's similarities of last-layer parameters, and those of its ablation.

Most similarities are inner products, S = V Vᵀ, so neighbours can be found in blocks, without the (R, R) matrix
(:func:`crowdwise.graph.neighbours.nearest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from crowdwise.data.types import Floats
from crowdwise.errors import ConfigError, DataError
from crowdwise.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowdwise.annotations import Annotations
    from crowdwise.graph._largest import SparseMatrix


@dataclass(frozen=True)
class Evidence:
    """What is known about annotators when they are compared; each similarity uses what it needs."""

    heads: Floats | None = None
    """Flattened last-layer parameters, (R, D)."""
    global_head: Floats | None = None
    """Flattened last layer the heads started from, (D,)."""
    l1_norms: Floats | None = None
    """L1 norms (R,) of the heads, if ``heads`` are coordinates in another orthonormal basis."""
    annotations: Annotations | None = None
    matrices: Floats | None = None
    """Confusion matrices, or a substitute, (R, C, C)."""
    communities: int = 3
    """Communities that ``cbcc`` looks for."""
    seed: int = 0


SIMILARITIES: Registry[Callable[[Evidence], Floats | SparseMatrix]] = Registry("similarity")
"""Name -> function of the evidence that returns dense vectors V (R, D), with similarities V Vᵀ, or the similarities
themselves, sparse (R, R)."""


def embed(heads: ArrayLike, global_head: ArrayLike | None = None, similarity: str = "delta-cosine") -> Floats:
    """Vectors V (R, D) with S = V Vᵀ for a similarity of heads; an annotator with a zero vector is similar to nobody.

    Args:
        heads: flattened last-layer parameters, (R, D).
        global_head: flattened last layer the heads started from, (D,); only ``delta-cosine`` uses it.
        similarity: ``delta-cosine``, ``cosine`` or ``l1-normalised``.
    """
    matrix = np.asarray(heads, dtype=np.float64)
    reference = None if global_head is None else np.asarray(global_head, dtype=np.float64).ravel()
    return cast("Floats", SIMILARITIES[similarity](Evidence(matrix, reference)))


def delta_cosine(heads: ArrayLike, global_head: ArrayLike) -> Floats:
    """Cosine of the heads' differences from the global head, (R, R): TAIDTM's default.

    Raw heads share the global part, which hides their differences. A head that never left the global one (an annotator
    with too few examples) has similarity 0 to everybody, including itself.

    >>> delta_cosine([[3, 4], [4, 3], [3, -4]], [3, 3])[0].tolist()
    [1.0, 0.0, -1.0]
    """
    vectors = embed(heads, global_head, "delta-cosine")
    return vectors @ vectors.T


def cosine(heads: ArrayLike) -> Floats:
    """Cosine of the heads themselves, (R, R): the paper's formula read with the L2 norm.

    >>> cosine([[3, 4], [4, 3], [3, -4]]).round(6)[0].tolist()
    [1.0, 0.96, -0.28]
    """
    vectors = embed(heads, similarity="cosine")
    return vectors @ vectors.T


def l1_normalised(heads: ArrayLike) -> Floats:
    """Inner product of the heads over the product of their L1 norms, (R, R): the paper's formula taken literally.

    >>> l1_normalised([[3, 4], [4, 3], [3, -4]]).round(6)[0].tolist()
    [0.510204, 0.489796, -0.142857]
    """
    vectors = embed(heads, similarity="l1-normalised")
    return vectors @ vectors.T


def confusion(matrices: ArrayLike) -> Floats:
    """Cosine of flattened annotator matrices (R, C, C), e.g. of CoNAL or of Dawid-Skene, (R, R).

    >>> confusion([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0.5, 0.5], [0.5, 0.5]]]).round(6)[0].tolist()
    [1.0, 0.0, 0.707107]
    """
    return cosine(_flat(matrices))


def jaccard(annotations: Annotations) -> SparseMatrix:
    """Jaccard index of the annotators' sets of (instance, label) pairs, sparse (R, R); an empty union gives 0.

    Kairam and Heer (CSCW 2016). In a sparse crowd annotators share few instances, so many entries are 0 and the others
    take few values: the tie rule often decides who are neighbours.

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


def communities(annotations: Annotations, n_communities: int = 3, random_state: int = 0) -> Floats:
    """Probability that an annotator belongs to each community found by CBCC, (R, M).

    The inner products sum_m r_im r_jm are the probabilities that two annotators are in the same community (Venanzi et
    al., WWW 2014). Annotators without labels get the shares of the communities.

    >>> from crowdwise import Annotations
    >>> r = communities(Annotations.coerce(np.array([[0, 0, 0, 1], [1, 1, 1, 0]] * 20)), 2)
    >>> (r @ r.T).round(2)[0].tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    from crowdwise.aggregation.cbcc import CBCC

    found = CBCC(n_communities=n_communities, random_state=random_state).fit(annotations)
    alike = np.full((annotations.n_annotators, n_communities), 1 / n_communities)  # for crowds without labels
    return np.asarray(getattr(found, "membership_", alike), dtype=np.float64)


@SIMILARITIES.register("delta-cosine")
def _delta(evidence: Evidence) -> Floats:
    heads, reference = _heads(evidence, "delta-cosine"), evidence.global_head
    if reference is None:
        raise ConfigError("similarity 'delta-cosine' needs the global head; pass global_head or use 'cosine'")
    if len(reference) != heads.shape[1]:
        raise DataError(f"the global head has {len(reference)} parameters, the heads have {heads.shape[1]}")
    return _divide_rows(heads - reference, order=2)


@SIMILARITIES.register("cosine")
def _unit(evidence: Evidence) -> Floats:
    return _divide_rows(_heads(evidence, "cosine"), order=2)


@SIMILARITIES.register("l1-normalised")
def _unit_l1(evidence: Evidence) -> Floats:
    heads = _heads(evidence, "l1-normalised")
    return _divide_rows(heads, order=1) if evidence.l1_norms is None else heads / evidence.l1_norms[:, None]


@SIMILARITIES.register("confusion")
@SIMILARITIES.register("confusion-counts")
def _confusion(evidence: Evidence) -> Floats:
    if evidence.matrices is None:
        raise ConfigError("a similarity of confusion matrices needs the annotators' matrices (R, C, C)")
    return _divide_rows(_flat(evidence.matrices), order=2)


@SIMILARITIES.register("jaccard")
def _jaccard(evidence: Evidence) -> SparseMatrix:
    return jaccard(_annotations(evidence, "jaccard"))


@SIMILARITIES.register("cbcc")
def _communities(evidence: Evidence) -> Floats:
    return communities(_annotations(evidence, "cbcc"), evidence.communities, evidence.seed)


def _heads(evidence: Evidence, similarity: str) -> Floats:
    heads = evidence.heads
    if heads is None:
        raise ConfigError(f"similarity {similarity!r} needs the annotators' heads (R, D)")
    if heads.ndim != 2:
        raise DataError(f"heads must have shape (annotators, parameters), not {heads.shape}: flatten each head")
    bad = np.flatnonzero(~np.isfinite(heads).all(axis=1))
    if bad.size:
        raise DataError(f"the head of annotator {bad[0]} is not finite ({bad.size} of {len(heads)} heads are not)")
    return heads


def _annotations(evidence: Evidence, similarity: str) -> Annotations:
    if evidence.annotations is None:
        raise ConfigError(f"similarity {similarity!r} needs annotations; use 'cosine' to compare heads")
    return evidence.annotations


def _flat(matrices: ArrayLike) -> Floats:
    stacked = np.asarray(matrices, dtype=np.float64)
    if stacked.ndim != 3:
        raise DataError(f"matrices must have shape (annotators, classes, classes), not {stacked.shape}")
    return stacked.reshape(len(stacked), -1)


def _divide_rows(vectors: Floats, order: int) -> Floats:
    norms = np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)
    scaled: Floats = vectors / np.where(norms > 0, norms, 1.0)
    return scaled
