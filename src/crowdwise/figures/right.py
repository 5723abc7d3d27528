"""Shares of right labels: measured on true labels, or estimated from the confidence in the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.queries import TIE_TOLERANCE
from crowdwise.data.shares import wilson
from crowdwise.data.types import Floats
from crowdwise.quality import outlook

Basis = Literal["measured", "estimated"]


@dataclass(frozen=True)
class RightShare:
    """The share of labels that are right, with its 95 % interval from ``low`` to ``high``."""

    share: float
    low: float
    high: float
    basis: Basis
    items: int
    """Items with a true label if measured; labelled items if estimated."""

    def holds(self, share: float) -> bool:
        """Whether the interval contains a share."""
        return self.low <= share <= self.high


def shared_hits(scores: npt.NDArray[Any], truth: npt.NDArray[Any], credit: Floats | None = None) -> Floats:
    """How right the best class of every row of ``scores`` (n, C) is, (n,): 1, 0, or 1/k if k classes share the first place.

    ``truth`` (n,) holds codes of the true classes; -1, unknown, is never right. ``credit`` (C, C) says what a class (row) is
    worth where another one (column) is true; by default 1 for the same and 0 for others.

    >>> shared_hits(np.array([[2, 1], [1, 1], [0, 3]]), np.array([0, 0, 0])).tolist()
    [1.0, 0.5, 0.0]
    """
    classes = scores.shape[1]
    if not classes:
        return np.zeros(len(scores))
    first = scores >= scores.max(axis=1, keepdims=True) - TIE_TOLERANCE
    worth = (np.eye(classes) if credit is None else credit)[:, truth].T  # (n, C)
    right = np.where(truth >= 0, (first * worth).sum(axis=1), 0.0)
    return np.asarray(right / first.sum(axis=1))


def measured(scores: npt.NDArray[Any], truth: npt.NDArray[Any], credit: Floats | None = None) -> RightShare | None:
    """The share of right labels among the items whose true class is known (others: -1), with Wilson's interval.

    The label of an item is the class with the highest of its ``scores`` (n, C), which are votes or probabilities; ties are
    shared; ``credit`` is that of `shared_hits`. None without a true label.

    >>> measured(np.array([[2, 1], [1, 1], [0, 3]]), np.array([0, 0, -1])).share
    0.75
    """
    known = np.flatnonzero(truth >= 0)
    if not len(known):
        return None
    right = float(shared_hits(scores[known], truth[known], credit).sum())
    low, high = wilson(right, len(known))
    return RightShare(right / len(known), float(low), float(high), "measured", len(known))


def estimated(confidence: Floats, n_classes: int) -> RightShare | None:
    """The share expected from the confidence (k,) in labels that nobody has checked; None without labels.

    The interval allows for a third to twice as many errors: errors that annotators share are invisible to it.

    >>> estimated(np.array([0.9, 0.8, 0.7, 1.0]), 2).share
    0.85
    """
    if not len(confidence) or n_classes < 2:
        return None
    found = outlook(confidence, [], n_classes, 1.0)
    return RightShare(found.right, found.low, found.high, "estimated", len(confidence))
