"""The class of a labelled instance: what a classifier says of it, and what its labels say, weighed so that confidence is honest.

    ln P(y) = a ln f_y(x) + b sum over its labels of ln T^j[y, l] + c (ln s_y - a ln mean f_y) + constant

The last term is about the classes' shares s: a small a would make f's shares all but equal, and f may itself have been trained to
spread its predictions. s lies midway between what the posterior has and what the labels alone say: by the posterior alone, a rare
class that f inflates would confirm itself. Without it (c = 0), with a = b = 1, this claims too much, for four reasons,
each with its remedy here.
- Matrices learnt from an instance confirm its labels. So every instance is judged by matrices without its own labels: expected
  counts less its share of them, shrunk to the crowd's mean matrix. They predict held-out labels better than the matrices that
  methods train by gradient, so every method uses them.
- A classifier has learnt the labels it was trained on. `forget` takes them out of ln f, by as much as makes these labels as
  probable as labels the classifier never saw.
- Labels of one instance are not independent, and the classifier may be too sure. So a, b and the shrinkage are those that best
  predict each label from the classifier and the other labels of its instance.
- An error that the whole crowd makes looks like agreement, which that criterion rewards. So a and b are lowered once more, see
  `SHARED_ERRORS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import log_softmax, softmax

from crowdwise.aggregation import HierarchicalDawidSkene
from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARED_ERRORS = 0.8, 1.25
"""Factor and exponent that lower the weights which predict labels best, w, to 0.8 min(w, w^1.25).

Set by hand, with true labels: by nine real crowds without inputs (the calibrated weight was .2 to 1.0 where .2 to .85 predicted
best), and by fits of Concord on LabelMe, Music, Sentiment and simulated crowds (calibration errors of .02 to .06).
"""
SHARES = 1.0
"""c. Set by hand, with true labels, together with `_COUNTED`, among .7, .85 and 1: on Music, LabelMe, and six crowds of texts
with and without rare classes. On average accuracy rose by 4 points, balanced accuracy by .8."""
_COUNTED = 0.8  # b while labels are counted: what makes confidence honest would let rare classes grow, round by round
_WEIGHTS_F = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
_POWERS = (0.05, 0.075, *_WEIGHTS_F)
_WEIGHTS_LABELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2)
_STRENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_FACTORS = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)
_PULL = np.array([0.5, 5.0])  # of a and b to the usual ones: a few hundred labels tell little of b
FEW_LABELS = 1.5  # of an instance, up to which nothing tells errors of labels from errors of networks
_PULL_ALONE = 0.3  # of the power of f alone to the usual a
_USUAL = 0.5, 0.5  # a and b where there are hardly any labels to choose them by
_ENOUGH = 100_000  # probabilities of labels that are predicted; more would tell the same
_TABLES = 50_000_000  # entries of annotators' tables above which none are made
_ROUNDS = 5  # of expectation maximisation, before and after each choice of weights
_FLOOR = 1e-10
_BLOCK = 4096  # rows at a time, so that what is computed on the way stays in the cache


@dataclass(frozen=True, eq=False)
class LabelRows:
    """Distinct annotations in order of instance, annotator and label, so that the order in which they came changes nothing."""

    instance: Ints  # (E,)
    annotator: Ints
    label: Ints
    times: Floats  # how often the annotation was made, or the sum of its weights
    answers: Floats  # how many labels the annotator gave to the instance
    size: tuple[int, int, int]  # instances, annotators, classes

    @classmethod
    def of(cls, annotations: Annotations) -> Self:
        size = annotations.n_instances, annotations.n_annotators, annotations.n_classes
        pair = cells(annotations.instance, size[1], annotations.annotator)
        kept, place, times = np.unique(
            pair * max(size[2], 1) + annotations.label, return_inverse=True, return_counts=True
        )
        if annotations.weight is not None:
            times = np.bincount(place, annotations.weight)
        pair, label = np.divmod(kept, max(size[2], 1))
        _, place = np.unique(pair, return_inverse=True)
        answers = np.bincount(place, times, minlength=1)[place].astype(np.float64)
        instance, annotator = np.divmod(pair, max(size[1], 1))
        return cls(instance, annotator, label, times.astype(float), answers, size)

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """Which pairs of annotator and label occur (K,), as annotator * C + label, and which of them each row is (E,)."""
        known, place = np.unique(self.annotator * self.size[2] + self.label, return_inverse=True)
        return known, place

    @cached_property
    def members(self) -> sparse.csr_array[Any]:
        """Which rows an instance has, and how often: (n, E)."""
        rows = np.arange(len(self.instance))
        return sparse.csr_array((self.times, (self.instance, rows)), shape=(self.size[0], len(rows)))

    def by_instance(self, values: Floats) -> Floats:
        """Sums of ``values`` (E, C) over the labels of each instance: (n, C)."""
        return np.asarray(self.members @ values)

    def shares(self) -> Floats:
        """The classes' shares (C,) by labels alone: hierarchical Dawid-Skene's, or the labels' own where tables are large."""
        n_classes = self.size[2]
        chosen = self.instance % (len(self.label) // _ENOUGH + 1) == 0
        instance, annotator = (
            np.unique(codes[chosen], return_inverse=True)[1] for codes in (self.instance, self.annotator)
        )
        if n_classes < 2 or not len(annotator) or (annotator.max() + 1) * n_classes**2 > _TABLES:
            given = np.bincount(self.label, self.times, minlength=n_classes) + 1 / max(n_classes, 1)
            return np.asarray(given / given.sum())
        crowd = Annotations.from_triples(
            instance, annotator, self.label[chosen], n_classes=n_classes, weight=self.times[chosen]
        )
        alone = HierarchicalDawidSkene(calibration="none", max_iter=20, tol=1e-3).fit(crowd)
        return np.asarray(alone.class_prior_)

    def sample(self, judged: npt.NDArray[np.bool_]) -> tuple[LabelRows, Ints]:
        """The rows of a number of the ``judged`` instances (n,) that tells enough, and these instances."""
        chosen = judged[self.instance]
        every = int(chosen.sum()) // max(_ENOUGH // max(self.size[2], 1), 2000) + 1
        chosen &= self.instance % every == 0
        instances, instance = np.unique(self.instance[chosen], return_inverse=True)
        rows = LabelRows(
            instance,
            self.annotator[chosen],
            self.label[chosen],
            self.times[chosen],
            self.answers[chosen],
            (len(instances), *self.size[1:]),
        )
        return rows, instances


@dataclass(frozen=True, eq=False)
class LabelTest:
    """Labels to predict from what the classifier and the other labels of their instance say."""

    prior: Floats  # (E, C) ln f
    others: Floats  # (E, C) sum of ln T of the other labels
    columns: Floats  # (E, C) T^j[., l] of the label itself
    times: Floats  # (E,)
    shares: Floats  # (2, C), see `LabelModel`

    def likelihood(self, a: float, b: float) -> float:
        """ln P(labels), with weights ``a`` of the classifier and ``b`` of the other labels."""
        predicted = (softmax(a * self.prior + b * self.others + by_shares(a, self.shares), axis=1) * self.columns).sum(
            1
        )
        return float(self.times @ np.log(np.maximum(predicted, _FLOOR)))

    def score(self, a: float, b: float) -> float:
        """The likelihood, less a pull to the usual weights, for crowds with few labels."""
        return self.likelihood(a, b) - float(_PULL @ np.square(np.log([a, b]) - np.log(_USUAL)))


@dataclass(frozen=True, eq=False)
class LabelModel:
    """How much labels and classifier are worth: weights a and b, and the annotators' expected confusion counts, sparse."""

    cells: Ints  # (K,) annotator * C + label, ascending, of those that occur
    counts: Floats  # (K, C) expected number of such labels by true class
    totals: Floats  # (R, C) expected number of labels by annotator and true class
    common: Floats  # (C, C) the crowd's mean matrix, weighted by labels
    strength: float  # labels that the crowd's mean matrix counts for, in each annotator's
    weights: tuple[float, float]  # a, of ln f; b, of the sum of ln T
    shares: Floats  # (2, C) ln of the classes' shares by f and as they are; zeros change nothing
    alone: float = (
        1.0  # power of f, or of each of its members, where there are no labels: f is then as sure as it should be
    )

    @classmethod
    def fit(
        cls, log_f: Floats, rows: LabelRows, judged: npt.NDArray[np.bool_], most: float = np.inf
    ) -> tuple[LabelModel, Floats]:
        """The model, and the posterior (n, C) of the instances it was fitted to, each without its own labels in the matrices.

        ``log_f`` (n, C) should come from networks that have not learnt the instances' labels; weights are chosen by the labels
        of the instances that are ``judged`` (n,). The classifier's weight is at ``most`` so much.
        """
        votes = rows.by_instance(np.eye(rows.size[2])[rows.label])
        q = softmax(_USUAL[0] * log_f + np.log(votes + 0.1), axis=1)
        sample, instances = rows.sample(judged)
        labelled = votes.sum(1) > 0
        by_labels = np.log(np.maximum(rows.shares(), _FLOOR))

        def counted(weights: tuple[float, float], strength: float) -> LabelModel:
            by_f, by_q = (log_mean(values[labelled]) for values in (np.exp(log_f), q))
            return cls.from_posterior(rows, q, weights, strength, np.stack([by_f, (by_q + by_labels) / 2]))

        model = counted((min(_USUAL[0], most), _USUAL[1]), 5.0)
        for choice in range(3):
            for _ in range(_ROUNDS):
                counting = replace(model, weights=(model.weights[0], _COUNTED))
                q = counting.weigh(log_f, rows, model.honest_columns(rows, q))
                model = counted(model.weights, model.strength)
            if choice < 2 and len(instances):
                model = model.choose(log_f[instances], sample, q[instances], most)
        a, b = model.weights
        # a label alone depends on no other, and nothing tells how much they would
        single = votes.sum(1).max(initial=0) <= 1
        model = replace(model, weights=(lowered(a), 1.0 if single else lowered(b)))
        if len(instances):
            model = model.as_sure_as_f(log_f[instances], sample, q[instances])
        return model, model.weigh(log_f, rows, model.honest_columns(rows, q))

    @classmethod
    def from_posterior(
        cls, rows: LabelRows, q: Floats, weights: tuple[float, float], strength: float, shares: Floats | None = None
    ) -> LabelModel:
        """Expected confusion counts, given the posterior ``q`` (n, C)."""
        n, n_annotators, n_classes = rows.size
        shares = np.zeros((2, n_classes)) if shares is None else shares
        known, place = rows.kinds
        counts = np.asarray(sparse.csr_array((rows.times, (place, rows.instance)), shape=(len(known), n)) @ q)
        annotator, label = np.divmod(known, max(n_classes, 1))
        ones, at = np.ones(len(known)), np.arange(len(known))
        totals = np.asarray(sparse.csr_array((ones, (annotator, at)), shape=(n_annotators, len(known))) @ counts)
        common = np.asarray(sparse.csr_array((ones, (label, at)), shape=(n_classes, len(known))) @ counts).T
        # one label that is right and one by chance, for classes nobody met
        common = common + np.eye(n_classes) + 1 / max(n_classes, 1)
        return cls(known, counts, totals, common / common.sum(1, keepdims=True), strength, weights, shares)

    def honest_columns(self, rows: LabelRows, q: Floats) -> Floats:
        """T^j[., l] of every row (E, C), without the instance's own labels, which were counted by ``q``."""
        known, place = rows.kinds
        place = np.searchsorted(self.cells, known)[place]
        columns = np.empty((len(place), len(self.common)))
        for start in range(0, len(place), _BLOCK):
            part = slice(start, start + _BLOCK)
            own = q[rows.instance[part]]
            counts = self.counts[place[part]] - rows.times[part, None] * own
            totals = self.totals[rows.annotator[part]] - rows.answers[part, None] * own
            columns[part] = self._shrunk(np.maximum(counts, 0), np.maximum(totals, 0), rows.label[part])
        return columns

    def columns(self, annotator: Ints, label: Ints) -> Floats:
        """T^j[., l] (E, C) for new labels; annotators of -1 are unknown and get the crowd's mean matrix."""
        n_classes = len(self.common)
        known = annotator >= 0
        totals = np.where(known[:, None], self.totals[annotator], 0) if len(self.totals) else 0.0
        counts = np.zeros((len(label), n_classes))
        if len(self.cells):
            cell = annotator * n_classes + label
            place = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
            counts[:] = np.where((known & (self.cells[place] == cell))[:, None], self.counts[place], 0)
        return self._shrunk(counts, totals, label)

    def _shrunk(self, counts: Floats, totals: Any, label: Ints) -> Floats:
        mean = self.common.T[label]
        return np.asarray((counts + self.strength * mean) / (totals + self.strength))

    def weigh(self, log_f: Floats, rows: LabelRows, columns: Floats) -> Floats:
        """The posterior (n, C); instances without labels keep f as it is."""
        a, b = self.weights
        labelled = np.bincount(rows.instance, minlength=len(log_f)) > 0
        evidence = rows.by_instance(np.log(np.maximum(columns, _FLOOR)))
        weighed = a * log_f + b * evidence + by_shares(a, self.shares)
        return np.asarray(softmax(np.where(labelled[:, None], weighed, log_f), axis=1))

    def test(self, log_f: Floats, rows: LabelRows, q: Floats) -> LabelTest:
        """What is known of each label (E,) without itself."""
        columns = self.honest_columns(rows, q)
        logs = np.log(np.maximum(columns, _FLOOR))
        others = rows.by_instance(logs)[rows.instance] - rows.times[:, None] * logs
        return LabelTest(log_f[rows.instance], others, columns, rows.times, self.shares)

    def choose(self, log_f: Floats, rows: LabelRows, q: Floats, most: float = np.inf) -> LabelModel:
        """The same counts, with the strength and then the weights that best predict labels."""
        models = [replace(self, strength=strength) for strength in _STRENGTHS]
        model = max(models, key=lambda each: each.test(log_f, rows, q).score(*each.weights))
        test = model.test(log_f, rows, q)
        # all pairs: the two weights can stand in for each other, so one at a time would stop too early
        pairs = [(min(a, most), b) for a in _WEIGHTS_F for b in _WEIGHTS_LABELS]
        return replace(model, weights=max(pairs, key=lambda pair: test.score(*pair)))

    def as_sure_as_f(self, log_f: Floats, rows: LabelRows, q: Floats) -> LabelModel:
        """With larger weights if the posterior were less sure, on average, than the classifier alone: labels add evidence.

        It may be where the likelihood hardly depends on the weights, as for a good classifier beside poor annotators.
        """
        test = self.test(log_f, rows, q)
        alone = lowered(max(_WEIGHTS_F, key=lambda a: test.likelihood(a, 0.0)))
        least, columns = softmax(alone * log_f, axis=1).max(1).mean(), test.columns
        a, b = self.weights
        for factor in _FACTORS:
            model = replace(self, weights=(factor * a, factor * b))
            if model.weigh(log_f, rows, columns).max(1).mean() >= least - 0.01:
                break
        return model


def power_alone(model: LabelModel, members: Floats, rows: LabelRows, q: Floats, most: float = np.inf) -> float:
    """`LabelModel.alone`, by the labels of instances of which ``members`` (n, K, C) are ln f of networks that never saw them.

    What suits members suits a mean of more of them: that of their powers is hardly flatter, while a power of the mean would be.
    """
    columns = model.honest_columns(rows, q)

    def score(power: float) -> float:
        f = softmax(power * members, axis=2).mean(1)[rows.instance]
        likelihood = rows.times @ np.log(np.maximum((f * columns).sum(1), _FLOOR))
        return float(likelihood) - _PULL_ALONE * float(np.square(np.log(power / _USUAL[0])))

    return min(max(_POWERS, key=score), most)


def power_by_agreement(members: Floats, rows: LabelRows) -> float:
    """The most that ``members`` (n, K, C), ln f of networks that never saw the instances, may weigh where labels stand alone.

    A label that is compared with no other may be wrong, or the networks are: its likelihood cannot tell. But networks of which
    two say the same of a share M of instances are right about M^2 of the time (.74 of .80, .89 of .90, .58 of .58 and .47 of
    .45 on Music, LabelMe and two crowds of texts), so this is how sure they may be on average. Without two networks, or with
    1.5 labels an instance: no bound.
    """
    labelled = len(np.unique(rows.instance))
    if members.shape[1] < 2 or rows.times.sum() >= FEW_LABELS * labelled:
        return math.inf
    said = members.argmax(2)
    agree = np.mean([said[:, one] == said[:, other] for one, other in combinations(range(said.shape[1]), 2)])
    low, high = 0.01, 3.0
    for _ in range(20):
        middle = (low + high) / 2
        sure = softmax(middle * members, axis=2).mean(1).max(1).mean()
        low, high = (middle, high) if sure < agree**2 else (low, middle)
    return low


def log_mean(values: Floats) -> Floats:
    """ln of the mean row (C,); zeros without any rows."""
    return np.log(np.maximum(values.mean(0), _FLOOR)) if len(values) else np.zeros(values.shape[1])


def by_shares(a: float, shares: Floats) -> Floats:
    """What the classes' shares (2, C), by f and by the posterior, add to ln P: (C,)."""
    return np.asarray(SHARES * (shares[1] - a * shares[0]))


def lowered(weight: float) -> float:
    """A weight that allows for errors that the crowd shares."""
    factor, exponent = SHARED_ERRORS
    return factor * min(weight, float(weight**exponent))


def forget(log_f: Floats, rows: LabelRows, trained: npt.NDArray[np.bool_]) -> Floats:
    """ln f (n, C) with the labels taken out that the network has learnt by heart.

    From ln f of the ``trained`` instances (n,) their votes are subtracted, times the number with which their labels become as
    probable, on average, as labels of held-out instances are. Without held-out labels nothing is changed.
    """
    own = trained[rows.instance]
    if own.all() or not own.any():
        return log_f

    def label_probability(log_p: Floats, chosen: npt.NDArray[np.bool_]) -> float:
        given = np.exp(log_p[rows.instance[chosen], rows.label[chosen]])
        return float(np.average(given, weights=rows.times[chosen]))

    expected = label_probability(log_f, ~own)
    votes = np.where(trained[:, None], rows.by_instance(np.eye(rows.size[2])[rows.label]), 0)

    def without(share: float) -> Floats:
        return np.asarray(log_softmax(log_f - share * votes, axis=1))

    low, high = 0.0, 8.0
    if label_probability(log_f, own) <= expected:
        return log_f
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if label_probability(without(middle), own) > expected else (low, middle)
    return without(low)
