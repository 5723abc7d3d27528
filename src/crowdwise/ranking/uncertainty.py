"""Uncertainty of scores: errors that are robust to votes which belong together, and ranks that can be told apart.

Votes of one annotator share tastes, and votes on one prompt share its difficulty. The covariance is a sandwich with clusters of
both kinds (A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust Inference with Multiway Clustering", JBES 2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse, special

from crowdwise.data.types import Array, Floats, Ints
from crowdwise.ranking.davidson import curvature, probabilities
from crowdwise.ranking.fitting import (
    Cells,
    Model,
    Parameters,
    annotator_design,
    difference,
    shared_design,
    with_priors,
)
from crowdwise.ranking.votes import LEFT, RIGHT, TIE, Votes

FEWEST = 5  # clusters of a kind below which it is left out
BLOCK = 20_000_000  # numbers held at once while clusters are summed
LARGEST = 100_000_000  # numbers of information across, above which annotators' parameters count as known


@dataclass(frozen=True, eq=False)
class Spread:
    """Covariance of the scores, (K, K), centred within connected parts, and how it was found."""

    covariance: Floats
    freedom: float
    """Degrees of freedom of the t distribution of a score; infinite for single votes."""
    clusters: tuple[str, ...]
    """What votes were taken together by: annotators, instances; empty for single votes."""


@dataclass(frozen=True, eq=False)
class Bread:
    """The inverse information of the p common parameters, and how the annotators' parameters answer to them."""

    inverse: Floats
    """(p, p)"""
    answer: Floats | None
    """(p, 3 R): information across, times the annotators' inverse; None if they have no parameters of their own."""


def bread(cells: Cells, at: Parameters, model: Model, *, own: bool) -> Bread:
    """The information of scores and common parameters, with the annotators' parameters profiled out."""
    u, t, skill = difference(cells, at)
    found = curvature(cells.counts, u, t)
    _, information = shared_design(cells, found, skill, model)
    information = with_priors(information, model, cells.size)
    if not own or len(information) * cells.n_annotators * 3 > LARGEST:
        return Bread(np.asarray(linalg.pinvh(information)), None)
    slope = skill * (at.score[cells.left] - at.score[cells.right])
    across = np.zeros((len(information), cells.n_annotators, 3))
    by_parameter = ((found.uu * slope, found.ut * slope), (found.uu, found.ut), (found.ut, found.tt))
    free = (True, model.order, model.ties)
    for column, (with_u, with_t) in enumerate(by_parameter):
        if not free[column]:
            continue
        across[: cells.size, :, column] = _by_contestant(cells, skill * with_u)
        if model.order:
            across[cells.size, :, column] = np.bincount(cells.annotator, with_u, cells.n_annotators)
        if model.ties:
            across[-1, :, column] = np.bincount(cells.annotator, with_t, cells.n_annotators)
    _, own_information = annotator_design(cells, at, model)
    answer = np.einsum("paj,ajk->pak", across, np.linalg.inv(own_information)).reshape(len(information), -1)
    profiled = information - answer @ across.reshape(len(information), -1).T
    return Bread(np.asarray(linalg.pinvh(profiled)), answer)


def _by_contestant(cells: Cells, values: Floats) -> Floats:
    """(K, R): what the cells of an annotator add to the contestant on the left, and take from the one on the right."""
    rows = np.concatenate([cells.left, cells.right])
    people = np.tile(cells.annotator, 2)
    shape = (cells.size, cells.n_annotators)
    return np.asarray(sparse.csr_array((np.concatenate([values, -values]), (rows, people)), shape=shape).toarray())


def score_rows(cells: Cells, at: Parameters, number: Ints, outcome: Array, weight: Floats) -> tuple[Floats, Floats]:
    """Derivative of each vote's log-likelihood by u and by t, (E,) each; ``number`` is the cell of a vote."""
    u, t, _ = difference(cells, at)
    chance = probabilities(u, t)
    mean = (chance[:, LEFT] - chance[:, RIGHT]) / 2
    side = np.array([0.5, -0.5, 0.0])[outcome]
    return weight * (side - mean[number]), weight * ((outcome == TIE) - chance[number, TIE])


def meat(
    cells: Cells,
    at: Parameters,
    model: Model,
    answer: Floats | None,
    cluster: Ints,
    number: Ints,
    by_u: Floats,
    by_t: Floats,
) -> tuple[Floats, int]:
    """Sum over clusters of the outer product of their summed scores, (p, p), and how many clusters there are."""
    _, cluster = np.unique(cluster, return_inverse=True)
    n_clusters, size = int(cluster.max()) + 1, cells.size
    width = size + model.free
    skill = np.exp(at.annotator[cells.annotator[number], 0])
    columns = [cells.left[number], cells.right[number]]
    values = [skill * by_u, -skill * by_u]
    if model.order:
        columns.append(np.full(len(number), size))
        values.append(by_u)
    if model.ties:
        columns.append(np.full(len(number), width - 1))
        values.append(by_t)
    rows = np.tile(cluster, len(columns))
    shape = (n_clusters, width)
    scores = sparse.csr_array((np.concatenate(values), (rows, np.concatenate(columns))), shape=shape)
    others = None
    if answer is not None:
        slope = skill * (at.score[cells.left[number]] - at.score[cells.right[number]])
        person = cells.annotator[number]
        firsts = [slope * by_u, by_u * model.order, by_t * model.ties]
        places = np.concatenate([person * 3 + column for column in range(3)])
        shape = (n_clusters, 3 * cells.n_annotators)
        others = sparse.csr_array((np.concatenate(firsts), (np.tile(cluster, 3), places)), shape=shape)
    total = np.zeros((width, width))
    block = max(BLOCK // width, 1)
    for start in range(0, n_clusters, block):
        part = scores[start : start + block].toarray()
        if others is not None and answer is not None:
            part -= others[start : start + block] @ answer.T
        total += part.T @ part
    return total, n_clusters


def spread(cells: Cells, votes: Votes, at: Parameters, model: Model, *, own: bool) -> Spread:
    """The covariance of the scores, with votes of an annotator and votes on an instance taken together."""
    found = bread(cells, at, model, own=own)
    kinds = {"annotators": votes.annotator, "instances": votes.instance}
    known = {name: codes.astype(np.int64) for name, codes in kinds.items() if codes is not None}
    known = {name: codes for name, codes in known.items() if len(np.unique(codes)) >= FEWEST}
    if known:
        middle, freedom = _two_way(cells, votes, at, model, found.answer, known)
    else:
        middle, freedom = _single_votes(cells, votes, at, model, found.answer), np.inf
    covariance = (found.inverse @ middle @ found.inverse)[: cells.size, : cells.size]
    return Spread(_centred(covariance, model.components), freedom, tuple(known))


def _two_way(
    cells: Cells, votes: Votes, at: Parameters, model: Model, answer: Floats | None, known: dict[str, Ints]
) -> tuple[Floats, float]:
    by_u, by_t = score_rows(cells, at, cells.number, votes.outcome, votes.weights)

    def of(cluster: Ints) -> tuple[Floats, int]:
        total, number = meat(cells, at, model, answer, cluster, cells.number, by_u, by_t)
        return total * number / (number - 1), number

    parts = [of(codes) for codes in known.values()]
    middle = sum((part for part, _ in parts), np.zeros(1))
    if len(known) == 2:
        first, second = known.values()
        both, _ = of(first * (int(second.max()) + 1) + second)
        values, vectors = np.linalg.eigh(middle - both)
        middle = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return middle, float(min(number for _, number in parts) - 1)


def _single_votes(cells: Cells, votes: Votes, at: Parameters, model: Model, answer: Floats | None) -> Floats:
    """Meat of votes that have nothing in common: equal votes have equal scores, so that cells are enough."""
    squares = np.bincount(cells.number * 3 + votes.outcome, votes.weights**2, len(cells.left) * 3)
    present = np.flatnonzero(squares)
    number, outcome = np.divmod(present, 3)
    by_u, by_t = score_rows(cells, at, number, outcome, np.sqrt(squares[present]))
    total, _ = meat(cells, at, model, answer, np.arange(len(present)), number, by_u, by_t)
    return total


def _centred(covariance: Floats, components: Ints) -> Floats:
    """The covariance of scores minus the mean of their connected part."""
    same = (components[:, None] == components).astype(np.float64)
    project = np.eye(len(components)) - same / same.sum(axis=1)
    return np.asarray(project @ covariance @ project.T)


def differences(score: Floats, covariance: Floats, freedom: float) -> tuple[Floats, Floats]:
    """Differences of all pairs of scores divided by their standard errors, and two-sided p-values, (K, K)."""
    variance = np.diag(covariance)
    error = np.sqrt(np.maximum(variance[:, None] + variance - 2 * covariance, 0.0))
    gap = score[:, None] - score
    z = np.divide(gap, error, out=np.zeros_like(gap), where=error > 1e-12)
    tail = special.ndtr(-np.abs(z)) if np.isinf(freedom) else special.stdtr(freedom, -np.abs(z))
    return z, np.minimum(2 * tail, 1.0)


def holm(p_values: Floats) -> Floats:
    """Adjusted p-values of one family of tests, (m,): S. Holm (Scandinavian Journal of Statistics 1979).

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted


def told_apart(score: Floats, found: Spread, components: Ints, level: float) -> Floats:
    """(K, K): Holm-adjusted p-values of the differences within connected parts; 1 across them."""
    _, raw = differences(score, found.covariance, found.freedom)
    adjusted = np.ones_like(raw)
    for part in np.unique(components):
        members = np.flatnonzero(components == part)
        first, second = np.triu_indices(len(members), 1)
        if not first.size:
            continue
        values = holm(raw[members[first], members[second]])
        adjusted[members[first], members[second]] = values
        adjusted[members[second], members[first]] = values
    return adjusted
