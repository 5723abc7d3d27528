"""Whether two rows of a table differ by more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

LEAST_SEEDS = 3  # in common, to compare two rows
LEVEL = 0.05


class Paired(NamedTuple):
    """Mean difference over common seeds, and two-sided p of the paired t-test."""

    difference: float
    p: float


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    """Compare two rows by seed; None with fewer than three seeds in common.

    >>> paired({0: 1.0, 1: 2.0, 2: 6.0}, {0: 0.0, 1: 1.0, 2: 2.0, 7: 9.0})
    Paired(difference=2.0, p=0.18350...)
    """
    from scipy.special import stdtr

    common = sorted(ours.keys() & theirs.keys())
    if len(common) < LEAST_SEEDS:
        return None
    pairs = np.array([(ours[seed], theirs[seed]) for seed in common])
    differences = pairs[:, 0] - pairs[:, 1]
    rounding = 1e-9 * np.abs(pairs).max()
    difference = float(differences.mean())
    if np.abs(differences).max() <= rounding:
        return Paired(difference, 1.0)
    error = differences.std(ddof=1) / math.sqrt(len(common))
    if error <= rounding:  # the same difference at every seed
        return Paired(difference, 0.0)
    return Paired(difference, float(2 * stdtr(len(common) - 1, -abs(difference) / error)))
