"""Prediction-powered inference: means of few true values and many predicted ones, with valid intervals.

Angelopoulos et al., Prediction-powered inference (Science 2023) and PPI++ (2023).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crowdwise.data.types import Floats

Tuning = Any  # "all", "class", or a number from 0 to 1


class Mean(NamedTuple):
    """Estimates of k means, (k,) each."""

    value: Floats
    error: Floats
    """Standard error."""
    lambda_: Floats
    """How far predictions are relied on: 0 not at all, 1 fully."""


def powered_mean(truth: Floats, predicted: Floats, further: Floats, tuning: Tuning = "all", *, ddof: int = 1) -> Mean:
    """Means of the true values (n, k), by predictions of these (n, k) and of further instances (N, k).

    value = mean(truth - lambda predicted) + lambda mean(further). With ``tuning="all"``, the one lambda that makes the sum
    of the variances smallest; "class": one for each column.
    """
    many = len(further)
    power = tune(truth, predicted, further, tuning)
    rest = truth - power * predicted
    if not many:  # nothing to learn from predictions
        return Mean(truth.mean(axis=0), _error(truth, ddof), np.zeros(truth.shape[1]))
    value = rest.mean(axis=0) + power * further.mean(axis=0)
    error = np.sqrt((power * _error(further, ddof)) ** 2 + _error(rest, ddof) ** 2)
    return Mean(value, error, power)


def tune(truth: Floats, predicted: Floats, further: Floats, tuning: Tuning) -> Floats:
    """lambda (k,): cov(truth, predicted) / ((1 + n / N) var(predicted)), from 0 to 1."""
    n, many, k = len(truth), len(further), truth.shape[1]
    if not isinstance(tuning, str):
        return np.full(k, float(tuning))
    if not many:
        return np.zeros(k)
    covariance = ((truth - truth.mean(axis=0)) * (predicted - predicted.mean(axis=0))).mean(axis=0)
    variance = (1 + n / many) * np.concatenate([predicted, further]).var(axis=0, ddof=1)
    if tuning == "all":
        covariance, variance = np.full(k, covariance.sum()), np.full(k, variance.sum())
    return np.asarray(np.clip(np.divide(covariance, variance, out=np.zeros(k), where=variance > 1e-12), 0, 1))


def sampled_mean(truth: Floats, predicted: Floats, chosen: Any, probability: Floats, tuning: Tuning = "all") -> Mean:
    """Means over all M instances, of which each was ``chosen`` (M,) for a true value with its own ``probability`` (M,).

    ``truth`` (M, k) counts where chosen only. value = mean(lambda predicted + (truth - lambda predicted) chosen / probability).
    """
    k = predicted.shape[1]
    weight = (chosen / probability)[:, None]
    known = np.where(chosen[:, None], truth, 0.0)
    if isinstance(tuning, str):
        ratio = ((1 - probability) / probability)[:, None]
        above, below = (weight * ratio * known * predicted).sum(axis=0), (ratio * predicted**2).sum(axis=0)
        if tuning == "all":
            above, below = np.full(k, above.sum()), np.full(k, below.sum())
        power = np.clip(np.divide(above, below, out=np.zeros(k), where=below > 1e-12), 0, 1)
    else:
        power = np.full(k, float(tuning))
    terms = power * predicted + (known - power * predicted) * weight
    return Mean(terms.mean(axis=0), _error(terms, 1), power)


def quantile(level: float, n: int) -> float:
    """Of Student's t with n - 1 degrees of freedom."""
    return float(stats.t.ppf(0.5 + level / 2, max(n - 1, 1)))


def _error(values: Floats, ddof: int) -> Floats:
    n = len(values)
    return np.asarray(values.std(axis=0, ddof=ddof) / np.sqrt(n)) if n > ddof else np.full(values.shape[1], np.nan)
