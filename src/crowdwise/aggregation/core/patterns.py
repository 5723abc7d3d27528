"""How far the labels of an instance depend on each other where it has only two or three.

Annotators with confusion matrices of their own can explain any three labels, so there `correlation` sees nothing. But if errors
are even, the numbers of instances on which three, two or no labels agree, and on which class, tell more: a rare class that is
confused no more than others, or wrong labels that do not coincide, speak against dependence. Votes v of an instance of class c
come from an urn, and ρ is the most probable correlation,

    P(ρ) ∝ t(logit ρ) L(ρ)^(N / (N + FEW)),   L(ρ) = max over π, p of Π_i Σ_c π_c DM(v_i | (1 / ρ - 1) T[c]),

with DM the Dirichlet-multinomial, T[c, c] = p, T[c, l] = (1 - p) / (C - 1), and t Cauchy's around what is typical of real crowds.
L is the mean of that and of one where only being right comes from an urn, as where instances are hard, and wrong labels are even.
For two classes of one size L is flat, and ρ stays typical. Real crowds confuse some classes more than others: the more the votes
speak for uneven errors (Akaike), the less this counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from crowdwise.aggregation.core.kernels import Cells, Floats, Layout, instances

PLACES = -0.65 + np.arange(-15, 6) / 3.0  # log-odds of ρ; those of the typical one are among them
SPREAD = 0.8  # scale of the log-odds of ρ among crowds
FEW = 2_000.0  # instances that are too few to tell, since no crowd errs as evenly as this
ODDS = 3.0  # log-odds of even errors before anything is seen
EVEN = 20.0  # labels a class that speak for even errors
WHOLE = 1e-6  # distance from a whole number up to which a weight is one
SIZE = 200_000  # of the table of patterns at most
FACTORS = np.arange(3.0)  # what is added to the start of a rising factorial
ROUNDS, MORE = 30, 6  # of EM at the first place, and at each further one


def count(layout: Layout, every: int) -> Floats:
    """How many instances have each set of two or three labels, as [smallest, next, largest or C for none]; flat.

    A weight of two is a label given twice. Instances with other weights are not counted, nor any if the table would be too large.
    """
    c, cells, indptr = layout.shape[1], layout.cells, layout.indptr
    if (c + 1) ** 3 > SIZE:
        return np.zeros(1)
    if layout.weight is not None:
        cells, indptr = _repeated(layout)
    number, first = np.diff(indptr)[::every], indptr[:-1][::every]
    found = np.zeros((c + 1) ** 3)
    for size in (2, 3):
        place = first[number == size]
        labels = np.full((3, len(place)), c)
        for k in range(size):
            labels[k] = cells[place + k] % c
        labels.sort(axis=0)
        found += np.bincount((labels[0] * (c + 1) + labels[1]) * (c + 1) + labels[2], minlength=len(found))
    return found


def _repeated(layout: Layout) -> tuple[Cells, npt.NDArray[np.int64]]:
    """Cells as often as they weigh, and where instances begin; those with a weight that is not a whole number have none."""
    cells, instance = layout.cells, instances(layout)
    if not len(cells) or layout.weight is None:
        return cells, layout.indptr
    starts = np.flatnonzero(np.append(True, (np.diff(cells.astype(np.int64)) != 0) | (np.diff(instance) != 0)))
    total = np.add.reduceat(layout.weight, starts)  # of a label that an annotator gave twice
    times = np.rint(total).astype(np.int64)
    broken = (np.abs(times - total) > WHOLE) | (times < 1)
    times[np.isin(instance[starts], instance[starts][broken])] = 0
    number = np.bincount(instance[starts], times, len(layout.indptr) - 1).astype(np.int64)
    return np.repeat(cells[starts], times), np.append(0, np.cumsum(number))


class Shown(NamedTuple):
    """What the patterns of a crowd show."""

    likelihood: Floats  # log L at `PLACES`
    prior: Floats  # (places, C) π there
    number: float  # instances with two or three labels
    belief: float  # how far errors look even, and which share of the pairs of labels is on such instances

    def place(self, typical: float) -> int:
        """Where ρ is most probable if ``typical`` is the usual one."""
        before = -np.log1p(((PLACES - logit(typical)) / SPREAD) ** 2)
        return int(np.argmax(before + self.number / (self.number + FEW) * self.likelihood))

    def correlation(self, typical: float) -> float:
        """ρ, as far as it is believed, else the ``typical`` one."""
        return float(typical + self.belief * (expit(PLACES[self.place(typical)]) - typical))


def shown(counts: Floats, n_classes: int, pairs: float) -> Shown:
    """What patterns say, from `count`; ``pairs`` are all pairs of labels of an instance.

    >>> found = np.zeros((3, 3, 3))  # of 1,000 instances, by labels: 1 is rare, and annotators are right nine times in ten
    >>> found[[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]] = 656, 227, 45, 72
    >>> patterns = shown(found.ravel(), 2, 3_000.0)
    >>> round(patterns.correlation(0.34), 2), round(patterns.belief, 2)
    (0.05, 0.98)
    """
    kinds, number = np.flatnonzero(counts), float(counts.sum())
    if number == 0.0:
        return Shown(np.zeros(len(PLACES)), np.full((len(PLACES), n_classes), 1.0 / n_classes), 0.0, 0.0)
    labels = np.stack(np.unravel_index(kinds, (n_classes + 1,) * 3), axis=1)
    votes, weight = np.zeros((len(kinds), n_classes + 1)), counts[kinds]
    np.add.at(votes, (np.arange(len(kinds))[:, None], labels), 1.0)
    votes = votes[:, :n_classes]
    likelihood, prior, posterior = _even(votes, weight, common=True)
    if n_classes > 2:  # else they are the same
        alone, by, _ = _even(votes, weight, common=False)
        prior = np.where((alone > likelihood)[:, None], by, prior)
        likelihood = np.logaddexp(likelihood, alone) - np.log(2.0)
    gain = _uneven(votes, weight, posterior) - float(likelihood.max())
    belief = expit(ODDS + n_classes * (n_classes - 1.0) - 1.0 - gain)
    few = float(weight @ (votes.sum(axis=1) * 2.0 - 3.0))  # pairs of two labels, and of three
    return Shown(likelihood, prior, number, float(belief * min(few / pairs, 1.0)))


def _even(votes: Floats, weight: Floats, *, common: bool) -> tuple[Floats, Floats, Floats]:
    """Log-likelihood of patterns of votes (k, C), each ``weight`` (k,) times, at all `PLACES` if errors are even, π (places, C)
    there, and the posterior (k, C) at the first. ``common``: also the wrong labels of an instance come from its urn."""
    c, kind, number = votes.shape[1], votes.astype(np.int64), votes.sum(axis=1).astype(np.int64)
    total, others, prior = float(weight @ number), c - 1.0, np.full(c, 1.0 / c)
    right = float(np.clip(weight @ votes.max(axis=1) / total, 1.0 / c + 0.05, 0.95))
    found: list[float] = []
    priors: list[Floats] = []
    start = votes
    for place in PLACES:
        size = np.exp(-place)
        for _ in range(MORE if found else ROUNDS):
            if common:
                wrong = _rising(size * (1.0 - right) / others)[kind]
                logs, rest = _rising(size * right)[kind] - wrong, wrong.sum(axis=1)
            else:
                wrong = _rising(size * (1.0 - right))[number[:, None] - kind]
                logs, rest = _rising(size * right)[kind] + wrong + votes * np.log(others), -number * np.log(others)
            odds = np.exp(logs) * prior
            evidence = odds.sum(axis=1)
            posterior = odds / evidence[:, None]
            right = float(np.clip(np.vdot(weight[:, None] * posterior, votes) / total, 1.0 / c, 0.999))
            prior = (weight @ posterior + 1.0) / (weight.sum() + c)
        start = start if found else posterior
        priors.append(prior)
        found.append(float(weight @ (np.log(evidence) + rest - _rising(size)[number])))
    return np.array(found), np.array(priors), start


def _uneven(votes: Floats, weight: Floats, posterior: Floats) -> float:
    """Log-likelihood of patterns of votes if labels are independent and classes confused as the crowd's matrix says."""
    c, value = votes.shape[1], 0.0
    for _ in range(ROUNDS):
        share = weight[:, None] * posterior
        counts, prior = share.T @ votes, (share.sum(axis=0) + 1.0) / (weight.sum() + c)  # (C, C) [class, label]
        right = float(np.clip(np.trace(counts) / counts.sum(), 1.0 / c, 0.999))
        even = np.where(np.eye(c, dtype=bool), right, (1.0 - right) / (c - 1.0))
        matrix = (counts + EVEN * even) / (counts.sum(axis=1, keepdims=True) + EVEN)
        logs = np.log(prior) + votes @ np.log(matrix).T
        top = logs.max(axis=1, keepdims=True)
        posterior = np.exp(logs - top)
        evidence = posterior.sum(axis=1, keepdims=True)
        posterior /= evidence
        value = float(weight @ (np.log(evidence) + top)[:, 0] + EVEN * (even * np.log(matrix / even)).sum())
    return value


def _rising(start: float) -> Floats:
    """Logarithms of start (start + 1) ... of zero to three factors."""
    found = np.zeros(4)
    np.log(start + FACTORS, out=found[1:])
    return found.cumsum()
