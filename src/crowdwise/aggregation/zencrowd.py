"""ZenCrowd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crowdwise.aggregation.core.base import uniform
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.one_coin import Coins, OneCoinDawidSkene
from crowdwise.constraints import OpenProbability
from crowdwise.registry import AGGREGATORS


@AGGREGATORS.register("zencrowd")
@dataclass(kw_only=True, eq=False, repr=False)
class ZenCrowd(OneCoinDawidSkene):
    """Demartini et al. (WWW 2012): one-coin EM with all classes equally probable, from a_j = 0.8, for 20 rounds.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> ZenCrowd().fit(answers).skill_.round(3)
    array([0.887, 0.887, 0.5  ])
    """

    max_iter: int = 20
    tol: float = 0.0
    prior: tuple[float, float] | None = None
    """Right and wrong labels that every annotator is taken to have given before; the original has none."""
    initial_skill: OpenProbability = 0.8
    """Accuracy of every annotator at the start; silent annotators keep it."""

    _skill_floor: ClassVar[float] = 1e-6

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Coins:
        skill = np.full(crowd.n_annotators, self.initial_skill)
        return Coins(crowd.initial(), -np.inf, skill, uniform(crowd.n_classes), self._beliefs(crowd))

    def _unknown_skill(self, crowd: Crowd) -> float:
        return self.initial_skill

    def _class_prior(self, mass: Floats) -> Floats:
        return uniform(len(mass))

    def _needs(self, n_classes: int) -> int:
        return 0
