"""KOS: iterative learning by message passing between instances and annotators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.registry import AGGREGATORS


@dataclass
class Messages(State):
    """Reliability messages of annotators to instances, one a label, for every class against the rest."""

    reliability: Floats  # (E, B): B is 1 for two classes, else C
    answer: Floats  # (E, B): +1 where the label is the class, -1 where not
    instance: npt.NDArray[np.int64]  # (E,)
    annotator: npt.NDArray[np.int64]  # (E,)

    @property
    def graph(self) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """What does not change from round to round."""
        return self.answer, self.instance, self.annotator


@AGGREGATORS.register("kos")
@dataclass(kw_only=True, eq=False, repr=False)
class KOS(IterativeAggregator[Messages]):
    """Karger, Oh & Shah (2011): x_{i→j} = Σ_{j'≠j} A_ij' y_{j'→i}, y_{j→i} = Σ_{i'≠i} A_i'j x_{i'→j}, with A = ±1.

    The label is the sign of Σ_j A_ij y_{j→i} (``scores_``); more than two classes are taken one against the rest. Made
    for two classes and tree-like random assignments; on others it oscillates. ``posterior_`` is a softmax of the scores
    over their typical size, good for ranking, not calibrated.

    >>> KOS(init="ones", max_iter=1).fit([[1, 1, 0], [0, 0, 0], [1, 1, 1]]).scores_[:, 1]
    array([ 4., -4.,  4.])
    """

    weighs = False

    max_iter: int = 100
    tol: float = 0.0
    init: Literal["normal", "ones"] = "normal"
    """First messages of annotators: drawn from N(1, 1), or all 1."""

    settles = False

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        if crowd.labels_per_instance.max() < 2:
            return self._majority_instead(crowd, "it compares labels, and no instance has two")
        return super()._infer(crowd, rng)

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Messages:
        layout, c = crowd.layout, crowd.n_classes
        label = kernels.labels(layout).astype(np.int64)
        against = np.array([1]) if c == 2 else np.arange(c)
        answer = np.where(label[:, None] == against, 1.0, -1.0)
        first = rng.normal(1.0, 1.0, answer.shape) if self.init == "normal" else np.ones(answer.shape)
        annotator = (layout.cells // c).astype(np.int64)
        return Messages(np.empty(0), 0.0, first, answer, kernels.instances(layout), annotator)

    def _round(self, crowd: Crowd, state: Messages, rng: np.random.Generator) -> Messages:
        said = state.answer * state.reliability
        task = _sums(said, state.instance, crowd.n_instances)[state.instance] - said
        heard = state.answer * task
        reliability = _sums(heard, state.annotator, crowd.n_annotators)[state.annotator] - heard
        largest = np.abs(reliability).max(axis=0)
        if np.any(largest > 1e100):  # only signs and proportions matter, and they grow without end
            reliability /= np.maximum(largest, 1.0)
        return Messages(state.posterior, float(largest.max()), reliability, *state.graph)

    def _posterior(self, crowd: Crowd, state: Messages) -> Floats:
        # the messages have two solutions of opposite sign: take the one in which most annotators are reliable
        reliability = state.reliability * np.where(state.reliability.sum(axis=0) < 0, -1.0, 1.0)
        scores = _sums(state.answer * reliability, state.instance, crowd.n_instances)
        typical = np.abs(scores[crowd.labelled]).mean(axis=0)
        logits = scores / np.where(typical > 0, typical, 1.0)
        if crowd.n_classes == 2:
            scores, logits = np.hstack([-scores, scores]), np.hstack([-logits, logits])
        self.scores_ = scores
        posterior = np.exp(logits - logits.max(axis=1, keepdims=True))
        return crowd.clamp(posterior / posterior.sum(axis=1, keepdims=True))


def _sums(values: Floats, group: npt.NDArray[np.int64], size: int) -> Floats:
    """Sums of the rows of every group, (size, B)."""
    return np.stack([np.bincount(group, column, size) for column in values.T], axis=1)
