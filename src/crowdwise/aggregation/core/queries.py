"""What is asked of annotations: pure functions of a layout, whose answers for parts of a crowd add up to that for all of it.

Some return an array over instances, of which a part has its own rows. The hot ones are in `kernels` and `bayes_kernels`.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.kernels import Floats, Layout

Tie = Literal["first", "random"]
TIE_TOLERANCE = 1e-9  # posteriors closer than this are a tie: rounding must not decide
NO_TIE = 1e-6  # what keeps a class the most probable one

# arrays over instances


def majority(layout: Layout) -> Floats:
    """Soft majority vote (n, C): shares of votes; uniform without votes; one-hot where gold is known."""
    return clamp(layout, shares(kernels.votes(layout)))


def weighted_majority(layout: Layout, weight: Floats) -> Floats:
    """Shares (n, C) of the votes weighted by annotator (R,); plain shares where no vote has any weight."""
    votes = kernels.votes(layout, np.repeat(weight, layout.shape[1]))
    weightless = votes.sum(axis=1) <= 0
    if np.any(weightless):
        votes[weightless] = kernels.votes(layout)[weightless]
    return clamp(layout, shares(votes))


def mean(layout: Layout, *posteriors: Floats) -> Floats:
    """The mean of several posteriors (n, C)."""
    total = posteriors[0].copy()
    for posterior in posteriors[1:]:
        total += posterior
    total /= len(posteriors)
    return total


def with_confidence(layout: Layout, posterior: Floats, other: Floats) -> Floats:
    """A posterior (n, C) whose most probable classes are as probable as in the ``other`` one; a copy.

    They stay the most probable ones, and the other classes keep their proportions. Ties, instances without labels and gold
    instances stay as they are.
    """
    rows, most = np.arange(len(posterior)), choose(posterior, "first", np.random.default_rng(0))
    result = posterior.copy()
    result[rows, most] = 0.0
    rest = result.sum(axis=1)
    largest = result.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = largest / (rest + largest)  # as probable as the next class
        right = np.maximum(other[rows, most], least + NO_TIE)
        result *= ((1.0 - right) / rest)[:, None]
    result[rows, most] = right
    tied = largest >= posterior[rows, most] - TIE_TOLERANCE
    kept = tied | (rest < kernels.TINY) | (np.diff(layout.indptr) == 0)
    result[kept] = posterior[kept]
    return clamp(layout, result)


def clamp(layout: Layout, posterior: Floats) -> Floats:
    """The same array, with the rows of gold instances made one-hot."""
    if layout.gold.size:
        known = np.flatnonzero(layout.gold >= 0)
        posterior[known] = 0.0
        posterior[known, layout.gold[known]] = 1.0
    return posterior


def labels(layout: Layout, posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Code of the most probable class of every instance, (n,): see `choose`."""
    return choose(posterior, tie, rng)


def of_instances(layout: Layout, rows: npt.NDArray[np.int64]) -> Layout:
    """The annotations of some instances alone."""
    number = np.diff(layout.indptr)[rows]
    indptr = np.append(0, np.cumsum(number))
    where = np.repeat(layout.indptr[rows] - indptr[:-1], number) + np.arange(indptr[-1])
    weight = None if layout.weight is None else layout.weight[where]
    gold = layout.gold[rows] if layout.gold.size else layout.gold
    return layout._replace(cells=layout.cells[where], indptr=indptr, gold=gold, weight=weight)


def against_votes(votes: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which labels (n,) have fewer votes (n, C) than another class; one of several with most votes is not against them.

    >>> against_votes(np.array([[2, 1], [1, 1], [0, 0]]), np.array([1, 1, 1])).tolist()
    [True, False, False]
    """
    return np.asarray(votes[np.arange(len(votes)), labels] < votes.max(axis=1))


def tied_votes(votes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Of which instances (n,) two classes or more have most votes (n, C); where nobody voted, nothing is tied.

    >>> tied_votes(np.array([[2, 1], [1, 1], [0, 0]])).tolist()
    [False, True, False]
    """
    most = votes.max(axis=1, initial=0)
    return np.asarray(((votes == most[:, None]).sum(axis=1) > 1) & (most > 0))


# sums


def hard_counts(layout: Layout, posterior: Floats) -> tuple[Floats, Floats, float]:
    """Counts (R, C, C) and class mass (C,) of the most probable classes, and the sum of their log-probabilities.

    Classes that tie share the instance.
    """
    hard = tops(posterior)
    logs = float(np.log(posterior.max(axis=1))[np.diff(layout.indptr) > 0].sum())
    return kernels.confusion_counts(layout, hard), mass(layout, hard), logs


def top_hits(layout: Layout, posterior: Floats) -> Floats:
    """How many labels of every annotator are the most probable class (n, C) of their instance; ties count by share: (R,)."""
    return np.asarray(kernels.hits(layout, tops(posterior)).sum(axis=1))


def top_differences(layout: Layout, posterior: Floats, other: Floats) -> int:
    """How many instances have other most probable classes in ``other`` (n, C)."""
    return int(np.count_nonzero((tops(posterior) != tops(other)).any(axis=1)))


def mass(layout: Layout, posterior: Floats) -> Floats:
    """Sum of the posteriors of labelled instances, (K,)."""
    return np.asarray((np.diff(layout.indptr) > 0).astype(np.float64) @ posterior)


def agreements(layout: Layout, labels: npt.NDArray[Any]) -> Floats:
    """How many labels of every annotator agree with the labels (n,) of the instances: (R,)."""
    agree = kernels.labels(layout) == np.repeat(labels, np.diff(layout.indptr))
    return _by_annotator(layout, agree)


def labels_within(layout: Layout, chosen: npt.NDArray[np.bool_]) -> Floats:
    """How many of the chosen (n,) instances every annotator labelled, (R,)."""
    rows = np.repeat(chosen, np.diff(layout.indptr))
    return _by_annotator(layout, rows)


def _by_annotator(layout: Layout, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Number of the chosen (E,) annotations of every annotator, (R,)."""
    weight = None if layout.weight is None else layout.weight[chosen]
    return np.bincount(layout.cells[chosen] // layout.shape[1], weight, minlength=layout.shape[0]).astype(np.float64)


def differing_tops(layout: Layout, posterior: Floats, other: Floats) -> int:
    """`top_differences` among the instances with labels."""
    labelled = np.flatnonzero(np.diff(layout.indptr))
    return top_differences(layout, posterior[labelled], other[labelled])


def distance(layout: Layout, posterior: Floats, other: Floats) -> float:
    """Largest difference of two posteriors (n, C)."""
    return float(np.abs(posterior - other).max())


def pairs(layout: Layout) -> tuple[float, float]:
    """Ordered pairs of labels of an instance that agree, and all such pairs."""
    votes, number = kernels.votes(layout), np.diff(layout.indptr).astype(np.float64)
    if layout.weight is not None:  # the labels that an annotator gave an instance are no pairs
        cells = kernels.incidence(layout).copy()  # it shares indptr with the layout, and sums are in place
        cells.sum_duplicates()
        annotators = cells.copy()  # sums in place
        annotators.indices //= layout.shape[1]
        annotators.sum_duplicates()
        everything, own = votes.sum(axis=1), float(annotators.data @ annotators.data)
        return float(np.vdot(votes, votes) - cells.data @ cells.data), float(everything @ everything - own)
    return float(np.vdot(votes, votes - 1.0)), float(number @ (number - 1.0))


# posteriors


def choose(posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Code of the most probable class of every row, (n,); equals within 1e-9 are a tie.

    >>> choose(np.array([[0.5, 0.5], [0.2, 0.8]]), "first", np.random.default_rng(0))
    array([0, 1])
    """
    n, c = posterior.shape
    if c == 0:
        return np.zeros(n, np.int64)
    # numpy reduces short rows slowly, column by column is many times faster
    top = functools.reduce(np.maximum, posterior.T) if c <= 32 else posterior.max(axis=1)
    threshold = top - TIE_TOLERANCE
    if tie == "random":
        return np.asarray(np.where(posterior >= threshold[:, None], rng.random((n, c)), -1.0).argmax(axis=1))
    if c > 32:
        return np.asarray((posterior >= threshold[:, None]).argmax(axis=1))
    codes = np.full(n, c - 1)
    for k in range(c - 2, -1, -1):
        codes[posterior[:, k] >= threshold] = k
    return codes


def tops(posterior: Floats) -> Floats:
    """1 for the most probable class of every row, or equal shares for those that tie: (n, C).

    >>> tops(np.array([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]])).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    most = functools.reduce(np.maximum, posterior.T) if posterior.shape[1] <= 32 else posterior.max(axis=1)
    return shares((posterior >= (most - TIE_TOLERANCE)[:, None]).astype(np.float64))


def shares(votes: Floats) -> Floats:
    """Rows divided by their sums, uniform where a row is all zeros; in place."""
    total = votes @ np.ones(votes.shape[1])  # several times faster than a sum along short rows
    empty = total == 0
    if np.any(empty):
        votes[empty] = 1.0
        total[empty] = votes.shape[1]
    votes /= total[:, None]
    return votes
