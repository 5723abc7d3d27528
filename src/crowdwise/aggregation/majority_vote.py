"""Majority vote, plain and weighted by annotators' accuracy on gold labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.aggregation.core.base import Aggregator, Calibration, share
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.core.queries import labels_within
from crowdwise.registry import AGGREGATORS


@AGGREGATORS.register("majority-vote")
@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVote(Aggregator):
    """Every label counts alike: q_i(c) = votes_i(c) / r_i, uniform without votes.

    >>> MajorityVote().fit_predict((["a", "a", "a", "b"], ["x", "y", "z", "x"], ["cat", "dog", "dog", "cat"]))
    array(['dog', 'cat'], dtype='<U3')
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    holds_shares = True
    streams = True

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        return crowd.majority()


@AGGREGATORS.register("gold-majority-vote")
@dataclass(kw_only=True, eq=False, repr=False)
class GoldMajorityVote(Aggregator):
    """A label counts as much as its annotator is right on the instances with gold labels (and was before: history).

    Annotators without any gold instance get the mean of the others; where nobody has one, this is majority vote.

    >>> answers = ["a", "a", "a", "b", "b", "b"], ["x", "y", "z", "x", "y", "z"], ["cat", "cat", "dog"] * 2
    >>> GoldMajorityVote().fit_predict(answers, gold={"a": "dog"})
    array(['dog', 'dog'], dtype='<U3')
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    holds_shares = True
    uses_history = True

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        known = np.zeros((crowd.n_instances, crowd.n_classes))  # rows of instances without gold stay 0
        right = crowd.hits(crowd.clamp(known)).sum(axis=1)
        asked = labels_within(crowd.layout, crowd.gold >= 0) if crowd.gold.size else np.zeros(crowd.n_annotators)
        past_right, past = crowd.past_accuracy()
        self.skill_ = share(right + past_right, asked + past, crowd.n_classes)
        return crowd.weighted_majority(self.skill_)
