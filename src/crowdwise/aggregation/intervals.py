"""Credible intervals of what was learnt about annotators, and how well posteriors are calibrated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.kernels import Floats
from crowdwise.errors import ConfigError, DataError

JEFFREYS = 0.5  # labels believed before any, where a method has no prior of its own


def beta_interval(right: Floats, wrong: Floats, level: float) -> Floats:
    """Central credible interval of a probability after ``right`` and ``wrong`` trials (prior included): (..., 2).

    >>> beta_interval(np.array([9.0]), np.array([1.0]), 0.9).round(3)
    array([[0.717, 0.994]])
    """
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level!r}")
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    smallest = np.finfo(np.float64).tiny  # with a single class nothing can be wrong
    return np.asarray(betaincinv(np.maximum(right, smallest)[..., None], np.maximum(wrong, smallest)[..., None], tails))


def confusion_interval(counts: Floats, believed: Floats, level: float) -> Floats:
    """Intervals (R, C, C, 2) of T[annotator, class, label] whose rows are Dirichlet.

    ``counts`` (R, C, C) are expected numbers of labels, ``believed`` (C, C) the prior's, both [.., label, class].
    """
    table = (counts + believed).transpose(0, 2, 1)
    return beta_interval(table, table.sum(axis=2, keepdims=True) - table, level)


class Calibration(NamedTuple):
    """How posteriors compare with the truth: a perfectly calibrated method is right as often as it says."""

    error: float  # expected calibration error: mean |accuracy - confidence|, weighted by bin
    confidence: Floats  # (bins,) mean probability of the chosen class
    accuracy: Floats  # (bins,) share that is right
    number: npt.NDArray[np.int64]  # (bins,) instances


def calibration(posterior: Floats, truth: npt.NDArray[Any], bins: int = 10) -> Calibration:
    """Expected calibration error of a posterior (n, C) against class codes (n,), -1 where the truth is unknown.

    Bins are equally wide in the probability of the most probable class; empty ones are left out.

    >>> calibration(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1])).error
    0.35
    """
    truth = np.asarray(truth)
    if truth.shape != (len(posterior),):
        raise DataError(f"truth has shape {truth.shape}, expected ({len(posterior)},): one class code per instance")
    known = truth >= 0
    confidence = posterior[known].max(axis=1, initial=0.0)
    right = posterior[known].argmax(axis=1) == truth[known] if np.any(known) else np.zeros(0, bool)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    number = np.bincount(place, minlength=bins)
    used = number > 0
    means = np.bincount(place, confidence, bins)[used] / number[used]
    accuracy = np.bincount(place, right, bins)[used] / number[used]
    error = float(np.round(np.abs(accuracy - means) @ number[used] / max(number.sum(), 1), 12))
    return Calibration(error, means, accuracy, number[used])
