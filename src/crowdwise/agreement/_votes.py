"""Votes of a crowd by pattern, and the bootstrap over instances.

Measures of overall agreement depend on an instance only through how often each class was chosen. Instances with equal
votes form one pattern with a count, so the bootstrap can resample counts of patterns instead of annotations: exact and
cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import ndtr, ndtri, stdtrit

from crowdwise.annotations import Annotations
from crowdwise.constraints import NonNegativeInt, OpenProbability, check_parameters
from crowdwise.data.codes import cells, row_blocks
from crowdwise.data.types import Floats, Ints, RandomState

Statistic = Callable[[Floats], Floats]
"""Weights of the patterns (B, P) -> values of a measure (B,)."""

SAME = 1e-9  # difference below which two values of a measure are the same
MOST_BIASED = 0.01  # share of samples below the value, at least
CHUNK = 2**22  # numbers that one step of a bootstrap holds in memory


@dataclass(frozen=True, eq=False)
class Votes:
    """Distinct vote patterns of the labelled instances.

    >>> crowd = Annotations.from_dense([[0, 0, 1], [1, 0, 0], [1, 1, None]])
    >>> votes = Votes.of(crowd)
    >>> votes.table.toarray()[votes.pattern].astype(int).tolist(), sorted(votes.count.tolist())
    ([[2, 1], [2, 1], [0, 2]], [1, 2])
    """

    table: sparse.csr_array[Any]  # (P, C) how often each class was chosen
    count: Ints  # (P,) instances with these votes
    pattern: Ints  # (n,) pattern of each labelled instance, in order of code

    @classmethod
    def of(cls, annotations: Annotations) -> Votes:
        """Count the votes; instances without labels are left out."""
        width = annotations.n_classes
        chosen, number = runs(np.sort(cells(annotations.instance, width, annotations.label)))
        instance, label = np.divmod(chosen, max(width, 1))
        start = starts(instance)
        indptr = np.append(start, len(chosen))
        # Equal votes have equal sums of random 64-bit numbers; different votes do with probability n^2 / 2^65.
        hashes = np.random.default_rng(0).integers(0, 2**64, width, dtype=np.uint64)
        sums = np.add.reduceat(hashes[label] * number.astype(np.uint64), start) if len(start) else hashes[:0]
        _, first, pattern, count = np.unique(sums, return_index=True, return_inverse=True, return_counts=True)
        table = sparse.csr_array((number.astype(np.float64), label, indptr), shape=(len(start), width))
        return cls(sparse.csr_array(table[first]), count, pattern)

    @property
    def size(self) -> Floats:
        """Labels of an instance with each pattern, (P,)."""
        return np.asarray(self.table.sum(axis=1), np.float64)

    @property
    def n_pairable(self) -> int:
        """Instances with two or more labels; the others say nothing about agreement."""
        return int(self.count[self.size >= 2].sum())


@dataclass(frozen=True)
class Bootstrap:
    """How often to resample the instances, and the confidence of the interval."""

    n_bootstrap: NonNegativeInt
    """0: no interval."""
    confidence: OpenProbability
    random_state: RandomState

    def __post_init__(self) -> None:
        check_parameters(self)

    def estimate(self, votes: Votes, statistic: Statistic) -> tuple[float, tuple[float, float]]:
        """The value of a statistic, and its interval (NaN without a bootstrap)."""
        with np.errstate(divide="ignore", invalid="ignore"):  # undefined values are NaN
            value = statistic(votes.count[None].astype(np.float64))
            samples = [statistic(weights) for weights in self._weights(votes)]
            drawn = np.concatenate(samples) if samples else np.empty(0)
            low, high = self.interval(drawn, value[0], np.asarray(votes.n_pairable, np.float64))
        return float(value[0]), (float(low), float(high))

    def interval(self, samples: Floats, value: Floats, n: Floats) -> tuple[Floats, Floats]:
        """Ends of the interval of a ``value`` from samples along the last axis, with ``n`` instances.

        Percentiles, with two corrections without which small samples are covered too seldom: for bias (Efron & Tibshirani
        1993, section 14.3), and from the normal to Student's t distribution (Hesterberg 2015, expanded percentiles). NaNs
        are ignored unless there is nothing else.
        """
        if not samples.shape[-1]:
            undefined = np.full(samples.shape[:-1], np.nan)
            return undefined, undefined
        ranked = np.sort(samples, axis=-1)  # NaNs last
        known = np.count_nonzero(~np.isnan(ranked), axis=-1)
        centre = np.asarray(value)[..., None]
        below = np.count_nonzero(ranked < centre - SAME, axis=-1)
        equal = np.count_nonzero(np.abs(ranked - centre) <= SAME, axis=-1)
        bias = ndtri(np.clip((below + equal / 2) / np.maximum(known, 1), MOST_BIASED, 1 - MOST_BIASED))
        freedom = np.maximum(n - 1, 1)
        half = -stdtrit(freedom, (1 - self.confidence) / 2) * np.sqrt((freedom + 1) / freedom)
        shares = ndtr(2 * bias - half), ndtr(2 * bias + half)
        low, high = (_quantile(ranked, known[..., None] - 1, share[..., None]) for share in shares)
        return low, high

    def draws(self, size: int) -> npt.NDArray[np.uint8]:
        """How often each of ``size`` instances is drawn in each resample, (B, size); a byte is plenty."""
        rng = np.random.default_rng(self.random_state)
        drawn = np.empty((self.n_bootstrap, size), np.uint8)
        for times in drawn if size else ():
            times[:] = np.bincount(rng.integers(0, size, size), minlength=size)
        return drawn

    def _weights(self, votes: Votes) -> Iterator[Floats]:
        """Resampled counts of the patterns, (B, P), in chunks of rows."""
        n, patterns = len(votes.pattern), len(votes.count)
        if not n:
            return
        rng = np.random.default_rng(self.random_state)
        for rows in row_blocks(self.n_bootstrap, sum(votes.table.shape), CHUNK):
            size = rows.stop - rows.start
            if patterns < n / 8:  # a binomial per pattern costs about as much as eight draws
                yield rng.multinomial(n, votes.count / n, size).astype(np.float64)
            else:
                draws = [np.bincount(votes.pattern[rng.integers(0, n, n)], minlength=patterns) for _ in range(size)]
                yield np.array(draws, np.float64)


def _quantile(ranked: Floats, last: Ints, share: Floats) -> Floats:
    """Quantiles along the last axis, of the first ``last`` + 1 values."""
    position = share * np.maximum(last, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(last, 0))
    low, high = (np.take_along_axis(ranked, index, axis=-1) for index in (below, above))
    return np.asarray(low + (high - low) * (position - below))[..., 0]


def starts(ascending: Ints) -> Ints:
    """Positions where a new value begins in an ascending array."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def runs(ascending: Ints) -> tuple[Ints, Ints]:
    """The distinct values of an ascending array, and how often each occurs.

    >>> runs(np.array([0, 0, 3]))
    (array([0, 3]), array([2, 1]))
    """
    start = starts(ascending)
    return ascending[start], np.diff(start, append=len(ascending))


def following(last: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """All pairs (r, s) of a row r in ``rows`` and a later row s of its group, which ends before ``last[r]``.

    >>> following(np.array([3, 3, 3, 4]), np.arange(4))
    (array([0, 0, 1]), array([1, 2, 2]))
    """
    partners = last[rows] - rows - 1
    first = np.repeat(rows, partners)
    begin = np.cumsum(partners) - partners
    return first, first + 1 + np.arange(len(first)) - np.repeat(begin, partners)
