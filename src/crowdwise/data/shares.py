"""Intervals and tests of shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from crowdwise.data.types import Floats


def wilson(right: Any, total: Any, level: float = 0.95) -> tuple[Any, Any]:
    """Wilson's interval of a share ``right / total``; from 0 to 1 where ``total`` is 0.

    >>> low, high = wilson(8, 10)
    >>> round(float(low), 3), round(float(high), 3)
    (0.49, 0.943)
    """
    right, total = np.asarray(right, np.float64), np.asarray(total, np.float64)
    z = ndtri(0.5 + level / 2)
    share = np.divide(right, total, out=np.full(np.broadcast(right, total).shape, 0.5), where=total > 0)
    scale = 1 / (total + z**2)
    centre = (total * share + z**2 / 2) * scale
    half = z * np.sqrt(total * share * (1 - share) + z**2 / 4) * scale
    return np.where(total > 0, np.maximum(centre - half, 0), 0.0), np.where(
        total > 0, np.minimum(centre + half, 1), 1.0
    )


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
