"""Majority vote: the share of an instance's annotations that each class has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from crowdwise.annotations import Annotations
from crowdwise.registry import AGGREGATORS


@AGGREGATORS.register("majority-vote")
@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVote(BaseEstimator):  # type: ignore[misc]
    """``posterior_`` (n, C): votes / labels of the instance, uniform without any; ties go to the first class."""

    def fit(self, annotations: Any) -> Self:
        crowd = Annotations.coerce(annotations)
        votes = crowd.votes().astype(np.float64)
        total = votes.sum(1, keepdims=True)
        self.posterior_ = np.where(total > 0, votes / np.maximum(total, 1), 1 / crowd.n_classes)
        self.classes_ = crowd.classes
        self.labels_ = self.classes_[self.posterior_.argmax(1)]
        return self
