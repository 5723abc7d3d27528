"""Agreement of a whole crowd in one number.

Notation: instance i has m_i labels, n_ic of them for class c. Instances with one label only count in measures that
estimate class frequencies from all labels (Fleiss, Gwet).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import sparse

from crowdwise.agreement._result import Agreement
from crowdwise.agreement._values import Values, Weights, class_credit, class_values
from crowdwise.agreement._votes import CHUNK, Bootstrap, Statistic, Votes, following
from crowdwise.annotations import Annotations
from crowdwise.constraints import check_value
from crowdwise.data.codes import cells, row_blocks
from crowdwise.data.types import Floats, RandomState
from crowdwise.errors import AnnotationError, ConfigError, spelled

Level = Literal["nominal", "ordinal", "interval", "ratio"]


def raw_agreement(
    annotations: Any, *, confidence: float = 0.95, n_bootstrap: int = 1000, random_state: RandomState = None
) -> Agreement:
    """Share of the pairs of labels of an instance that agree, averaged over the instances with two or more labels.

    >>> round(raw_agreement([[0, 0, 1], [1, 1, 1]], n_bootstrap=0).value, 3)
    0.667
    """
    votes = Votes.of(Annotations.coerce(annotations).hard())
    return measured(RAW, votes, raw_statistic(votes), Bootstrap(n_bootstrap, confidence, random_state))


def fleiss_kappa(
    annotations: Any, *, confidence: float = 0.95, n_bootstrap: int = 1000, random_state: RandomState = None
) -> Agreement:
    """Fleiss' kappa (Fleiss 1971), for any number of labels per instance.

    Chance agreement is the sum of p_c^2 over the classes, where p_c is the mean of n_ic / m_i over the labelled
    instances (Gwet 2014, section 2.6). This is Fleiss' own p_c if all instances have equally many labels.

    >>> round(fleiss_kappa([[0, 0, 1], [1, 1, 1]], n_bootstrap=0).value, 3)
    0.25
    """
    votes = Votes.of(Annotations.coerce(annotations).hard())
    return measured(FLEISS, votes, fleiss_statistic(votes), Bootstrap(n_bootstrap, confidence, random_state))


def gwet_ac1(
    annotations: Any, *, confidence: float = 0.95, n_bootstrap: int = 1000, random_state: RandomState = None
) -> Agreement:
    """Gwet's AC1 (Gwet 2008), which stays meaningful if one class is much more frequent than the others.

    Chance agreement is the sum of p_c (1 - p_c) over the classes, divided by C - 1, with p_c as in `fleiss_kappa`.
    Classes that nobody chose count in C.

    >>> round(gwet_ac1([[0, 0, 1], [1, 1, 1]], n_bootstrap=0).value, 3)
    0.4
    """
    votes = Votes.of(Annotations.coerce(annotations).hard())
    return measured(GWET, votes, gwet_statistic(votes), Bootstrap(n_bootstrap, confidence, random_state))


def scott_pi(
    annotations: Any, *, confidence: float = 0.95, n_bootstrap: int = 1000, random_state: RandomState = None
) -> Agreement:
    """Scott's pi (Scott 1955), over all pairs of labels of the crowd.

    Every pair of labels of an instance counts once, so instances with many labels weigh more than in Fleiss' kappa;
    if all have equally many, the two are the same. `pairwise` has Scott's pi of every two annotators.

    >>> round(scott_pi([[0, 0, 1], [1, 1, 1]], n_bootstrap=0).value, 3)
    0.25
    """
    votes = Votes.of(Annotations.coerce(annotations).hard())
    return measured(SCOTT, votes, scott_statistic(votes), Bootstrap(n_bootstrap, confidence, random_state))


def krippendorff_alpha(
    annotations: Any,
    level: Level = "nominal",
    *,
    values: Values | None = None,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    random_state: RandomState = None,
) -> Agreement:
    """Krippendorff's alpha (Krippendorff 2011); any labels may be missing.

    ``level`` decides how the difference between two labels is measured: equal or not (nominal), by rank (ordinal), by
    difference (interval), or by difference relative to the sum (ratio). ``values`` holds the number of each class. It
    defaults to the classes themselves if they are numbers (or strings of digits), else, for ordinal only, to their
    order in ``annotations.classes``.

    >>> rows = [[1, 1, None], [2, 2, 3], [3, 3, 3], [None, 1, 2]]
    >>> [round(krippendorff_alpha(rows, level, n_bootstrap=0).value, 3) for level in ("nominal", "ordinal", "interval")]
    [0.455, 0.74, 0.739]
    """
    crowd = Annotations.coerce(annotations).hard()
    votes = Votes.of(crowd)
    statistic = alpha_statistic(crowd, votes, level, values)
    return measured(alpha_name(level), votes, statistic, Bootstrap(n_bootstrap, confidence, random_state))


def cohen_kappa(
    annotations: Any,
    *,
    weights: Weights | None = None,
    values: Values | None = None,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    random_state: RandomState = None,
) -> Agreement:
    """Cohen's kappa (Cohen 1960, 1968) of a crowd; for more than two annotators, the generalisation of Conger (1980).

    Chance agreement is averaged over all pairs of annotators, each choosing classes with the frequencies of all labels
    he or she gave; annotators without labels do not count. `pairwise` computes the kappa of every two annotators, and
    explains ``weights`` and ``values``.

    >>> round(cohen_kappa([[0, 0], [1, 1], [0, 0], [1, 0]], n_bootstrap=0).value, 3)
    0.5
    """
    crowd, bootstrap = Annotations.coerce(annotations).hard(), Bootstrap(n_bootstrap, confidence, random_state)
    return cohen(crowd, Votes.of(crowd), bootstrap, weights, values)


def coincidences(annotations: Any) -> Floats:
    """Krippendorff's coincidence matrix (C, C): pairs of labels within instances, each weighted by 1 / (m_i - 1).

    >>> coincidences([[0, 0, 1], [1, 1, 1]])
    array([[1., 1.],
           [1., 3.]])
    """
    votes = Votes.of(Annotations.coerce(annotations).hard())
    weight = votes.count * _per_partner(votes)
    weighted = sparse.csr_array(votes.table.multiply(weight[:, None]))
    return np.asarray((votes.table.T @ weighted).toarray() - np.diag(votes.table.T @ weight))


RAW, FLEISS, GWET, SCOTT = "raw agreement", "Fleiss' kappa", "Gwet's AC1", "Scott's pi"


def alpha_name(level: Level) -> str:
    """Name of alpha in results."""
    return f"Krippendorff's alpha ({level})"


def measured(name: str, votes: Votes, statistic: Statistic, bootstrap: Bootstrap) -> Agreement:
    """A statistic of the votes, with its interval."""
    value, interval = bootstrap.estimate(votes, statistic)
    return Agreement(name, value, interval, votes.n_pairable, bootstrap.confidence)


def raw_statistic(votes: Votes) -> Statistic:
    """Mean over instances of the share of pairs of labels that agree."""
    pairs = votes.size * (votes.size - 1)
    pairable = (pairs > 0).astype(np.float64)
    share = _agreeing(votes) / np.maximum(pairs, 1)
    return lambda weights: (weights @ share) / (weights @ pairable)


def fleiss_statistic(votes: Votes) -> Statistic:
    """Raw agreement, corrected by the chance that two labels drawn from p_c agree."""
    raw, shares = raw_statistic(votes), _class_shares(votes)
    return lambda weights: corrected(raw(weights), _squares(shares(weights)))


def gwet_statistic(votes: Votes) -> Statistic:
    """Raw agreement, corrected by Gwet's chance that a label is random and agrees."""
    raw, shares, others = raw_statistic(votes), _class_shares(votes), np.float64(votes.table.shape[1] - 1)
    return lambda weights: corrected(raw(weights), (1 - _squares(shares(weights))) / others)


def scott_statistic(votes: Votes) -> Statistic:
    """Agreement of all pairs of labels, corrected by the chance that two labels drawn from the pairs agree."""
    agreeing, partners = _agreeing(votes), votes.size - 1
    in_pairs = sparse.csr_array(votes.table.multiply(partners[:, None]))  # (P, C)

    def value(weights: Floats) -> Floats:
        labels = weights @ in_pairs
        total = labels.sum(axis=1)
        return corrected((weights @ agreeing) / total, _squares(labels / total[:, None]))

    return value


def alpha_statistic(annotations: Annotations, votes: Votes, level: Level, values: Values | None) -> Statistic:
    """1 - observed / expected disagreement, with the squared differences of ``level``."""
    check_value("level", level, Level)
    if level == "ordinal":
        return _ordinal_alpha(votes, class_values(annotations, values))
    if level == "nominal":
        observed, expected = _nominal(votes)
    else:
        number = class_values(annotations, values, need=f"{level} alpha")
        observed, expected = _interval(votes, number) if level == "interval" else _ratio(votes, number)
    paired = _pairable(votes)

    def value(weights: Floats) -> Floats:
        labels = weights @ paired  # (B, C)
        return _alpha(labels.sum(axis=1), weights @ observed, expected(labels))

    return value


Disagreement = tuple[Floats, Callable[[Floats], Floats]]
"""Observed disagreement of each pattern (P,), and a function from labels by class (B, C) to the expected one (B,)."""


def _nominal(votes: Votes) -> Disagreement:
    observed = within(votes, lambda c, k: np.not_equal(c, k).astype(np.float64))
    return observed, lambda labels: labels.sum(axis=1) ** 2 - _squares(labels)


def _interval(votes: Votes, number: Floats) -> Disagreement:
    # Alpha does not depend on unit or origin; scaling to 0..1 keeps precision if the numbers are large.
    scaled = (number - number.min(initial=np.inf)) / (np.ptp(number) if len(np.unique(number)) > 1 else 1.0)
    observed = within(votes, lambda c, k: (scaled[c] - scaled[k]) ** 2)
    return observed, lambda labels: _spread(labels.sum(axis=1), labels @ scaled, labels @ scaled**2)


def _ratio(votes: Votes, number: Floats) -> Disagreement:
    if number.min(initial=0) < 0:
        raise AnnotationError(
            f"ratio alpha needs classes of 0 or more, got {number.min():g}; say {spelled('level', 'interval')}",
            parameter="level",
        )
    observed = within(votes, lambda c, k: _relative(number[c], number[k]))
    table = _relative(number[:, None], number)
    return observed, lambda labels: np.einsum("bc,bc->b", labels @ table, labels)


def _ordinal_alpha(votes: Votes, number: Floats) -> Statistic:
    """Alpha with the difference of mid-ranks among all labels as the difference of two classes.

    Krippendorff's n_c/2 + n_c+1 + ... + n_k/2 is the mid-rank of k minus that of c. Ranks depend on the labels, so
    they are recomputed for each resample.
    """
    if len(np.unique(number)) < len(number):
        raise ConfigError(f"ordinal alpha needs different values for different classes, got {number.tolist()}")
    paired = sparse.csr_array(_pairable(votes)[:, np.argsort(number)])
    size, per_partner = votes.size[:, None], _per_partner(votes)[:, None]

    def value(weights: Floats) -> Floats:
        labels = weights @ paired  # (B, C)
        total = labels.sum(axis=1)
        rank = (labels.cumsum(axis=1) - labels / 2) / total[:, None] - 0.5  # the scale cancels
        inside = _spread(size, paired @ rank.T, paired @ (rank**2).T) * per_partner  # (P, B)
        observed = np.einsum("bp,pb->b", weights, inside)
        expected = _spread(total, (labels * rank).sum(axis=1), (labels * rank**2).sum(axis=1))
        return _alpha(total, observed, expected)

    return value


def _alpha(total: Floats, observed: Floats, expected: Floats) -> Floats:
    """1 - observed / expected disagreement; NaN if all labels are the same (expected is 0, up to rounding)."""
    varied = expected > 1e-12 * total**2
    return np.where(varied, 1 - (total - 1) * observed / np.where(varied, expected, 1), np.nan)


def corrected(observed: Floats, chance: Floats) -> Floats:
    """Agreement above chance as a share of what is possible; NaN if chance agreement is 1."""
    possible = 1 - chance
    return np.where(possible > 1e-12, (observed - chance) / np.where(possible > 1e-12, possible, 1), np.nan)


def _squares(numbers: Floats) -> Floats:
    return np.asarray(np.einsum("bc,bc->b", numbers, numbers))


def _spread(total: Floats, first: Floats, second: Floats) -> Floats:
    """Sum of squared differences over all ordered pairs, from the count, sum and sum of squares of the values."""
    return 2 * (total * second - first**2)


def _relative(c: Floats, k: Floats) -> Floats:
    """((c - k) / (c + k))^2, and 0 for two zeros."""
    total = c + k
    return np.asarray(((c - k) / np.where(total > 0, total, 1)) ** 2)


def _per_partner(votes: Votes) -> Floats:
    """1 / (m - 1), and 0 for a single label."""
    return np.where(votes.size >= 2, 1 / np.maximum(votes.size - 1, 1), 0.0)


def _pairable(votes: Votes) -> sparse.csr_array[Any]:
    """The votes of patterns with two or more labels; other rows are zero."""
    return sparse.csr_array(votes.table.multiply((votes.size >= 2)[:, None]))


def _agreeing(votes: Votes) -> Floats:
    """Ordered pairs of equal labels in each pattern, (P,)."""
    return np.asarray(votes.table.power(2).sum(axis=1)) - votes.size


def _class_shares(votes: Votes) -> Callable[[Floats], Floats]:
    """Mean share of each class among the labels of an instance, (B, C)."""
    shares = sparse.csr_array(votes.table.multiply(1 / votes.size[:, None]))
    return lambda weights: (weights @ shares) / weights.sum(axis=1, keepdims=True)


def within(votes: Votes, difference: Callable[[Any, Any], Floats]) -> Floats:
    """Disagreement in each pattern, (P,): squared differences over ordered pairs of labels, divided by m - 1."""
    number, label = votes.table.data, votes.table.indices
    pattern = np.repeat(np.arange(len(votes.count)), np.diff(votes.table.indptr))
    last = votes.table.indptr[1:][pattern].astype(np.int64)
    one, other = following(last, np.arange(len(label)))
    disagreement = 2 * number[one] * number[other] * difference(label[one], label[other])
    return np.bincount(pattern[one], disagreement, len(votes.count)) * _per_partner(votes)


def cohen(
    annotations: Annotations,
    votes: Votes,
    bootstrap: Bootstrap,
    weights: Weights | None = None,
    values: Values | None = None,
) -> Agreement:
    """`cohen_kappa` from votes already counted."""
    if weights is not None:
        check_value("weights", weights, Weights)
    credit = None if weights is None else class_credit(class_values(annotations, values), weights)
    size = len(votes.pattern)
    if credit is None:
        disagreement = within(votes, lambda c, k: np.not_equal(c, k).astype(np.float64))
    else:
        disagreement = within(votes, lambda c, k: 1 - credit[c, k])
    agreeing = (1 - disagreement / np.maximum(votes.size, 1))[votes.pattern]
    pairable = (votes.size >= 2).astype(np.float64)[votes.pattern]
    given = _given(annotations, size)

    def value(times: Floats) -> Floats:
        """Kappa (B,) where the instances count ``times`` (n, B)."""
        observed = (agreeing * pairable @ times) / (pairable @ times)
        labels = (given @ times).reshape(annotations.n_annotators, annotations.n_classes, times.shape[1])
        return corrected(observed, _chance(labels, credit))

    drawn, chunks = bootstrap.draws(size), row_blocks(bootstrap.n_bootstrap, given.shape[0] + size + 1, CHUNK)
    with np.errstate(divide="ignore", invalid="ignore"):  # undefined values are NaN
        estimate = value(np.ones((size, 1)))
        samples = np.concatenate([np.empty(0), *(value(drawn[rows].T.astype(np.float64)) for rows in chunks)])
    low, high = bootstrap.interval(samples, estimate[0], np.asarray(votes.n_pairable, np.float64))
    name = "Cohen's kappa" + (f" ({weights})" if weights else "")
    return Agreement(name, float(estimate[0]), (float(low), float(high)), votes.n_pairable, bootstrap.confidence)


def _given(annotations: Annotations, size: int) -> sparse.csr_array[Any]:
    """Labels by annotator and class (R * C, n), for the labelled instances."""
    width = annotations.n_classes
    rows = cells(annotations.annotator, width, annotations.label)
    columns = (np.cumsum(annotations.labels_per_instance > 0) - 1)[annotations.instance]
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), (annotations.n_annotators * width, size))


def _chance(labels: Floats, credit: Floats | None) -> Floats:
    """Chance agreement (B,), averaged over pairs of annotators, from their labels by class (R, C, B)."""
    total = labels.sum(axis=1, keepdims=True)
    share = labels / np.maximum(total, 1)
    everyone = share.sum(axis=0)  # (C, B)
    liked, all_liked = (share, everyone) if credit is None else (credit @ share, credit @ everyone)
    number = np.count_nonzero(total[:, 0], axis=0)
    together = np.einsum("cb,cb->b", everyone, all_liked) - np.einsum("rcb,rcb->b", share, liked)
    return np.asarray(together / (number * (number - 1.0)))
