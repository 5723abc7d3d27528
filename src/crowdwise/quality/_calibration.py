"""Whether probabilities mean what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from crowdwise.errors import ConfigError, DataError, suggest
from crowdwise.quality._belief import checked_posterior

Strategy = Literal["uniform", "quantile"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Confidence compared with accuracy, in bins of similar confidence."""

    ece: float
    """Expected calibration error (Guo et al. 2017, eq. 3): mean gap between confidence and accuracy."""
    mce: float
    """Maximum calibration error: the largest gap of a bin."""
    accuracy: float
    """Share of instances whose most likely class is the true one."""
    confidence: float
    """Mean probability of the most likely class."""
    n: int
    """Instances with a known true class."""
    bins: pa.Table
    """Reliability of each bin that is not empty: low, high, count, confidence, accuracy."""

    def __str__(self) -> str:
        means = f"accuracy {self.accuracy:.3f}, mean confidence {self.confidence:.3f}, {self.n:,} instances"
        head = f"expected calibration error {self.ece:.3f} ({means})"
        rows = [
            f"{row['low']:.2f}-{row['high']:.2f} {row['count']:>9,} {row['confidence']:>10.3f} {row['accuracy']:>8.3f}"
            for row in self.bins.to_pylist()
        ]
        return "\n".join([head, "confidence     count confidence accuracy", *rows])


def calibration(posterior: Any, truth: Any, *, n_bins: int = 15, strategy: Strategy = "uniform") -> Calibration:
    """Expected calibration error of a posterior (n, C) against true classes (n,), with reliability bins.

    ``truth`` holds codes of classes; -1 is unknown and left out. The bins are of equal width (``"uniform"``) or hold
    equally many instances (``"quantile"``).

    >>> result = calibration([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]], [0, 1, 1, -1])
    >>> round(result.ece, 3), result.n
    (0.3, 3)
    """
    if n_bins < 1:
        raise ConfigError(f"n_bins must be 1 or more, got {n_bins}")
    if strategy not in get_args(Strategy):
        raise ConfigError(f"unknown strategy {strategy!r}{suggest(str(strategy), get_args(Strategy))}")
    array, classes = checked_posterior(posterior), np.asarray(truth)
    if classes.shape != (len(array),):
        raise DataError(f"truth has shape {classes.shape}, but posterior has {len(array)} rows")
    if classes.dtype.kind not in "iu" or classes.min(initial=0) < -1 or classes.max(initial=-1) >= array.shape[1]:
        raise DataError(f"truth must hold class codes 0..{array.shape[1] - 1}, or -1 where unknown")
    known = classes >= 0
    confidence, right = array[known].max(axis=1, initial=0), array[known].argmax(axis=1) == classes[known]
    if strategy == "quantile" and len(confidence):
        edges = np.unique(np.quantile(confidence, np.linspace(0, 1, n_bins + 1)))
    else:
        edges = np.linspace(0, 1, n_bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(place, minlength=max(len(edges) - 1, 1))
    filled = np.flatnonzero(count)
    believed, correct = (np.bincount(place, values, len(count))[filled] for values in (confidence, right))
    count = count[filled]
    gap, n = np.abs(believed - correct), len(confidence)
    bins = pa.table(
        {
            "low": edges[filled],
            "high": edges[np.minimum(filled + 1, len(edges) - 1)],
            "count": count,
            "confidence": believed / count,
            "accuracy": correct / count,
        }
    )
    if not n:
        nan = float("nan")
        return Calibration(nan, nan, nan, nan, 0, bins)
    ece, mce = float(gap.sum() / n), float((gap / count).max())
    return Calibration(ece, mce, float(right.mean()), float(confidence.mean()), n, bins)
