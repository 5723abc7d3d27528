"""The posterior of a report's instances and the matrices of its annotators, and the method they come from."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.aggregation import recommend
from crowdwise.aggregation.core import kernels, tempering
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.queries import choose
from crowdwise.aggregation.majority_vote import MajorityVote
from crowdwise.annotations import Annotations
from crowdwise.data.types import Floats, Ints
from crowdwise.figures import Evidence, RightShare, Worth, measured, worth
from crowdwise.registry import AGGREGATORS
from crowdwise.report.source import Source

if TYPE_CHECKING:
    from crowdwise.report.transitions import Transitions


COMBINED = "The classifier's prediction, combined with each label through its annotator's matrix."
SMOOTHING = 2.0  # labels of the average annotator, added to each row of a counted matrix
TABLES = 1e9  # bytes of confusion matrices; above that, only the shown annotators get one


@dataclass(frozen=True, eq=False)
class Analysis:
    """Posterior of the instances, matrices of the annotators, and a classifier's predictions if there are any."""

    source: Source
    method: str
    """The method's name for readers."""
    reason: str
    """Why it was chosen, in a sentence; empty if there was no choice."""
    posterior: Floats  # (n, C)
    confusion: Floats | None = None  # (R, C, C) if the method estimates it
    predicted: Floats | None = None  # (n, C) by the classifier
    transitions: Transitions | None = None
    right: Floats | None = None  # (E,) probability that the annotator is right on the instance, by the model
    warnings: list[str] = field(default_factory=list)
    fitted: Any = None  # the aggregator, if one was fitted

    @property
    def judging(self) -> Floats:
        """The posterior (n, C) by which annotators are judged."""
        return self.posterior if self.fitted is None else np.asarray(self.fitted.judging_posterior_)

    @cached_property
    def worth(self) -> Worth:
        """How many labels are right, which figure to believe, and why."""
        return worth(
            self.source.annotations,
            self.posterior,
            self.source.truth,
            label=self.label,
            confidence=1 - self.doubt,
            scores=self.source.annotations.votes() if isinstance(self.fitted, MajorityVote) else None,
            ordered=self.source.ordered,
            estimate=not self.shares,
            models=self.source.models,
        )

    @cached_property
    def evidence(self) -> Evidence:
        """Whether the labels themselves tell right from wrong; if not, probabilities and skills would be made up."""
        return self.worth.evidence

    @property
    def comparable(self) -> bool:
        """Whether probabilities and skills may be shown: the labels tell right from wrong, or only their result is there."""
        return self.evidence.enough or self.evidence.kind == "no labels"

    @property
    def shares(self) -> bool:
        """Whether the posterior holds shares of votes, which are no probabilities of being right."""
        fitted = self.fitted
        return fitted is not None and bool(fitted.holds_shares) and fitted.calibration == "none"

    def known(self) -> Ints:
        """Codes of the labelled instances whose truth is known, (k,)."""
        truth, labelled = self.source.truth, np.flatnonzero(self.source.annotations.labels_per_instance > 0)
        return labelled[truth[labelled] >= 0] if truth is not None else labelled[:0]

    @property
    def label(self) -> Ints:
        """Consensus of every instance, (n,); ties go to the first class."""
        return choose(self.posterior, "first", np.random.default_rng(0))

    @property
    def doubt(self) -> Floats:
        """Probability that the consensus is wrong, (n,).

        A classifier without a model of annotators counts for one half.
        """
        belief = self.posterior
        if self.predicted is not None and self.fitted is not None:
            belief = (belief + self.predicted) / 2
        if not belief.size:
            return np.ones(len(belief))
        return np.asarray(1 - np.take_along_axis(belief, self.label[:, None], axis=1)[:, 0])

    def matrices(self, shown: Ints) -> Floats:
        """T of the shown annotators, (K, C, C): the method's own, or smoothed counts against the consensus."""
        if self.confusion is not None:
            return self.confusion[shown]
        if self.transitions is not None:
            from crowdwise.report.transitions import mean_matrices

            return mean_matrices(self.source.annotations, self.transitions, shown)
        crowd = self.source.annotations
        classes = crowd.n_classes
        layout = MemoryCrowd.of(crowd).layout
        everybody = layout._replace(cells=kernels.labels(layout), shape=(1, classes))
        average = np.asarray(kernels.expected_counts(everybody, self.judging)).T + 1e-9  # (C, C), true class, label
        average /= average.sum(axis=1, keepdims=True)
        of_shown = (shown[:, None] * classes + np.arange(classes)).ravel()
        given = np.asarray(kernels.expected_counts(layout, self.judging, of_shown))
        counts = given.reshape(len(shown), classes, classes).transpose(0, 2, 1)
        return np.asarray((counts + SMOOTHING * average) / (counts.sum(axis=2) + SMOOTHING)[:, :, None])

    def measured(self, scores: Floats) -> RightShare | None:
        """How many of the instances with known truth have the class of the highest score (n, C); None without any."""
        truth, known = np.full(len(scores), -1), self.known()
        if len(known):
            truth[known] = np.asarray(self.source.truth)[known]
        return measured(scores, truth)


def analyse(source: Source, method: str = "auto", *, seed: int = 0) -> Analysis:
    """Fit a method to the labels, unless the source has a posterior or a classifier with transition matrices."""
    crowd, model = source.annotations, source.model if method == "auto" else None
    if model is None and source.posterior is not None and method == "auto":
        return Analysis(source, source.method or "given", "", source.posterior)
    fits = 8.0 * crowd.n_annotators * crowd.n_classes**2 <= TABLES
    predicted = None
    if model is not None:
        from crowdwise.report.transitions import Transitions, mean_matrices, posterior

        predicted = model.predict_proba(source.X)
        transitions = Transitions.of(model, source.X)
        if transitions is not None:
            belief, right = posterior(predicted, crowd, transitions)
            belief = _honest(crowd, belief) if source.posterior is None else source.posterior
            confusion = mean_matrices(crowd, transitions, np.arange(crowd.n_annotators)) if fits else None
            return Analysis(source, model.name, COMBINED, belief, confusion, predicted, transitions, right)
        if source.posterior is not None:
            return Analysis(source, model.name, COMBINED, source.posterior, predicted=predicted)
    (name, reason, fitted), warned = with_warnings(lambda: _aggregate(crowd, method, seed, source.models))
    if model is not None:
        name = f"{name}, beside the classifier of {model.name}"
    found = Analysis(source, name, reason, fitted.posterior_, predicted=predicted, warnings=warned)
    return replace(found, confusion=fitted.confusion_ if fits else None, fitted=fitted)


def _honest(crowd: Annotations, posterior: Floats) -> Floats:
    """A posterior that takes errors for independent, with the confidence that aggregators have."""
    if not len(crowd) or crowd.n_classes < 2:
        return posterior
    votes = MemoryCrowd.of(crowd)
    vote, rho = tempering.read_votes(votes, posterior, None, [])
    return tempering.tempered(votes.layout, posterior, vote, rho)


def _aggregate(crowd: Annotations, method: str, seed: int, models: list[Any]) -> tuple[str, str, Any]:
    """Name, reason and fitted aggregator."""
    if not len(crowd):
        return "majority-vote", "There are no labels.", MajorityVote(random_state=seed).fit(crowd)
    if method == "auto":
        chosen = recommend(crowd, models=models, random_state=seed)
        return chosen.name, chosen.reason, chosen.estimator
    return method, "", AGGREGATORS[method](random_state=seed).fit(crowd)


def with_warnings(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The function's result, and its warnings to users, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        result = function()
    return result, list(dict.fromkeys(str(warning.message) for warning in caught))
