"""One-coin Dawid-Skene: one accuracy per annotator, errors spread evenly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import FLOOR, Floats
from crowdwise.aggregation.dawid_skene import AUTO, normalised
from crowdwise.constraints import NonNegativeFloat
from crowdwise.registry import AGGREGATORS


@dataclass
class Coins(State):
    """Posterior, penalised log-likelihood, and the parameters for the next round."""

    skill: Floats  # (R,)
    class_prior: Floats  # (C,)
    believed: Floats  # (2, R) right and wrong labels before this crowd, by prior and history


@AGGREGATORS.register("one-coin")
@dataclass(kw_only=True, eq=False, repr=False)
class OneCoinDawidSkene(IterativeAggregator[Coins]):
    """Dawid-Skene with T_j = a_j on the diagonal and (1 - a_j) / (C - 1) beside it; a_j = mean of q_i(y_ij).

    Zhang et al. (JMLR 2016). Memory does not grow with the square of the number of classes.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> OneCoinDawidSkene(max_iter=5, tol=0).fit(answers).skill_.round(1)
    array([0.8, 0.8, 0.6])
    """

    prior: tuple[NonNegativeFloat, NonNegativeFloat] | Literal["auto"] | None = "auto"
    """Right and wrong labels that every annotator is taken to have given before. ``"auto"``: four, right and wrong as
    the whole crowd is when majority vote is taken for the truth; None is maximum likelihood."""
    warm_start: bool = False
    """Start `partial_fit` at the posterior of the last fit; see `DawidSkene`."""

    uses_history = True
    streams = True
    state = Coins

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Coins:
        posterior = crowd.initial()
        right = crowd.hits(posterior).sum(axis=1)
        believed = self._beliefs(crowd)
        return self._maximise(crowd, posterior, -np.inf, right, crowd.mass(posterior), believed)

    def _round(self, crowd: Crowd, state: Coins, rng: np.random.Generator) -> Coins:
        others = (1.0 - state.skill) / (crowd.n_classes - 1)
        ratio = np.repeat((state.skill / others)[:, None], crowd.n_classes, axis=1)
        step = crowd.vote_step(ratio, state.class_prior, out=state.posterior)
        right, wrong = state.believed
        objective = step.log_likelihood + float(crowd.labels_per_annotator @ np.log(others))
        objective += float(right @ np.log(state.skill) + wrong @ np.log(1.0 - state.skill))
        objective += self._class_pseudo_count() * float(np.log(state.class_prior).sum())
        hits = step.counts.sum(axis=1)
        return self._maximise(crowd, step.posterior, objective, hits, step.mass, state.believed)

    def _maximise(
        self,
        crowd: Crowd,
        posterior: Floats,
        objective: float,
        hits: Floats,
        mass: Floats,
        believed: Floats,
    ) -> Coins:
        """M step: accuracies from expected numbers of right labels (R,), and the class prior from class sums."""
        right, wrong = believed
        number = crowd.labels_per_annotator + right + wrong
        skill = np.full(crowd.n_annotators, self._unknown_skill(crowd))
        np.divide(hits + right, number, out=skill, where=number > 0)
        skill = np.clip(skill, self._skill_floor, 1.0 - self._skill_floor)
        return Coins(posterior, objective, skill, self._class_prior(mass), believed)

    def _beliefs(self, crowd: Crowd) -> Floats:
        """Right and wrong labels before this crowd, (2, R)."""
        right, total = crowd.past_accuracy()
        if self.prior is None:
            return np.stack([right, total - right])
        if isinstance(self.prior, str):
            accuracy = float(crowd.hits(crowd.majority()).sum() / crowd.labels_per_annotator.sum())
            return np.stack([right + AUTO * accuracy, total - right + AUTO * (1.0 - accuracy)])
        return np.stack([right + self.prior[0], total - right + self.prior[1]])

    _skill_floor: ClassVar[float] = FLOOR

    def _unknown_skill(self, crowd: Crowd) -> float:
        """Accuracy of annotators about whom nothing is known."""
        return 1.0 / crowd.n_classes

    def _class_prior(self, mass: Floats) -> Floats:
        return normalised(mass + self._class_pseudo_count())

    def _class_pseudo_count(self) -> float:
        return 1.0 if isinstance(self.prior, str) else 0.0

    @cached_property
    def confusion_(self) -> Floats:
        """One-coin confusion matrices, (R, C, C)."""
        c, skill = self._fitted_crowd().n_classes, self.skill_[:, None, None]
        return np.where(np.eye(c, dtype=bool), skill, (1.0 - skill) / max(c - 1, 1))

    def _finish(self, crowd: Crowd, state: Coins) -> None:
        self.skill_, self.class_prior_ = state.skill, state.class_prior

    def _needs(self, n_classes: int) -> int:
        return 2
