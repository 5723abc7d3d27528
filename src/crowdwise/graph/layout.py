"""Annotators as points in the plane, for drawing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from crowdwise.constraints import PositiveInt, check_value
from crowdwise.data.types import Floats
from crowdwise.errors import DataError
from crowdwise.graph._largest import largest_triplets


def pca(vectors: ArrayLike, n_components: int = 2) -> Floats:
    """Centred principal components of (R, D) vectors, (R, n_components): U S of the centred matrix.

    In each component the first entry of largest magnitude is positive, so that pictures do not flip between machines.
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
    left, values, _ = largest_triplets(centred, n_components)
    by_value = np.argsort(-values, kind="stable")
    for component, at in enumerate(by_value[values[by_value] > rounding]):
        magnitude = np.abs(left[:, at])
        largest = np.argmax(magnitude >= magnitude.max() * (1 - 1e-9))  # the first, if several are equally large
        coordinates[:, component] = left[:, at] * values[at] * np.sign(left[largest, at])
    return coordinates
