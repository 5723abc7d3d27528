"""Which method for a crowd whose truth nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crowdwise.aggregation.committee import identified, is_large
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.core.dependence import alike
from crowdwise.aggregation.majority_vote import MajorityVote
from crowdwise.annotations import Annotations
from crowdwise.data.model_names import model_names, models_alone
from crowdwise.registry import AGGREGATORS

_CHANCE = 0.02  # agreement beyond chance below which labels carry no common signal
_DEVIATIONS = 1.0  # standard deviations of agreement within which it may be chance
_UNANIMOUS = 0.95  # agreement beyond chance above which no method changes anything worth having
_TABLES = 2e9  # bytes of confusion matrices above which one accuracy per annotator has to do
_TOLD = 20  # gold labels from which on the confidence of models is corrected well enough
_LARGE_GROUP = 0.25  # of the labels, from which on annotators who err alike decide too much


@dataclass(frozen=True, eq=False)
class Recommendation:
    """A method, fitted, why it was chosen, and majority vote beside it."""

    name: str
    """Name in the registry of aggregators."""
    estimator: Aggregator
    """The method, fitted."""
    majority_vote: MajorityVote
    """Majority vote on the same annotations, fitted."""
    reason: str
    """One sentence."""
    disagreement: float
    """Share of labelled instances on which the two differ."""
    confidence: Literal["probability", "agreement"] = "probability"
    """What the posterior says: how probable labels are, or merely how far models agree, which is no probability."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason} It differs from majority vote on {self.disagreement:.1%} of the instances."


def recommend(
    annotations: Any,
    gold: Any = None,
    *,
    models: Sequence[Any] | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Recommendation:
    """Choose a method by what annotations alone show, fit it, and say why.

    The rule looks at what can be learnt: whether annotators can be compared at all, whether they agree more than by
    chance, whether there is anything to correct, whether some of them err alike, and whether tables fit into memory.
    Elsewhere it takes `Committee`, the plain mean of methods that fail in different ways.

    Models err alike. ``models`` are their ids, by default of annotators whose names are those of language models. Of models
    alone, whose labels are many and whose errors are habits, the rule takes `HierarchicalDawidSkene`; if people label as
    well, `Panel`. Of models alone without 20 gold labels, ``confidence`` of the result is "agreement": it is no probability.

    Confidence is calibrated throughout, also that of majority vote (``calibration="crowd"``). ``random_state`` draws random
    ties only.

    >>> answers = [["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"]]
    >>> chosen = recommend(answers)
    >>> chosen.name, chosen.estimator.labels_.tolist(), chosen.disagreement
    ('committee', ['cat', 'dog', 'cat', 'dog'], 0.0)
    """
    data = Annotations.coerce(annotations)
    crowd = MemoryCrowd.of(data)
    ids = data.annotators.tolist()
    if models is None:
        models = [one for one, is_model in zip(ids, model_names(ids), strict=True) if is_model]
    name, reason = suitable_method(crowd, models)
    options = {"models": list(models)} if name == "panel" and len(models) > 1 else {}
    estimator = AGGREGATORS[name](random_state=random_state, calibration="crowd", **options).fit(data, gold)
    vote = MajorityVote(random_state=random_state).fit(data, gold)
    differs = (estimator.labels_ != vote.labels_)[crowd.labelled]
    alone = models_alone(ids, data.labels_per_annotator, crowd.n_labelled, models)
    told = int(np.count_nonzero(estimator._fitted_crowd().gold >= 0)) >= _TOLD
    confidence: Literal["probability", "agreement"] = "agreement" if alone and not told else "probability"
    return Recommendation(name, estimator, vote, reason, float(differs.mean()) if differs.size else 0.0, confidence)


def suitable_method(crowd: Crowd, models: Sequence[Any] = ()) -> tuple[str, str]:
    """Name of the method for a crowd, and the reason for it; for a crowd on disk, one that streams."""
    given = crowd.labels_per_annotator[crowd.labels_per_annotator > 0]
    people = crowd.annotators_per_instance
    if len(given) < 3 or people.max(initial=0) < 2:
        few = "fewer than three annotators" if len(given) < 3 else "one label per instance"
        return "majority-vote", f"With {few}, the quality of annotators cannot be estimated."
    in_memory = isinstance(crowd, MemoryCrowd)
    if in_memory and len(models) > 1:
        alone = models_alone(crowd.ids("annotators").tolist(), crowd.labels_per_annotator, crowd.n_labelled, models)
        if not alone or identified(crowd):
            return _for_models(len(models), len(given), alone=alone)
    agreement = crowd.agreement_beyond_chance()
    number = people.astype(np.float64)
    pairs = max(float((number * np.maximum(number - 1.0, 0.0)).sum()) / 2.0, 1.0)
    if agreement < max(_CHANCE, _DEVIATIONS / np.sqrt(pairs * max(crowd.n_classes - 1, 1))):
        if agreement < _CHANCE:
            return (
                "majority-vote",
                "Labels agree hardly more often than guesses, so no method can learn who labels well.",
            )
        return "majority-vote", "Too few labels can be compared for a method to learn who labels well."
    if agreement > _UNANIMOUS:
        return "majority-vote", "Annotators agree almost always: there is nothing left to gain."
    typical, votes = float(np.median(given)), float(people.sum()) / crowd.n_labelled
    facts = f"{typical:g} labels per annotator (median), {votes:.1f} per instance"
    if 8.0 * crowd.n_annotators * crowd.n_classes**2 > _TABLES:
        return "one-coin", (
            f"Confusion matrices of {crowd.n_annotators} annotators by {crowd.n_classes} classes do not fit into "
            f"memory; one accuracy per annotator does ({facts})."
        )
    if not identified(crowd):
        return "committee", (
            "The mean of WAWA and the votes, since too few labels are beyond two per item to learn confusion matrices "
            f"({facts})."
        )
    if in_memory:
        groups = alike(crowd.layout)
        largest = np.bincount(groups[groups >= 0]).argmax() if np.any(groups >= 0) else -1
        group = np.flatnonzero(groups == largest) if largest >= 0 else np.empty(0, np.int64)
        if crowd.labels_per_annotator[group].sum() > _LARGE_GROUP * crowd.labels_per_annotator.sum():
            names = ", ".join(str(each) for each in crowd.ids("annotators")[group[:3]].tolist())
            return "panel", (
                f"{len(group)} annotators ({names}{', ...' if len(group) > 3 else ''}) agree with each other far more than "
                "their skills explain: they err alike, and share their say."
            )
    members = "hierarchical Dawid-Skene, WAWA and the votes"
    if in_memory and not is_large(crowd):
        members = "hierarchical Dawid-Skene, EBCC, WAWA and the votes"
    return "committee", f"The mean of {members}, since no method is best for every crowd ({facts})."


def _for_models(models: int, annotators: int, *, alone: bool) -> tuple[str, str]:
    """The method for a crowd of which several annotators are known to be models, and the reason."""
    if alone:
        return "hierarchical-dawid-skene", (
            f"{models} of {annotators} annotators are models: confusion matrices show their habits, but not the errors that "
            "they share, so their agreement is no proof."
        )
    return "panel", f"{models} of {annotators} annotators are models, which err alike: they share their say."
