"""Conflict resolution on heterogeneous data, for categorical labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdwise.aggregation.core.base import Calibration, IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.constraints import PositiveFloat
from crowdwise.registry import AGGREGATORS


@dataclass
class Weights(State):
    """The weighted vote, minus the weighted loss, and the weights behind it."""

    weight: Floats  # (R,)


@AGGREGATORS.register("crh")
@dataclass(kw_only=True, eq=False, repr=False)
class CRH(IterativeAggregator[Weights]):
    """Truth discovery (Li et al., SIGMOD 2014): weighted vote and w_j = -ln(e_j / max e) in turns.

    e_j is how much annotator j disagrees with the current labels; classes that tie share an instance.
    Also fitted: ``weight_`` (R,).

    >>> answers = ["a", "a", "a", "b", "b"], ["x", "y", "z", "x", "z"], ["cat", "cat", "dog", "dog", "cat"]
    >>> CRH().fit(answers).weight_.round(2)
    array([16.02, 16.02,  0.  ])
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    max_iter: int = 10
    loss: Literal["mean", "sum"] = "mean"
    """Disagreements as a share of the annotator's labels, or their number (which punishes busy annotators)."""
    normaliser: Literal["max", "sum"] = "max"
    """What the losses are divided by: the largest (which then weighs 0), or their sum."""
    floor: PositiveFloat | Literal["half"] = 1e-8
    """Smallest loss. An annotator without disagreements weighs about 16 and overrules all others; ``"half"`` takes half
    a disagreement instead."""

    settles = False
    holds_shares = True
    streams = True
    state = Weights

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Weights:
        posterior = crowd.majority()
        return Weights(posterior, 0.0, np.ones(crowd.n_annotators))

    def _round(self, crowd: Crowd, state: Weights, rng: np.random.Generator) -> Weights:
        number = crowd.labels_per_annotator
        wrong = np.maximum(number - crowd.top_hits(state.posterior), 0.0)  # not below 0 by rounding
        scale = np.maximum(number, 1) if self.loss == "mean" else np.ones(len(number))
        loss = np.maximum(wrong, 0.5 if self.floor == "half" else self.floor * scale) / scale
        loss[number == 0] = 0.0
        total = loss.max() if self.normaliser == "max" else loss.sum()
        weight = np.where(number > 0, -np.log(loss / total + 1e-7), 0.0)
        weight = np.maximum(weight, 0.0)  # the 1e-7 would make the worst annotator's weight a tiny negative number
        posterior = crowd.weighted_majority(weight)
        return Weights(posterior, -float(weight @ loss), weight)

    def _converged(self, crowd: Crowd, before: Weights, after: Weights) -> bool:
        return not crowd.differ(before.posterior, after.posterior)

    def _finish(self, crowd: Crowd, state: Weights) -> None:
        self.weight_ = state.weight
