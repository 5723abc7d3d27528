"""How good predictions are, for `cross_val_score`, `GridSearchCV` and the like: by held-out annotations, or by true labels.

Without the truth, predictions are judged by the labels that a crowd gave to the same instances. A label counts as much as its
annotator is better than chance: w_j = (C s_j - 1) / (C - 1), or 0 where that is negative, with the skill s_j from hierarchical
Dawid-Skene. The skill-weighted agreement of predictions c_i is sum_i sum_j w_j [y_ij = c_i] / sum_i sum_j w_j. Where labels have
weights of their own, w_j is multiplied by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crowdwise.aggregation.hierarchical import HierarchicalDawidSkene
from crowdwise.annotations import Annotations
from crowdwise.data.matching import match
from crowdwise.data.types import Array, Floats
from crowdwise.errors import DataError, shorten

__all__ = ["Accuracy", "Agreement", "annotator_weights", "skill_weighted_agreement"]


def annotator_weights(annotations: Annotations) -> Floats:
    """What a label of each annotator counts (R,); all alike where nobody is better than chance."""
    if annotations.n_classes < 2:
        return np.ones(annotations.n_annotators)
    skill = HierarchicalDawidSkene(random_state=0).fit(annotations).skill_
    weight = np.clip((annotations.n_classes * skill - 1) / (annotations.n_classes - 1), 0, 1)
    return weight if weight[annotations.annotator].sum() > 0 else np.ones_like(weight)


def support_of(annotations: Annotations, weight: Floats) -> Floats:
    """The weight of the labels for each class of each instance: (n, C)."""
    support = np.zeros((annotations.n_instances, annotations.n_classes))
    by_label = weight[annotations.annotator]
    if annotations.weight is not None:
        by_label = by_label * annotations.weight
    np.add.at(support, (annotations.instance, annotations.label), by_label)
    return support


def skill_weighted_agreement(annotations: Any, predicted: Any, weight: Floats | None = None) -> float:
    """The share of labels that agree with predicted classes (n,), each weighted by the skill of its annotator.

    ``weight`` (R,) are the annotators' weights, by default those of `annotator_weights`. NaN without labels.

    >>> agreed = skill_weighted_agreement([["cat", "cat"], ["dog", "dog"], ["cat", "dog"]], ["cat", "dog", "dog"])
    >>> round(agreed, 3)
    0.833
    """
    crowd = Annotations.coerce(annotations)
    predicted = np.asarray(predicted)
    if predicted.shape != (crowd.n_instances,):
        raise DataError(
            f"predicted has shape {predicted.shape}, but the annotations cover {crowd.n_instances} instances"
        )
    support = support_of(crowd, annotator_weights(crowd) if weight is None else weight)
    code = {value: code for code, value in enumerate(crowd.classes.tolist())}
    chosen = np.array([code.get(value, -1) for value in predicted.tolist()], dtype=np.int64)
    hits = np.where(chosen >= 0, support[np.arange(len(chosen)), chosen], 0.0).sum() if crowd.n_classes else 0.0
    return float(hits / support.sum()) if support.sum() > 0 else math.nan


@dataclass(frozen=True, eq=False)
class Agreement:
    """A scorer: skill-weighted agreement with the annotations that are held out.

    Give it all ``annotations``, so that skills are estimated once, from everything; otherwise they are estimated from each fold.

    >>> import numpy as np, crowdwise
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> votes = ((X[:, :1] > 0) ^ (rng.random((200, 3)) < 0.2)).astype(int)
    >>> crowd = crowdwise.Annotations.from_dense(votes)
    >>> bool(cross_val_score(crowdwise.CE(steps=100, verbose=0), X, crowd, cv=2, scoring=Agreement(crowd)).min() > 0.7)
    True
    """

    annotations: Annotations | None = None

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        crowd, weight = match(X, y).annotations, None
        if self.annotations is not None:
            known = dict(zip(self.annotations.annotators.tolist(), self._weights, strict=True))
            unknown = [name for name in crowd.annotators.tolist() if name not in known]
            if unknown:
                raise DataError(f"the scorer does not know the annotators {shorten(unknown, 4)}")
            weight = np.array([known[name] for name in crowd.annotators.tolist()])
        return skill_weighted_agreement(crowd, estimator.predict(X), weight)

    @cached_property
    def _weights(self) -> list[float]:
        return [] if self.annotations is None else annotator_weights(self.annotations).tolist()


@dataclass(frozen=True, eq=False)
class Accuracy:
    """A scorer: accuracy on held-out instances whose true class is known, while training sees the annotations alone.

    ``truth`` maps ids of instances (rows, where they have none) to classes.
    """

    truth: Mapping[Any, Any]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        ids = match(X, y).annotations.instances.tolist()
        predicted: Array = estimator.predict(X)
        right = [
            value == self.truth[name] for name, value in zip(ids, predicted.tolist(), strict=True) if name in self.truth
        ]
        return float(np.mean(right)) if right else math.nan
