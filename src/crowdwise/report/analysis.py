"""What is believed about the instances and annotators of a report, by which method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation import recommend
from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.majority_vote import MajorityVote
from crowdwise.registry import AGGREGATORS
from crowdwise.report.source import Source

if TYPE_CHECKING:
    from crowdwise.report.transitions import Transitions

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SMOOTHING = 2.0  # labels of an average annotator that are added to each row of a counted matrix
TABLES = 1e9  # bytes of confusion matrices above which they are made for the shown annotators only


@dataclass(frozen=True, eq=False)
class Analysis:
    """Posterior of the instances, matrices of the annotators, and a classifier's view where there is one."""

    source: Source
    method: str
    """The method in words."""
    reason: str
    """Why it was chosen, a sentence; empty where nobody had to choose."""
    posterior: Floats  # (n, C)
    majority: Ints  # (n,) most votes; the first of equals
    confusion: Floats | None = None  # (R, C, C) where the method estimates it
    predicted: Floats | None = None  # (n, C) by the classifier
    transitions: Transitions | None = None
    right: Floats | None = None  # (E,) chance that the annotator is right on such an instance, by the model
    warnings: list[str] = field(default_factory=list)

    @property
    def label(self) -> Ints:
        """Consensus of every instance, (n,); the first of equals."""
        return np.asarray(self.posterior.argmax(axis=1)) if self.posterior.size else np.zeros(len(self.posterior), int)

    @property
    def doubt(self) -> Floats:
        """How likely the consensus is wrong, (n,).

        1 minus its probability; a classifier that knows nothing of annotators has a say of one half.
        """
        belief = self.posterior
        if self.predicted is not None and self.transitions is None:
            belief = (belief + self.predicted) / 2
        if not belief.size:
            return np.ones(len(belief))
        return np.asarray(1 - np.take_along_axis(belief, self.label[:, None], axis=1)[:, 0])

    def matrices(self, shown: Ints) -> Floats:
        """T of the shown annotators, (K, C, C): the method's own, or counted on the consensus and smoothed."""
        if self.confusion is not None:
            return self.confusion[shown]
        if self.transitions is not None:
            from crowdwise.report.transitions import mean_matrices

            return mean_matrices(self.source.annotations, self.transitions, shown)
        crowd = self.source.annotations
        classes = crowd.n_classes
        layout = MemoryCrowd.of(crowd).layout
        everybody = layout._replace(cells=kernels.labels(layout), shape=(1, classes))
        average = np.asarray(kernels.expected_counts(everybody, self.posterior)).T + 1e-9  # (C, C), true class, label
        average /= average.sum(axis=1, keepdims=True)
        of_shown = (shown[:, None] * classes + np.arange(classes)).ravel()
        given = np.asarray(kernels.expected_counts(layout, self.posterior, of_shown))
        counts = given.reshape(len(shown), classes, classes).transpose(0, 2, 1)
        return np.asarray((counts + SMOOTHING * average) / (counts.sum(axis=2) + SMOOTHING)[:, :, None])

    def accuracy(self, label: Ints) -> float | None:
        """Share of the instances of known truth that have this label; None where no truth is known."""
        truth = self.source.truth
        if truth is None or not (truth >= 0).any():
            return None
        return float(np.mean(label[truth >= 0] == truth[truth >= 0]))


def analyse(source: Source, method: str = "auto", *, seed: int = 0) -> Analysis:
    """Fit a method to the labels, unless the source brings a posterior or a classifier with transition matrices."""
    crowd = source.annotations
    majority = crowd.votes().argmax(axis=1) if crowd.n_classes else np.zeros(crowd.n_instances, np.int64)
    if source.model is not None and method == "auto":
        return _of_model(source, majority, seed)
    if source.posterior is not None and method == "auto":
        words = source.method or "given"
        return Analysis(source, words, "", source.posterior, majority)
    name, reason, fitted, said = _aggregate(source, method, seed)
    confusion = fitted.confusion_ if _fits(source) else None
    return Analysis(source, name, reason, fitted.posterior_, majority, confusion, warnings=said)


def _fits(source: Source) -> bool:
    """Whether memory may hold a matrix for each annotator."""
    return 8.0 * source.annotations.n_annotators * source.annotations.n_classes**2 <= TABLES


def _of_model(source: Source, majority: Ints, seed: int) -> Analysis:
    from crowdwise.report.transitions import Transitions, mean_matrices, posterior

    model = source.model
    assert model is not None
    predicted = model.predict_proba(source.X)
    transitions = Transitions.of(model, source.X)
    if transitions is not None:
        belief, right = posterior(predicted, source.annotations, transitions)
        reason = "What the classifier sees in the item, weighed with each label by its annotator's matrix."
        everybody = np.arange(source.annotations.n_annotators)
        confusion = mean_matrices(source.annotations, transitions, everybody) if _fits(source) else None
        return Analysis(source, model.name, reason, belief, majority, confusion, predicted, transitions, right)
    name, reason, fitted, said = _aggregate(source, "auto", seed)
    words = f"{name}, beside the classifier of {model.name}"
    confusion = fitted.confusion_ if _fits(source) else None
    return Analysis(source, words, reason, fitted.posterior_, majority, confusion, predicted, warnings=said)


def _aggregate(source: Source, method: str, seed: int) -> tuple[str, str, Any, list[str]]:
    """Name, reason, fitted aggregator, and what was warned of."""

    def fit() -> tuple[str, str, Any]:
        if not len(source.annotations):
            return "majority-vote", "There are no labels.", MajorityVote(random_state=seed).fit(source.annotations)
        if method == "auto":
            chosen = recommend(source.annotations, random_state=seed)
            return chosen.name, chosen.reason, chosen.estimator
        return method, "", AGGREGATORS[method](random_state=seed).fit(source.annotations)

    (name, reason, fitted), said = heard(fit)
    return name, reason, fitted, said


def heard(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The function's result, and what it warned users of, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        result = function()
    return result, list(dict.fromkeys(str(warning.message) for warning in caught))
