"""The likelihood of votes with ties: R. R. Davidson (JASA 1970), with an effect of the order shown (Davidson & Beaver 1977).

P(left, right, tie) is proportional to (exp(u / 2), exp(-u / 2), exp(t)), where u is the difference of the two scores plus the
advantage of standing first. Everything here is a pure function of arrays that broadcast against each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crowdwise.data.types import Floats

NO_TIES = -np.inf
"""Tie parameter at which ties have probability 0."""


class Curvature(NamedTuple):
    """Derivatives of the log-likelihood of votes: first, and minus the expected second."""

    by_u: Floats
    by_t: Floats
    uu: Floats
    ut: Floats
    tt: Floats


def probabilities(u: Floats, t: Floats | float) -> Floats:
    """P(left), P(right), P(tie), (..., 3).

    >>> probabilities(np.array([0.0]), 0.0).round(3).tolist()
    [[0.333, 0.333, 0.333]]
    """
    logits = np.stack(np.broadcast_arrays(u / 2, -u / 2, np.asarray(t, np.float64)), axis=-1)
    logits = logits - logits.max(axis=-1, keepdims=True)
    odds = np.exp(logits)
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


def log_likelihood(counts: Floats, u: Floats, t: Floats | float) -> float:
    """Sum of ``counts`` (..., 3) times the log-probabilities of their outcomes."""
    chance = probabilities(u, t)
    return float((counts * np.log(np.where(counts > 0, np.maximum(chance, 1e-300), 1.0))).sum())


def curvature(counts: Floats, u: Floats, t: Floats | float) -> Curvature:
    """Derivatives at ``u`` and ``t`` of the log-likelihood of ``counts`` (..., 3) of left, right and tie."""
    chance = probabilities(u, t)
    number = counts.sum(axis=-1)
    left, right, tie = chance[..., 0], chance[..., 1], chance[..., 2]
    mean = (left - right) / 2
    return Curvature(
        by_u=(counts[..., 0] - counts[..., 1]) / 2 - number * mean,
        by_t=counts[..., 2] - number * tie,
        uu=number * ((left + right) / 4 - mean**2),
        ut=-number * mean * tie,
        tt=number * tie * (1 - tie),
    )
