"""Agreement of every two annotators on the instances both labelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from crowdwise.agreement._measures import corrected
from crowdwise.agreement._result import PairwiseAgreement
from crowdwise.agreement._values import Values, Weights, class_credit, class_values
from crowdwise.agreement._votes import Bootstrap, following, runs
from crowdwise.annotations import Annotations
from crowdwise.constraints import check_value
from crowdwise.data.codes import Codes, cells, row_blocks
from crowdwise.data.types import Floats, Ints, RandomState
from crowdwise.errors import ConfigError

Measure = Literal["cohen", "scott", "gwet", "raw"]

NAMES = {"cohen": "Cohen's kappa", "scott": "Scott's pi", "gwet": "Gwet's AC1", "raw": "raw agreement"}
NUMBERS = 2**24  # numbers that one array of a block of pairs may hold


def pairwise(
    annotations: Any,
    measure: Measure = "cohen",
    *,
    weights: Weights | None = None,
    values: Values | None = None,
    confidence: float = 0.95,
    n_bootstrap: int = 0,
    random_state: RandomState = None,
) -> PairwiseAgreement:
    """Agreement of every two annotators who share an instance: one row per pair, or a matrix (R, R) on demand.

    ``weights`` gives partial credit for near misses: 1 - |v - w| / range (linear) or 1 - (v - w)^2 / range^2
    (quadratic; Cohen 1968). The number v of a class is its entry of ``values``, else the class itself if all classes
    are numbers, else its code. Chance agreement is estimated from the common instances only: with k of them, values
    are biased towards 0 by about 1/k; with one, a kappa is 0 or undefined.

    >>> pairs = pairwise([[0, 0, 1], [1, 1, 1], [0, 0, None], [1, 0, None]])
    >>> pairs.matrix().round(2)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    >>> pairs.n_common.tolist()
    [4, 2, 2]
    """
    check_value("measure", measure, Measure)
    if weights is not None:
        check_value("weights", weights, Weights)
    if weights is not None and measure != "cohen":
        raise ConfigError(f"weights={weights!r} is for Cohen's kappa; leave it out for measure={measure!r}")
    crowd, bootstrap = Annotations.coerce(annotations).hard(), Bootstrap(n_bootstrap, confidence, random_state)
    credit = None if weights is None else class_credit(class_values(crowd, values), weights)
    labelled = np.cumsum(crowd.labels_per_instance > 0) - 1  # number of an instance among the labelled ones
    draws = bootstrap.draws(int(labelled[-1]) + 1 if len(crowd) else 0)
    widest = max(4, n_bootstrap, 0 if credit is None else len(credit))
    parts: list[tuple[Ints, Ints, Ints, Floats, Floats, Floats]] = []
    for block in _blocks(crowd, measure, credit, max(1, NUMBERS // widest)):
        common, value = block.compare()
        samples = np.empty((len(value), n_bootstrap))
        drawn = draws[:, labelled[block.instances]] if n_bootstrap else draws
        for chunk in row_blocks(n_bootstrap, block.height, NUMBERS):
            samples[:, chunk] = block.compare(drawn[chunk].T.astype(np.float64))[1]
        ends = bootstrap.interval(samples, value[:, 0], block.telling)
        parts.append((block.first, block.second, common[:, 0].astype(np.int64), value[:, 0], *ends))
    integers, floats = np.empty(0, np.int64), np.empty(0)
    first, second, n_common = (np.concatenate([integers, *(part[k] for part in parts)]) for k in range(3))
    value, low, high = (np.concatenate([floats, *(part[k] for part in parts)]) for k in range(3, 6))
    name = NAMES[measure] + (f" ({weights})" if weights else "")
    people, labels = crowd.annotator_vocabulary, crowd.labels_per_annotator
    return PairwiseAgreement(name, first, second, value, n_common, low, high, confidence, people, labels)


@dataclass(frozen=True, eq=False)
class _Block:
    """Some pairs of annotators (K), and every two labels they gave to a common instance (L rows, by pair)."""

    first: Ints  # (K,)
    second: Ints  # (K,)
    pair: Ints  # (L,) row of the pair
    instance: Codes  # (L,)
    given: Codes  # (L,) label of the first
    received: Codes  # (L,) and of the second
    measure: Measure
    n_classes: int
    credit: Floats | None  # (C, C)

    def compare(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Common instances and agreement of each pair, (K, B); ``instances`` have ``weights`` (I, B), by default 1."""
        sums: Iterator[Floats]
        if weights is None:
            sums = (np.bincount(rows, data, height)[:, None].astype(np.float64) for rows, data, height in self._sums)
        else:
            sums = (matrix @ weights for matrix in self._matrices)
        common, agreeing, given, received = sums
        divisor = np.maximum(common, 1)  # a resample may have none of a pair's instances
        value = observed = agreeing / divisor
        if self.measure != "raw":
            chance = (self._by_pair @ self._both(given, received)) / divisor**2
            if self.measure == "gwet":
                with np.errstate(divide="ignore", invalid="ignore"):  # undefined with one class
                    chance = (1 - chance) / np.float64(self.n_classes - 1)
            value = corrected(observed, chance)
        return common, np.where(common > 0, value, np.nan)

    def _both(self, given: Floats, received: Floats) -> Floats:
        """How often both would choose a class by chance, given how often each did, (U, B)."""
        if self.measure != "cohen":
            return ((given + received) / 2) ** 2
        if self.credit is not None:
            received = (self.credit @ received.reshape(-1, self.n_classes, received.shape[1])).reshape(received.shape)
        return given * received

    @cached_property
    def instances(self) -> Ints:
        """Codes of the instances the pairs share, (I,)."""
        return np.flatnonzero(np.bincount(self.instance))

    @property
    def telling(self) -> Floats:
        """Common instances of each pair, but for those that both gave the class they agree on most often, (K,).

        If one class is much more frequent than others, a kappa depends on few instances: its interval allows for that.
        """
        common = np.bincount(self.pair, minlength=len(self.first)).astype(np.float64)
        same = self.given == self.received
        if not same.any():
            return common
        cell, times = runs(np.sort(self.pair[same] * self.n_classes + self.given[same]))
        pair = cell // self.n_classes
        start = np.flatnonzero(np.diff(pair, prepend=-1))
        common[pair[start]] -= np.maximum.reduceat(times, start)
        return common

    @property
    def height(self) -> int:
        """Rows of the largest sum."""
        return max(height for _, _, height in self._sums)

    @cached_property
    def _cells(self) -> tuple[Ints, Ints, Ints]:
        """The (pair, class) cells that chance agreement depends on (U,), and the positions of the labels in them."""
        given, received = self.pair * self.n_classes + self.given, self.pair * self.n_classes + self.received
        if self.credit is not None:  # near misses count, so all cells do
            return np.arange(len(self.first) * self.n_classes), given, received
        occurring, _ = runs(np.sort(np.concatenate([given, received])))
        return occurring, np.searchsorted(occurring, given), np.searchsorted(occurring, received)

    @cached_property
    def _sums(self) -> list[tuple[Ints, Floats | None, int]]:
        """Target rows, data and number of rows of the sums: common, agreeing, labels of the first and of the second."""
        cells, given, received = self._cells
        agreeing = (
            np.equal(self.given, self.received) if self.credit is None else self.credit[self.given, self.received]
        )
        size = len(self.first)
        data = agreeing.astype(np.float64)
        return [
            (self.pair, None, size),
            (self.pair, data, size),
            (given, None, len(cells)),
            (received, None, len(cells)),
        ]

    @cached_property
    def _matrices(self) -> list[sparse.csr_array[Any]]:
        """The sums as matrices with one column per instance."""
        width, column = len(self.instances), np.searchsorted(self.instances, self.instance)
        return [
            sparse.csr_array((np.ones(len(rows)) if data is None else data, (rows, column)), (height, width))
            for rows, data, height in self._sums
        ]

    @cached_property
    def _by_pair(self) -> sparse.csr_array[Any]:
        """Sums over the cells of each pair, (K, U)."""
        cells, _, _ = self._cells
        border = np.searchsorted(cells, np.arange(len(self.first) + 1) * self.n_classes)
        shape = len(self.first), len(cells)
        return sparse.csr_array((np.ones(len(cells)), np.arange(len(cells)), border), shape)


def _blocks(annotations: Annotations, measure: Measure, credit: Floats | None, limit: int) -> Iterator[_Block]:
    """All pairs of annotators, in blocks by the first, of about ``limit`` pairs of labels each."""
    size = annotations.n_annotators
    order = np.argsort(cells(annotations.instance, size, annotations.annotator))
    instance, annotator, label = (
        codes[order] for codes in (annotations.instance, annotations.annotator, annotations.label)
    )
    last = annotations.by_instance.indptr[1:][instance]
    work = np.bincount(annotator, last - np.arange(len(last)) - 1, size)
    block = ((np.cumsum(work) - work) // limit).astype(np.int64)[annotator]
    rows = np.argsort(block, kind="stable")
    for part in np.split(rows, np.flatnonzero(np.diff(block[rows])) + 1):
        one, other = following(last, part)
        key = cells(annotator[one], size, annotator[other])
        order = np.argsort(key)
        one, other, key = one[order], other[order], key[order]
        different = annotator[one] != annotator[other]  # repeated labels of one annotator are not a pair
        if not different.all():
            one, other, key = one[different], other[different], key[different]
        if len(key):
            pairs, count = runs(key)
            first, second = np.divmod(pairs, size)
            pair = np.repeat(np.arange(len(pairs)), count)
            width = annotations.n_classes
            yield _Block(first, second, pair, instance[one], label[one], label[other], measure, width, credit)
