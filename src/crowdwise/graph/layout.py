"""Annotators as points in the plane, for drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.sparse.linalg import svds

from crowdwise.constraints import PositiveInt, check_value
from crowdwise.errors import DataError
from crowdwise.graph.purify import DENSE_SVD

if TYPE_CHECKING:
    from crowdwise.graph.similarity import FloatArray


def pca(vectors: ArrayLike, n_components: int = 2) -> FloatArray:
    """Centred principal components of (R, D) vectors, (R, n_components): U S of the centred matrix.

    In each component the (first) entry of largest magnitude is positive: a picture does not flip between machines.
    Components that do not exist (fewer dimensions, one annotator, equal vectors) are 0.

    >>> pca([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]).round(6).tolist()
    [[-2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]
    """
    matrix = np.asarray(vectors, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"vectors must have shape (annotators, parameters), not {matrix.shape}")
    check_value("n_components", n_components, PositiveInt)
    coordinates = np.zeros((len(matrix), n_components))
    if not matrix.size:
        return coordinates
    centred = matrix - matrix.mean(axis=0)
    rounding = np.finfo(np.float64).eps * max(matrix.shape) * np.linalg.norm(matrix)
    if np.linalg.norm(centred) <= rounding:
        return coordinates
    if min(matrix.shape) <= max(DENSE_SVD, n_components):
        left, values, _ = linalg.svd(centred, full_matrices=False)
    else:
        triplets: Any = svds(centred, k=n_components, v0=np.random.default_rng(0).standard_normal(min(matrix.shape)))
        left, values = triplets[0][:, ::-1], triplets[1][::-1]  # ascending
    for component in range(min(n_components, int(np.sum(values > rounding)))):
        column = left[:, component]
        magnitude = np.abs(column)
        largest = np.argmax(magnitude >= magnitude.max() * (1 - 1e-9))  # the first, if several are equally large
        coordinates[:, component] = column * values[component] * np.sign(column[largest])
    return coordinates
