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

    Classes that tie in the vote share the instance.

    >>> answers = ["a", "a", "a", "b", "b"], ["x", "y", "z", "x", "z"], ["cat", "cat", "dog", "dog", "cat"]
    >>> Wawa().fit(answers).skill_.round(3)
    array([0.75, 1.  , 0.25])
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    holds_shares = True
    uses_history = True
    streams = True

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        self.skill_ = agreement(crowd, crowd.majority())
        return crowd.weighted_majority(self.skill_)


def agreement(crowd: Crowd, posterior: Floats) -> Floats:
    """Share of every annotator's labels, past ones included, that are the most probable class (n, C): (R,)."""
    right, past = crowd.past_accuracy()
    return share(crowd.top_hits(posterior) + right, crowd.labels_per_annotator + past, crowd.n_classes)
