"""Worker agreement with aggregate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.aggregation.core.base import Aggregator, Calibration, share
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.registry import AGGREGATORS


@AGGREGATORS.register("wawa")
@dataclass(kw_only=True, eq=False, repr=False)
class Wawa(Aggregator):
    """A label counts as much as its annotator agrees with the majority vote (and was right before: history).

    >>> answers = ["a", "a", "a", "b", "b"], ["x", "y", "z", "x", "z"], ["cat", "cat", "dog", "dog", "cat"]
    >>> Wawa().fit(answers).skill_.round(3)
    array([0.5, 1. , 0.5])
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    holds_shares = True
    uses_history = True
    streams = True

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        self.skill_ = agreement(crowd, crowd.choose(crowd.majority(), self.tie, rng))
        return crowd.weighted_majority(self.skill_)


def agreement(crowd: Crowd, labels: np.ndarray) -> Floats:
    """Share of every annotator's labels, past ones included, that agree with ``labels`` (n,): (R,)."""
    right, past = crowd.past_accuracy()
    return share(crowd.agreements(labels) + right, crowd.labels_per_annotator + past, crowd.n_classes)
