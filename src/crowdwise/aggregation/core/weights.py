"""Weights of annotations, in labels: what one annotator gave one instance is one label, if it weighs what is usual.

Priors of methods are numbers of labels, so the scale of weights must not matter. All that an annotator gave an instance is
one *voice*: a label, the shares of a soft label, or repeats. Weights are divided by the median weight of a voice:

- Weights of 0.1 or of 100 for everybody are weights of 1.
- Two labels of weight 1/2 are one of weight 1.
- A weight of 2 among weights of 1 is the row given twice, and one of 1,000 does not shrink all others.

`USUAL` is the range of medians in which nothing is said about it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.kernels import Cells, Floats, Layout

USUAL = 0.2, 5.0
_DIGITS = 7  # that a weight has as float32
_EQUAL = 1e-6  # shares of soft labels sum to one but for rounding


def voices(cells: Cells, indptr: npt.NDArray[np.int64], n_classes: int) -> npt.NDArray[np.int64]:
    """Number of annotators of every instance, (n,); the cells of an instance are in order.

    >>> voices(np.array([0, 1, 2, 1]), np.array([0, 3, 3, 4]), 2).tolist()
    [2, 0, 1]
    """
    return np.diff(np.append(0, np.cumsum(_first(cells, indptr, n_classes)))[indptr])


def _first(cells: Cells, indptr: npt.NDArray[np.int64], n_classes: int) -> npt.NDArray[np.bool_]:
    """Which cell is the first of its annotator for its instance, (E,)."""
    annotator = cells // cells.dtype.type(n_classes)
    first = np.ones(len(cells), bool)
    first[1:] = annotator[1:] != annotator[:-1]
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    return first


def as_written(weight: npt.NDArray[np.float32]) -> Floats:
    """Weights as they were before float32 took their last digits, so that three times 0.1 is 0.3.

    >>> as_written(np.array([0.1, 3.0], np.float32)).tolist()
    [0.1, 3.0]
    """
    exact = weight.astype(np.float64)
    unit = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(exact)))
    rounded = np.rint(exact * unit) / unit
    return np.where(rounded.astype(np.float32) == weight, rounded, exact)


def voice_weights(layout: Layout) -> Floats:
    """The weight of every voice of a weighted layout, in the order of its cells."""
    if layout.weight is None or not len(layout.cells):
        return np.empty(0)
    return np.add.reduceat(layout.weight, np.flatnonzero(_first(layout.cells, layout.indptr, layout.shape[1])))


def median(values: Floats) -> float:
    """The lower median: one of the values, so that it scales as they do; 1 without any.

    >>> median(np.array([3.0, 1.0, 2.0, 9.0])), median(np.array([]))
    (2.0, 1.0)
    """
    if not len(values):
        return 1.0
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])


def scale_of(usual: float) -> float:
    """What weights are multiplied by if a voice usually weighs this.

    >>> scale_of(0.5), scale_of(1.0000001)
    (2.0, 1.0)
    """
    return 1.0 if abs(usual - 1.0) < _EQUAL else 1.0 / usual


def remark(scale: float) -> str | None:
    """What to say where weights are far from 1; None where they are not."""
    usual = 1.0 / scale
    if USUAL[0] <= usual <= USUAL[1]:
        return None
    return (
        f"the labels of an annotator for an instance usually weigh {usual:.3g}: all weights are divided by that, "
        "so that only their proportions count"
    )
