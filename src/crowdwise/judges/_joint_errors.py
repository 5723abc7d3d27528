"""Correlations of errors where no gold tells right from wrong, only the labels of others.

A consensus of others is uncertain and sometimes wrong, and so makes the errors of independent annotators look alike. Two
steps remove that:

1. The labels of the two annotators compared are taken out of the consensus.
2. If the consensus gives class z' the mean probability G[z', z] where z is true, then for any labels y that are independent
   of it given z, the sums over instances of q(z') 1[y] are G times those of 1[z] 1[y]. G^-1 q takes the place of the
   unknown 1[z] in them.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from crowdwise.aggregation import HierarchicalDawidSkene
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats, Ints

SURE = 0.3  # instances of each class on which the consensus is taken to be right, to steady rare classes
WORK = 2e9  # multiplications for which labels are taken out of the consensus pair by pair
LEAST = 1e-4  # variance of errors, of annotators who seldom err


def unmixed(consensus: Floats) -> Floats:
    """Numbers (n, C) that take the place of the unknown indicators of the true classes: G^-1 q of every row q.

    Rows sum to 1, but entries may lie outside of 0 to 1. A consensus without doubt stays as it is.

    >>> unmixed(np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    share = _mixing(np.einsum("ip,iq->pq", consensus, consensus), consensus.sum(axis=0))
    return np.asarray(np.linalg.solve(share, consensus.T).T)


def _mixing(products: Floats, total: Floats) -> Floats:
    """G[..., z', z] from sums over instances of q(z') q(z) and of q(z)."""
    size = products.shape[-1]
    return np.asarray((products + SURE * np.eye(size)) / (total + SURE)[..., None, :])


def against_others(said: Ints, consensus: Floats) -> tuple[Floats, Floats]:
    """Correlations of errors (K, K) and common instances (K, K), of labels ``said`` (K, n), -1 where none.

    ``consensus`` (n, C) is of others; rows with NaN are no reference.
    """
    k, n = said.shape
    c = consensus.shape[1]
    known = ~np.isnan(consensus).any(axis=1)
    indicator = np.zeros((n, c))
    indicator[known] = unmixed(consensus[known])
    row, column = np.nonzero((said >= 0) & known)
    cell = column * c + said[row, column]
    there = sparse.csr_array((np.ones(len(row)), (row, column)), shape=(k, n))
    right = sparse.csr_array((indicator.ravel()[cell], (row, column)), shape=(k, n))
    given = sparse.csr_array((np.ones(len(row)), (row, cell)), shape=(k, n * c))
    given_right = sparse.csr_array((indicator.ravel()[cell], (row, cell)), shape=(k, n * c))
    common = (there @ there.T).toarray()
    own_right = (right @ there.T).toarray()  # [j, k]: of j, on what k labelled too
    both_right = (given_right @ given.T).toarray()
    return _correlations(common, own_right, own_right.T, both_right), common


def against_each_other(crowd: Annotations, who: Ints) -> tuple[Floats, Floats]:
    """Correlations of errors (K, K) and common instances (K, K) of ``who``, each pair compared with all others.

    Of very large crowds, labels are not taken out of the consensus. Independent annotators get correlations of about 0 all
    the same, but those of others are then underestimated.
    """
    crowd = crowd.hard().deduplicated("first")
    model = HierarchicalDawidSkene().fit(crowd)
    belief = np.log(np.maximum(model.raw_posterior_, 1e-300))
    likelihood = np.log(np.maximum(model.confusion_, 1e-12))
    c, labels = crowd.n_classes, crowd.labels_per_instance.astype(np.float64)
    taken_out = float((labels**2).sum()) * c**2 <= WORK
    number = np.full(crowd.n_annotators, -1)
    number[who] = np.arange(len(who))
    correlation, shared = np.zeros((len(who), len(who))), np.zeros((len(who), len(who)))
    label_of = np.full(crowd.n_instances, -1, np.int64)
    for j, code in enumerate(who):
        own = crowd.by_annotator[int(code)]
        label_of[crowd.instance[own]] = crowd.label[own]
        rows = np.flatnonzero((label_of[crowd.instance] >= 0) & (number[crowd.annotator] >= 0))
        i, other, y = crowd.instance[rows], number[crowd.annotator[rows]], crowd.label[rows]
        own_y = label_of[i]
        log_q = belief[i]
        if taken_out:
            log_q = log_q - likelihood[code][:, own_y].T - likelihood[crowd.annotator[rows], :, y]
        q = np.exp(log_q - log_q.max(axis=1, keepdims=True, initial=-np.inf))
        q /= q.sum(axis=1, keepdims=True)
        if taken_out:
            q = _unmixed_by(q, other, len(who))
        at = np.arange(len(rows))
        sums = (None, q[at, own_y], q[at, y], q[at, own_y] * (own_y == y))
        counts = [np.bincount(other, each, len(who)) for each in sums]
        correlation[j] = _correlations(*(np.asarray(each, np.float64) for each in counts))
        shared[j] = counts[0]
        label_of[crowd.instance[own]] = -1
    return correlation, shared


def _unmixed_by(q: Floats, group: Ints, groups: int) -> Floats:
    """`unmixed` of the rows of each group."""
    c = q.shape[1]
    products, total = np.empty((groups, c, c)), np.empty((groups, c))
    for z in range(c):
        total[:, z] = np.bincount(group, q[:, z], groups)
        for p in range(c):
            products[:, p, z] = np.bincount(group, q[:, p] * q[:, z], groups)
    inverse = np.linalg.inv(_mixing(products, total))
    return np.asarray(np.einsum("ezp,ep->ez", inverse[group], q))


def _correlations(common: Floats, one: Floats, other: Floats, both: Floats) -> Floats:
    """Pearson's correlation of two errors from sums over common instances: of right labels, and of both right.

    Two labels are both right if they are equal and right; 0 where somebody does not err.
    """
    n = np.maximum(common, 1.0)
    wrong, other_wrong = 1 - one / n, 1 - other / n
    both_wrong = 1 - (one + other - both) / n
    variance, other_variance = wrong * (1 - wrong), other_wrong * (1 - other_wrong)
    varied = (common > 0) & (variance > LEAST) & (other_variance > LEAST)
    scale = np.sqrt(np.where(varied, variance * other_variance, 1.0))
    return np.where(varied, np.clip((both_wrong - wrong * other_wrong) / scale, -1, 1), 0.0)
