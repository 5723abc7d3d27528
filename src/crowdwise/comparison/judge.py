"""How good out-of-fold predictions are, judged by the annotations of the instances they are for, or by gold labels.

A label counts as much as its annotator is better than chance: w_j = (C s_j - 1) / (C - 1), or 0 where that is negative, with
the skill s_j from hierarchical Dawid-Skene on all labels. The score of predictions c_i is the weighted share of labels that
agree with them, sum_i sum_j w_j [y_ij = c_i] / sum_i sum_j w_j. Gold labels count 1 each. Standard errors are over instances,
by linearisation of that ratio; differences between methods are taken instance by instance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.hierarchical import HierarchicalDawidSkene
from crowdwise.aggregation.majority_vote import MajorityVote
from crowdwise.annotations import Annotations
from crowdwise.data.types import Array
from crowdwise.scoring import annotator_weights, support_of

_ERROR_RATE = (
    0.01  # share of comparisons of methods that learnt nothing in which one is thought to have learnt something
)


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Yardstick:
    """What predictions are held against: how much speaks for each class of each instance, (n, C)."""

    support: Array
    gold: bool = False

    @classmethod
    def from_annotations(cls, annotations: Annotations) -> Yardstick:
        """Labels, weighted by the skill of their annotators; all alike where nobody is better than chance."""
        return cls(support_of(annotations, annotator_weights(annotations)))

    @classmethod
    def from_gold(cls, gold: Array, n_classes: int) -> Yardstick:
        """True classes (n,), -1 where they are not known."""
        support = np.zeros((len(gold), n_classes))
        known = np.flatnonzero(gold >= 0)
        support[known, gold[known]] = 1
        return cls(support, gold=True)

    @property
    def weight(self) -> Array:
        """What each instance counts: (n,)."""
        return np.asarray(self.support.sum(1))

    def hits(self, predicted: Array) -> Array:
        """What speaks for the predicted classes: (n,); ``predicted`` is -1 where there is no prediction."""
        return np.where(predicted >= 0, self.support[np.arange(len(predicted)), predicted], 0.0)

    def score(self, predicted: Array) -> Estimate:
        """The share of the support that predictions have."""
        return ratio(self.hits(predicted), self.weight, predicted >= 0)

    def difference(self, predicted: Array, other: Array) -> Estimate:
        """Score minus that of other predictions, on the instances that both have."""
        both = (predicted >= 0) & (other >= 0)
        return ratio(self.hits(predicted) - self.hits(other), self.weight, both)

    def beyond_chance(self, predicted: Array, folds: Sequence[Array]) -> Estimate:
        """Score minus what the same predictions would have if they were dealt to the instances at random.

        Always the same class is exactly chance, however frequent that class is. Each fold, predicted by a model of its own, is
        dealt by itself.
        """
        expected = np.zeros(len(predicted))
        for fold in folds:
            given = predicted[fold][predicted[fold] >= 0]
            if len(given):
                shares = np.bincount(given, minlength=self.support.shape[1]) / len(given)
                expected[fold] = self.support[fold] @ shares
        return ratio(self.hits(predicted) - expected, self.weight, predicted >= 0)


def ratio(values: Array, weights: Array, where: Array) -> Estimate:
    """sum values / sum weights over some instances.

    >>> ratio(np.array([1.0, 0.0, 1.0, 1.0]), np.ones(4), np.ones(4, bool))
    Estimate(value=0.75, error=0.25)
    """
    counted = where & (weights > 0)
    n, total = int(counted.sum()), float(weights[counted].sum())
    if not n:
        return Estimate(math.nan, math.nan)
    value = float(values[counted].sum()) / total
    residuals = values[counted] - value * weights[counted]
    return Estimate(value, math.sqrt(float(residuals @ residuals) * n / max(n - 1, 1)) / total)


def is_at_chance(excess: Estimate, n_methods: int) -> bool:
    """Whether predictions are no better than chance, as far as one can tell when ``n_methods`` are tried."""
    return not excess.value > float(norm.isf(_ERROR_RATE / max(n_methods, 1))) * excess.error


class Expectation(NamedTuple):
    """How often classifier and labels are expected to be right; ``by_vote`` are labels by majority vote."""

    classifier: float
    labels: float
    by_vote: float


def expectation(annotations: Annotations, predicted: Array, gold: Array | None) -> Expectation:
    """What to expect of a classifier, and of labels from it and the annotators together.

    Its out-of-fold predictions are taken for the labels of one more annotator, and hierarchical Dawid-Skene says how good that
    annotator is, and how sure labels are. Where there are gold labels, these are counted instead.
    """
    at = np.flatnonzero(predicted >= 0)
    weight = None
    if annotations.weight is not None:  # a prediction weighs as much as annotators' labels usually do
        usual = 1.0 / MemoryCrowd.of(annotations).scale
        weight = np.append(annotations.weight, np.full(len(at), usual, annotations.weight.dtype))
    joined = Annotations.from_triples(
        np.concatenate([annotations.instance, at]),
        np.concatenate([annotations.annotator, np.full(len(at), annotations.n_annotators)]),
        np.concatenate([annotations.label, predicted[at]]),
        n_instances=annotations.n_instances,
        n_annotators=annotations.n_annotators + 1,
        n_classes=annotations.n_classes,
        weight=weight,
    )
    together = HierarchicalDawidSkene(random_state=0).fit(joined)
    votes = MajorityVote(random_state=0).fit(annotations).posterior_.argmax(1)
    labelled = at[annotations.labels_per_instance[at] > 0]
    if gold is not None:
        known = at[gold[at] >= 0]
        both = labelled[gold[labelled] >= 0]
        right = together.posterior_.argmax(1) == gold
        return Expectation(float((predicted == gold)[known].mean()), _mean(right[both]), _mean((votes == gold)[both]))
    if (
        annotations.annotators_per_instance.max(initial=0) < 2
    ):  # a single label or the classifier: either could be right
        return Expectation(math.nan, math.nan, math.nan)
    posterior = together.posterior_
    return Expectation(
        float(together.skill_[-1]), _mean(posterior[labelled].max(1)), _mean(posterior[labelled, votes[labelled]])
    )


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else math.nan
