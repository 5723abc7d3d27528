"""Confidence that does not take annotators' errors for independent.

Models multiply what the labels of an instance say. Where instances differ in difficulty, or annotators err alike, the
product is far too sure: on nine real crowds hierarchical Dawid-Skene claims 97 % and has 87 %. Here the evidence of an
instance is read as votes instead, e = v₁ - v₂ in units of what one vote of this crowd says on average, and

    odds of the most probable class = ((v₁ + 1) / (v₂ + 1)) ** slope,

the odds of an urn that follows its own draws (Pólya): the tenth vote says less than the first. One number, the slope, was
learnt from crowds with known truth (`benchmarks/confidence.py`); gold labels, where given, correct it. No posterior becomes
more certain by it, and no label changes.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import compiled, kernels, queries
from crowdwise.aggregation.core.kernels import Floats, Layout

SLOPE = 2.1
SPREAD = 0.5  # standard deviation of log slope among crowds
SLOPES = np.geomspace(0.1, 10.0, 93)
SMALLEST = 1e-13  # probabilities below are rounding
WEAKEST = 0.05  # least that a vote says, in nats


class Tempering(NamedTuple):
    """How a posterior was tempered."""

    vote: float | None  # nats that one vote says; None: the posterior holds shares of votes
    slope: float
    n_gold: int = 0  # gold labels the slope was learnt from


def first_two(posterior: Floats) -> tuple[Floats, Floats]:
    """The largest and the second largest probability of every row, (n,) each."""
    columns = list(posterior.T)
    top, second = columns[0].copy(), np.zeros(len(posterior))
    for column in columns[1:]:
        np.maximum(second, np.minimum(top, column), out=second)
        np.maximum(top, column, out=top)
    return top, second


def evidence(top: Floats, second: Floats) -> Floats:
    """Log-odds of the most probable class against the next one."""
    return np.asarray(np.log(np.maximum(top, SMALLEST) / np.maximum(second, SMALLEST)))


def vote_evidence(layout: Layout, posterior: Floats, weight: Floats | None = None) -> tuple[float, float]:
    """Sums of evidence times lead and of squared leads, in votes: their ratio is what one vote says.

    ``weight`` (R,): how many votes a label of each annotator is.
    """
    if posterior.shape[1] < 2:
        return 0.0, 0.0
    if layout.compiled and layout.weight is None:
        kernel, none = compiled.evidence_kernel(), np.empty(0)
        rows = layout.cells, layout.indptr, np.ascontiguousarray(posterior), none if weight is None else weight
        along, squared = kernel(*rows, layout.gold, queries.TIE_TOLERANCE, SMALLEST)
        return float(along), float(squared)
    most = queries.choose(posterior, "first", np.random.default_rng(0))
    votes, places = kernels.votes(layout, _by_cell(layout, weight)), np.arange(len(posterior))
    own = votes[places, most]
    votes[places, most] = 0.0
    lead = own - reduce(np.maximum, votes.T)
    if layout.gold.size:
        lead[layout.gold >= 0] = 0.0
    return float(lead @ evidence(*first_two(posterior))), float(lead @ lead)


def tempered(layout: Layout, posterior: Floats, vote: float, slope: float, weight: Floats | None = None) -> Floats:
    """A posterior (n, C) with honest odds; ``vote`` is what one vote says. A copy, gold instances stay certain."""
    if layout.compiled and layout.weight is None:
        result = np.empty(posterior.shape)
        rows = layout.cells, layout.indptr, np.ascontiguousarray(posterior), np.empty(0) if weight is None else weight
        compiled.tempering_kernel()(*rows, vote, slope, queries.TIE_TOLERANCE, SMALLEST, result)
        return queries.clamp(layout, result)
    top, second = first_two(posterior)
    number = label_numbers(layout)
    if weight is not None:
        number = kernels.votes(layout, _by_cell(layout, weight)).sum(axis=1)
    lead = evidence(top, second) / vote
    size = np.maximum(number, lead)
    against = np.exp(slope * np.log((size - lead + 2.0) / (size + lead + 2.0)))
    top = np.maximum(top, SMALLEST)
    np.maximum(against, second / top, out=against)  # never surer than the model
    against += np.maximum(1.0 - top - second, 0.0) / top
    return _with_odds(layout, posterior, against, number > 0)


def tempered_shares(layout: Layout, posterior: Floats, slope: float) -> Floats:
    """`tempered` for shares of votes (n, C)."""
    number = label_numbers(layout)
    top, _ = first_two(posterior)
    highest = top * number + 1.0
    none = highest**-slope
    against = none * (1.0 - posterior.shape[1])  # classes without votes count once, together
    for column in posterior.T:
        against += ((column * number + 1.0) / highest) ** slope
    return _with_odds(layout, posterior, against - 1.0 + none, number > 0)


def label_numbers(layout: Layout) -> Floats:
    """Labels of every instance, (n,): annotations, or the sum of their weights."""
    if layout.weight is None:
        return np.diff(layout.indptr).astype(np.float64)
    return np.bincount(kernels.instances(layout), layout.weight, minlength=len(layout.indptr) - 1).astype(np.float64)


def _by_cell(layout: Layout, weight: Floats | None) -> Floats | None:
    return None if weight is None else np.repeat(weight, layout.shape[1])


def _with_odds(layout: Layout, posterior: Floats, against: Floats, labelled: npt.NDArray[np.bool_]) -> Floats:
    """The posterior with odds 1 : against (n,) of its most probable class; the others keep their proportions."""
    rows, most = np.arange(len(posterior)), queries.choose(posterior, "first", np.random.default_rng(0))
    result = posterior.copy()
    result[rows, most] = 0.0
    others = result @ np.ones(result.shape[1])
    bare = others <= 0.0
    if np.any(bare):
        result[bare] = 1.0
        result[rows[bare], most[bare]] = 0.0
        others[bare] = result.shape[1] - 1.0
    right = 1.0 / (1.0 + against)
    result *= ((1.0 - right) / others)[:, None]
    result[rows, most] = right
    if not np.all(labelled):
        result[~labelled] = posterior[~labelled]
    return queries.clamp(layout, result)


def slope_from_gold(
    layout: Layout, posterior: Floats, vote: float | None, usual: float = SLOPE, weight: Floats | None = None
) -> float:
    """The slope that foretells gold labels best; ``posterior`` (n, C) is what the labels say without them.

    Without gold labels it is the ``usual`` one, and a few hardly move it: log slope is believed to be normal around it.
    """
    if not layout.gold.size:
        return usual
    known = np.flatnonzero((layout.gold >= 0) & (np.diff(layout.indptr) > 0))
    number = np.diff(layout.indptr)[known]
    where = np.repeat(layout.indptr[known] - np.append(0, np.cumsum(number)[:-1]), number) + np.arange(number.sum())
    bare = layout._replace(
        cells=layout.cells[where],
        indptr=np.append(0, np.cumsum(number)),
        gold=np.empty(0, np.int32),
        weight=None if layout.weight is None else layout.weight[where],
    )
    rows, truth = posterior[known], layout.gold[known]
    losses = []
    for slope in SLOPES:
        q = tempered_shares(bare, rows, slope) if vote is None else tempered(bare, rows, vote, slope, weight)
        logs = np.log(np.maximum(q[np.arange(len(q)), truth], 1e-6)).sum()
        losses.append(0.5 * (np.log(slope / usual) / SPREAD) ** 2 - logs)
    return float(SLOPES[int(np.argmin(losses))])
