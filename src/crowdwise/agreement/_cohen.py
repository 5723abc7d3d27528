"""Cohen's kappa of a whole crowd, in Conger's generalisation to any number of annotators."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from crowdwise.agreement._measures import corrected, within
from crowdwise.agreement._result import Agreement
from crowdwise.agreement._values import Values, Weights, class_credit, class_values
from crowdwise.agreement._votes import CHUNK, Bootstrap, Votes
from crowdwise.annotations import Annotations
from crowdwise.constraints import check_value
from crowdwise.data.codes import cells, row_blocks
from crowdwise.data.types import Floats, RandomState


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
    low, high = bootstrap.interval(samples)
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
