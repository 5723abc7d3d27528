"""Fixed splits for data sets that have none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crowdwise.data.types import Ints


def stratified_split(y: Ints, n_test: int, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Ascending indices (train, test); every class is split in the same proportion, to within one instance.

    >>> train, test = stratified_split(np.array([0, 0, 1, 1, 0, 1]), n_test=2)
    >>> len(train), len(test)
    (4, 2)
    """
    shuffled = np.argsort(np.random.default_rng(seed).random(len(y)), kind="stable")
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    # Evenly spaced places in the class-sorted order give each class its share, without rounding per class.
    chosen = np.zeros(len(y), dtype=bool)
    chosen[by_class[(np.arange(n_test) * len(y) + len(y) // 2) // n_test]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
