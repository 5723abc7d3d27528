"""Who errs alike: correlations of errors, effective numbers of votes, and groups that agree too well to be independent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import ndtri

from crowdwise.aggregation.core.kernels import Floats, Layout, instances, labels

SHRINKAGE = 20.0  # instances as which the belief in no correlation counts
MOST = 2_000  # annotators compared at most, those with most labels, since all pairs are
COMMON = 20  # instances in common from which on a pair is looked at
LEVEL = 0.05  # probability of a pair that is taken for dependent by chance, in the whole crowd
WIDER = 1.5  # how much wider agreement spreads in crowds of people than the middle half of their pairs shows
EXCESS = 0.1  # agreement beyond what skills explain, at least
ROUNDS = 40
CLOSE = 0.6  # agreement beyond chance from which on a pair may be too close; below, unequal skills look alike


def error_correlations(
    layout: Layout, reference: Floats, members: npt.NDArray[np.int64], least: int = 20
) -> tuple[Floats, Floats]:
    """Pearson correlations (K, K) of the errors of ``members``, and numbers (K, K) of instances in common.

    An error is 1 - P(the label is right) under the ``reference`` (n, C); rows of zeros are no reference. Correlations are
    shrunk by n / (n + 20), 0 where somebody never errs, and NaN with fewer than ``least`` instances in common.
    """
    errors, there = _errors(layout, reference, members)
    common = np.asarray((there.T @ there).todense(), np.float64)
    sums = np.asarray((errors.T @ there).todense())  # [j, k]: errors of j on what k labelled too
    squares = np.asarray((errors.multiply(errors).T @ there).todense())
    products = np.asarray((errors.T @ errors).todense())
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = products - sums * sums.T / common
        variance = np.maximum(squares - sums**2 / common, 0.0)
        scale = np.sqrt(variance * variance.T)
        found = np.where(scale > 1e-9, covariance / np.maximum(scale, 1e-12), 0.0) * common / (common + SHRINKAGE)
    found[common < least] = np.nan
    np.fill_diagonal(found, 1.0)
    return found, common


def effective_votes(correlations: Floats) -> float:
    """Kish: K / (1 + (K - 1) mean correlation), between 1 and K; pairs without a correlation are left out.

    >>> float(effective_votes(np.array([[1.0, 0.5], [0.5, 1.0]])).__round__(3))
    1.333
    """
    k = len(correlations)
    pairs = correlations[np.triu_indices(k, 1)]
    pairs = pairs[np.isfinite(pairs)]
    mean = float(pairs.mean()) if pairs.size else 0.0
    return float(np.clip(k / max(1.0 + (k - 1) * mean, 1e-9), 1.0, k))


def alike(layout: Layout) -> npt.NDArray[np.int64]:
    """Group of every annotator, (R,): those who agree with each other far more than their skills explain; -1 for others.

    Agreement of independent annotators beyond chance (κ: what the shares of their labels give) is the product of their
    skills, of rank one over all pairs. Deviations from it count in units of their own spread, since instances that are
    hard for everybody make all pairs deviate. Pairs far above are left out (Bonferroni), skills are estimated anew, and in
    the end connected pairs are groups. With few annotators, few instances in common or where most depend on each other
    nothing is found. False alarms and power are measured in benchmarks/known_crowds.py.
    """
    r, c = layout.shape
    groups = np.full(r, -1)
    number = np.bincount(layout.cells // c, minlength=r)
    chosen = np.flatnonzero(number >= 2 * COMMON)
    chosen = np.sort(chosen[np.argsort(-number[chosen], kind="stable")[:MOST]])
    if len(chosen) < 5 or c < 2:
        return groups
    agreed, common = _agreements(layout, chosen)
    independent = (common >= COMMON) & ~np.eye(len(chosen), dtype=bool)
    seen = independent.copy()
    if not np.any(seen):
        return groups
    weight = np.minimum(common, np.median(common[seen]))  # so that a few busy annotators do not set the standard
    number = np.maximum(common, 1.0)
    chance = _chance(layout, chosen)
    beyond = (agreed / number - chance) / (1.0 - chance)
    unlikely = float(ndtri(1.0 - LEVEL / (seen.sum() / 2.0)))
    for _ in range(6):
        skill = _rank_one(beyond, weight * independent)
        expected = np.outer(skill, skill)
        likely = np.clip(chance + expected * (1.0 - chance), 0.05, 0.95)
        deviation = np.sqrt(likely * (1.0 - likely) / number) / (1.0 - chance)
        residual = np.where(seen, beyond - expected, 0.0)
        spread = WIDER * _spread((residual / deviation)[seen])
        bad = seen & (residual > EXCESS) & (residual > unlikely * spread * deviation) & (beyond > CLOSE)
        if np.array_equal(bad, seen & ~independent):
            break
        independent = seen & ~bad
    apart = seen & ~independent
    if not apart.any() or apart.sum() > 0.25 * seen.sum():  # of so many, the model of skills does not fit
        return groups
    from scipy.sparse.csgraph import connected_components  # slow to import

    n_groups, component = connected_components(apart.astype(np.int8), directed=False)
    sizes = np.bincount(component, minlength=n_groups)
    number_of = np.full(n_groups, -1)
    number_of[sizes > 1] = np.arange(np.count_nonzero(sizes > 1))
    groups[chosen] = number_of[component]
    return groups


def _chance(layout: Layout, chosen: npt.NDArray[np.int64]) -> Floats:
    """Probability that two annotators agree by the shares of their labels alone, (K, K)."""
    c = layout.shape[1]
    given = np.bincount(layout.cells, minlength=layout.shape[0] * c).reshape(-1, c)[chosen]
    shares = given / given.sum(axis=1, keepdims=True)
    return np.asarray(np.clip(shares @ shares.T, 1.0 / c, 0.95))


def _spread(values: Floats) -> float:
    """Standard deviation as the middle half of some values shows it, at least 1."""
    return max(1.0, float(np.median(np.abs(values - np.median(values)))) / float(ndtri(0.75)))


def _rank_one(values: Floats, weight: Floats) -> Floats:
    """Non-negative s (K,) for which the outer product is closest to ``values`` (K, K) by ``weight``."""
    total = np.maximum(weight.sum(axis=1), 1e-9)
    s = np.sqrt(np.clip((weight * values).sum(axis=1) / total, 0.05, 1.0))
    for _ in range(ROUNDS):
        s = 0.5 * s + 0.5 * np.clip((weight * values) @ s / np.maximum(weight @ s**2, 1e-9), 0.0, 1.0)
    return np.asarray(s)


def _agreements(layout: Layout, chosen: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Numbers of instances on which pairs agree, and which they have in common, (K, K) each."""
    size, c = len(layout.indptr) - 1, layout.shape[1]
    code = np.full(layout.shape[0], -1)
    code[chosen] = np.arange(len(chosen))
    who = code[layout.cells // c]
    kept = who >= 0
    row, column, label = instances(layout)[kept], who[kept], labels(layout)[kept]
    there = sp.csr_array((np.ones(len(row)), (row, column)), shape=(size, len(chosen)))
    there.data[:] = 1.0
    cells = sp.csr_array((np.ones(len(row)), (row * c + label, column)), shape=(size * c, len(chosen)))
    cells.data[:] = 1.0
    return np.asarray((cells.T @ cells).todense()), np.asarray((there.T @ there).todense())


def _errors(layout: Layout, reference: Floats, members: npt.NDArray[np.int64]) -> tuple[sp.csr_array, sp.csr_array]:
    """Errors (n, K) and which instances have a reference and a label, (n, K)."""
    size, c = reference.shape
    code = np.full(layout.shape[0], -1)
    code[members] = np.arange(len(members))
    row, who, label = instances(layout), code[layout.cells // c], labels(layout)
    kept = (who >= 0) & (reference.sum(axis=1) > 0)[row]
    row, who, label = row[kept], who[kept], label[kept]
    there = sp.csr_array((np.ones(len(row)), (row, who)), shape=(size, len(members)))
    wrong = sp.csr_array((1.0 - reference[row, label], (row, who)), shape=(size, len(members)))
    wrong.data /= np.maximum(there.data, 1.0)
    there.data[:] = 1.0
    return wrong, there
