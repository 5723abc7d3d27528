"""What a fitted aggregator tells about annotators and classes, where the method does not say it itself."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import intervals
from crowdwise.aggregation.core.crowd import Crowd, confusion
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.data.comparing import comparable


class Fitted:
    """Values derived from the posterior, and credible intervals."""

    posterior_: Floats
    raw_posterior_: Floats
    _crowd: Crowd

    @property
    def judging_posterior_(self) -> Floats:
        """The posterior (n, C) by which annotators are judged: halfway between ``posterior_`` and ``raw_posterior_``.

        Honest confidence allows for errors that may be common to all, and would draw every annotator towards chance; without it
        the crowd would be right too often.
        """
        return self.posterior_

    @cached_property
    def confusion_(self) -> Floats:
        """Confusion matrices (R, C, C) under ``judging_posterior_``; a row that no label speaks for is uniform."""
        return confusion(self._fitted_crowd().counts(self.judging_posterior_))

    @cached_property
    def skill_(self) -> Floats:
        """Expected share of right labels of every annotator, (R,); silent annotators get the mean of the others."""
        crowd = self._fitted_crowd()
        return share(crowd.hits(self.judging_posterior_).sum(axis=1), crowd.labels_per_annotator, crowd.n_classes)

    @cached_property
    def class_prior_(self) -> Floats:
        """Mean of ``judging_posterior_`` over the labelled instances, (C,)."""
        crowd = self._fitted_crowd()
        return crowd.mass(self.judging_posterior_) / crowd.n_labelled if crowd.n_labelled else uniform(crowd.n_classes)

    def skill_interval(self, level: float = 0.95) -> Floats:
        """Credible interval (R, 2) of every annotator's probability of being right (Beta posterior).

        The votes do not say how far errors depend on each other, so the lower end is that of the posterior with honest
        confidence and the upper end that of independent errors. Where nobody can be compared, it is 0 to 1.
        """
        crowd = self._fitted_crowd()
        if not self.comparable_:
            return np.tile([0.0, 1.0], (crowd.n_annotators, 1))
        past_right, past = crowd.past_accuracy()
        given, errors = self._believed_skill(crowd)
        found = []
        for posterior in (self.posterior_, self.raw_posterior_):
            right = crowd.hits(posterior).sum(axis=1) + past_right
            wrong = crowd.labels_per_annotator + past - right
            found.append(intervals.beta_interval(right + given, wrong + errors, level))
        return np.stack([np.minimum(*found)[:, 0], np.maximum(*found)[:, 1]], axis=1)

    @property
    def comparable_(self) -> bool:
        """Whether anything tells right labels from wrong ones: gold, a history, or a second opinion on an instance."""
        crowd = self._fitted_crowd()
        return comparable(crowd, bool(crowd.gold.size) or crowd.history is not None)

    def confusion_interval(self, level: float = 0.95) -> Floats:
        """Credible intervals (R, C, C, 2) of ``confusion_``: rows have Dirichlet posteriors; ends as in `skill_interval`."""
        crowd = self._fitted_crowd()
        past, believed = 0.0 if crowd.history is None else crowd.history, self._believed(crowd)
        both = [self.posterior_, *([] if self.raw_posterior_ is self.posterior_ else [self.raw_posterior_])]
        found = [intervals.confusion_interval(crowd.counts(each) + past, believed, level) for each in both]
        low = np.min([each[..., 0] for each in found], axis=0)
        return np.stack([low, np.max([each[..., 1] for each in found], axis=0)], axis=-1)

    def _believed(self, crowd: Crowd) -> Floats:
        """Prior of the intervals in numbers of labels, (C, C) as [label, class]."""
        return np.full((crowd.n_classes, crowd.n_classes), intervals.JEFFREYS)

    def _believed_skill(self, crowd: Crowd) -> tuple[float, float]:
        """Prior of skills' intervals in numbers of labels, right and wrong."""
        return intervals.JEFFREYS, intervals.JEFFREYS

    @property
    def annotators_(self) -> npt.NDArray[Any]:
        """Ids of the annotators, (R,)."""
        return self._fitted_crowd().ids("annotators")

    @property
    def instances_(self) -> npt.NDArray[Any]:
        """Ids of the instances, (n,)."""
        return self._fitted_crowd().ids("instances")

    def _fitted_crowd(self) -> Crowd:
        if not hasattr(self, "_crowd"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit with annotations first")
        return self._crowd


def share(hits: Floats, number: npt.NDArray[Any], n_classes: int) -> Floats:
    """``hits / number`` (R,), the mean over the others where ``number`` is 0, and chance where all are."""
    some = number > 0
    shares: Floats = np.divide(hits, number, out=np.zeros(len(hits)), where=some)
    shares[~some] = shares[some].mean() if np.any(some) else 1.0 / max(n_classes, 1)
    return shares


def uniform(size: int) -> Floats:
    """The uniform distribution over ``size`` classes."""
    return np.full(size, 1.0 / size) if size else np.empty(0)
