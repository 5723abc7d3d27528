"""Which method for a crowd whose truth nobody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.majority_vote import MajorityVote
from crowdwise.annotations import Annotations
from crowdwise.registry import AGGREGATORS

_CHANCE = 0.02  # agreement beyond chance below which labels carry no common signal
_UNANIMOUS = 0.95  # agreement beyond chance above which no method changes anything worth having
_TABLES = 2e9  # bytes of confusion matrices above which one accuracy per annotator has to do


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

    def __str__(self) -> str:
        return f"{self.name}: {self.reason} It differs from majority vote on {self.disagreement:.1%} of the instances."


def recommend(
    annotations: Any, gold: Any = None, *, random_state: int | np.random.Generator | None = None
) -> Recommendation:
    """Choose a method by what annotations alone show, fit it, and say why.

    The rule looks at what can be learnt: whether annotators can be compared at all, whether they agree more than by
    chance, whether there is anything to correct, and whether confusion matrices fit into memory. Where they can be
    compared it takes `HierarchicalDawidSkene`: on simulated crowds of a dozen kinds (1 to 200 labels per annotator, 1.5
    to 10 per instance, 2 to 10 classes) it had the highest mean accuracy in nearly every regime, and lost more than
    two points to majority vote as rarely as WAWA does.

    >>> answers = [["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"], ["dog", "dog", "cat"]]
    >>> chosen = recommend(answers)
    >>> chosen.name, chosen.estimator.labels_.tolist(), chosen.disagreement
    ('hierarchical-dawid-skene', ['cat', 'dog', 'cat', 'dog'], 0.0)
    """
    data = Annotations.coerce(annotations)
    crowd = MemoryCrowd.of(data)
    name, reason = suitable_method(crowd)
    estimator = AGGREGATORS[name](random_state=random_state).fit(data, gold)
    vote = MajorityVote(random_state=random_state).fit(data, gold)
    differs = (estimator.labels_ != vote.labels_)[crowd.labelled]
    return Recommendation(name, estimator, vote, reason, float(differs.mean()) if differs.size else 0.0)


def suitable_method(crowd: Crowd) -> tuple[str, str]:
    """Name of the method for a crowd, and the reason for it."""
    given = crowd.labels_per_annotator[crowd.labels_per_annotator > 0]
    shared = float(np.mean(crowd.labels_per_instance[crowd.labelled] > 1)) if crowd.n_labelled else 0.0
    if len(given) < 3 or shared == 0.0:
        few = "fewer than three annotators" if len(given) < 3 else "one label per instance"
        return "majority-vote", f"With {few}, the quality of annotators cannot be estimated."
    agreement = crowd.agreement_beyond_chance()
    if agreement < _CHANCE:
        return "majority-vote", (
            f"Two labels of an instance agree no more than by chance ({agreement:+.2f} beyond it), so no method can "
            "tell right from wrong: check the task and its instructions."
        )
    if agreement > _UNANIMOUS:
        return (
            "majority-vote",
            f"Annotators agree almost always ({agreement:.2f} beyond chance): there is nothing left to gain.",
        )
    typical, votes = float(np.median(given)), crowd.n_annotations / crowd.n_labelled
    facts = (
        f"{typical:g} labels per annotator (median), {votes:.1f} per instance, agreement {agreement:.2f} beyond chance"
    )
    if 8.0 * crowd.n_annotators * crowd.n_classes**2 > _TABLES:
        return "one-coin", (
            f"Confusion matrices of {crowd.n_annotators} annotators by {crowd.n_classes} classes do not fit into "
            f"memory; one accuracy per annotator does ({facts})."
        )
    enough = typical >= 2 * crowd.n_classes
    why = "annotators can be compared" if enough else "annotators with few labels each borrow strength from the crowd"
    return "hierarchical-dawid-skene", f"Confusion matrices with a learnt prior, because {why} ({facts})."
