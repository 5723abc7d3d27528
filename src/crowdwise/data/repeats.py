"""Several labels of an instance by one annotator: repeats, and soft labels, whose weights sum to 1.

``pairs`` (E,) number the instance and annotator of every annotation, as `crowdwise.data.codes.cells` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.data.codes import cells, distinct_rows
from crowdwise.data.types import Array, Floats, Ints
from crowdwise.errors import AnnotationError

NEGLIGIBLE = 0.01  # probabilities of soft labels below this are left out


def count_repeats(pairs: Ints, label: Array, n_classes: int, weight: Array | None) -> int:
    """Annotations that repeat the pair of an earlier one; with weights, of pairs with a label twice or more than one in all."""
    if weight is None:
        if not np.all(pairs[1:] > pairs[:-1]):
            pairs.sort()  # in place: there may be a hundred million
        return int(np.count_nonzero(pairs[1:] == pairs[:-1]))
    repeated, number = _repeated(pairs, label, n_classes, weight)
    return int(np.count_nonzero(repeated[number]) - np.count_nonzero(repeated))


def settled(policy: str, pairs: Ints, label: Array, n_classes: int, weight: Array | None) -> tuple[Ints, Floats | None]:
    """Rows, ascending, that a policy for repeats keeps, and their weights; pairs that are not repeated stay as they are.

    ``policy`` is "first", "last" or "share". A soft label is several annotations of a pair, but no repeat.

    >>> settled("last", np.array([0, 0, 1]), np.array([0, 1, 1]), 2, None)
    (array([1, 2]), None)
    """
    if policy == "share":
        return _shared(pairs, label, n_classes, weight)
    if weight is None:
        return distinct_rows(pairs, last=policy == "last"), None
    repeated, number = _repeated(pairs, label, n_classes, weight)
    kept = ~repeated[number]
    kept[distinct_rows(pairs, last=policy == "last")] = True
    rows = np.flatnonzero(kept)
    return rows, weight[rows].astype(np.float64)


def heaviest(pairs: Array, weight: Array) -> Ints:
    """Rows, ascending, of the label of every pair that weighs most; the first of equals."""
    order = np.lexsort((np.arange(len(pairs)), -weight, pairs))
    return np.sort(order[np.flatnonzero(np.diff(pairs[order], prepend=-1))])


def _shared(pairs: Ints, label: Array, n_classes: int, weight: Array | None) -> tuple[Ints, Floats]:
    """Rows of the distinct labels of every pair, ascending, and their weights: of a repeated pair, the share of its labels."""
    given = np.ones(len(pairs)) if weight is None else weight.astype(np.float64)
    repeated, pair = _repeated(pairs, label, n_classes, given)
    _, first, number = np.unique(cells(pair, n_classes, label), return_index=True, return_inverse=True)
    whole = np.where(repeated, np.bincount(pair, given), 1.0)
    share = np.bincount(number, given) / whole[pair[first]]
    order = np.argsort(first)
    return first[order], share[order]


def _repeated(pairs: Ints, label: Array, n_classes: int, weight: Array) -> tuple[Array, Ints]:
    """Whether each distinct pair is repeated: a label twice, or more than one label in all; and each row's pair among them."""
    _, number, times = np.unique(pairs, return_inverse=True, return_counts=True)
    labels = np.unique(cells(number, n_classes, label))
    repeated = np.bincount(labels // max(n_classes, 1), minlength=len(times)) < times
    repeated |= (np.bincount(number, weight, len(times)) > 1 + 1e-4) & (times > 1)
    return repeated, number


def soft_shares(probabilities: Any) -> Floats:
    """Probabilities (n, R, C), from such or from (n, C): negligible ones are 0, the others sum to 1 or, if missing, to 0."""
    given = np.asarray(probabilities, np.float64)
    given = given[:, None] if given.ndim == 2 else given
    if given.ndim != 3:
        raise AnnotationError(f"probabilities must have the shape (n, R, C) or (n, C), got {given.shape}")
    given = np.where(np.isnan(given).any(axis=2, keepdims=True), 0.0, given)
    if (given < 0).any() or not np.isfinite(given).all():
        raise AnnotationError("probabilities must be 0 or more")
    total = given.sum(axis=2, keepdims=True)
    shares = np.divide(given, total, out=np.zeros_like(given), where=total > 0)
    shares[shares < NEGLIGIBLE] = 0.0
    return np.asarray(shares / np.maximum(shares.sum(axis=2, keepdims=True), NEGLIGIBLE))
