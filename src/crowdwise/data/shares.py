"""Intervals and tests of shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from crowdwise.data.types import Floats


def wilson(right: Any, total: Any, level: float = 0.95) -> tuple[Any, Any]:
    """Wilson's interval of a share ``right / total``; from 0 to 1 where ``total`` is 0.

    Up to 3 cases for or against (2 of 50 or fewer), the end next to 0 or 1 is that of a Poisson distribution, without which
    the interval holds shares near 0 or 1 too seldom (Brown, Cai & DasGupta 2001).

    >>> low, high = wilson(7, 10)
    >>> round(float(low), 3), round(float(high), 3)
    (0.397, 0.892)
    """
    right, total = np.broadcast_arrays(np.asarray(right, np.float64), np.asarray(total, np.float64))
    known = total > 0
    size = np.where(known, total, 1.0)
    share = np.where(known, right / size, 0.5)
    z = ndtri(0.5 + level / 2)
    scale = 1 / (size + z**2)
    centre = (size * share + z**2 / 2) * scale
    half = z * np.sqrt(size * share * (1 - share) + z**2 / 4) * scale
    low = np.minimum(centre - half, _fewest(size * share, size, level))
    high = np.maximum(centre + half, 1 - _fewest(size * (1 - share), size, level))
    return np.where(known, np.maximum(low, 0), 0.0), np.where(known, np.minimum(high, 1), 1.0)


def _fewest(cases: Floats, total: Floats, level: float) -> Floats:
    """Smallest share that a few ``cases`` allow, by a Poisson distribution; 1 where there are more than a few."""
    few = cases <= np.where(total > 50, 3.0, 2.0) + 1e-9
    least = gammaincinv(np.maximum(np.where(few, cases, 1.0), 1e-9), 1 - level) / total
    return np.where(few, least, 1.0)


def holm(p: Floats) -> Floats:
    """P-values adjusted by Holm's procedure, (m,); NaN stays NaN and is not counted.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_yekutieli(p: Floats, fdr: float) -> Any:
    """Which hypotheses are rejected at a false discovery rate under any dependence, a mask (m,).

    >>> benjamini_yekutieli(np.array([0.001, 0.2, 0.01]), 0.05).tolist()
    [True, False, True]
    """
    m = len(p)
    order = np.argsort(p, kind="stable")
    bound = np.arange(1, m + 1) * fdr / (m * np.sum(1 / np.arange(1, m + 1)))
    passing = np.flatnonzero(p[order] <= bound)
    rejected = np.zeros(m, bool)
    rejected[order[: passing[-1] + 1 if passing.size else 0]] = True
    return rejected
