"""Credible intervals of what was learnt about annotators."""

from __future__ import annotations

import numpy as np

from crowdwise.aggregation.core.kernels import Floats
from crowdwise.constraints import OpenProbability, check_value

JEFFREYS = 0.5  # labels believed before any, where a method has no prior of its own


def beta_interval(right: Floats, wrong: Floats, level: float) -> Floats:
    """Central credible interval of a probability after ``right`` and ``wrong`` trials (prior included): (..., 2).

    >>> beta_interval(np.array([9.0]), np.array([1.0]), 0.9).round(3)
    array([[0.717, 0.994]])
    """
    from scipy.special import betaincinv

    check_value("level", level, OpenProbability)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    smallest = np.finfo(np.float64).tiny  # with a single class nothing can be wrong
    return np.asarray(betaincinv(np.maximum(right, smallest)[..., None], np.maximum(wrong, smallest)[..., None], tails))


def confusion_interval(counts: Floats, believed: Floats, level: float) -> Floats:
    """Intervals (R, C, C, 2) of T[annotator, class, label] whose rows are Dirichlet.

    ``counts`` (R, C, C) are expected numbers of labels, ``believed`` (C, C) the prior's, both [.., label, class].
    """
    table = (counts + believed).transpose(0, 2, 1)
    return beta_interval(table, table.sum(axis=2, keepdims=True) - table, level)
