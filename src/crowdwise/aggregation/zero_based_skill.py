"""Zero-based skill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.aggregation.core.base import Calibration, IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.wawa import agreement
from crowdwise.constraints import PositiveFloat, PositiveInt
from crowdwise.registry import AGGREGATORS


@dataclass
class Skills(State):
    """The weighted vote, its agreement with all labels, and the skills for the next vote."""

    skill: Floats  # (R,)
    rounds: int


@AGGREGATORS.register("zero-based-skill")
@dataclass(kw_only=True, eq=False, repr=False)
class ZeroBasedSkill(IterativeAggregator[Skills]):
    """Weighted vote and agreement with it in turns: s_j += lr (agreement_j - s_j), from s_j = 1/C on.

    It stops early where no skill moves by ``tol``.

    >>> answers = ["a", "a", "a", "b", "b"], ["x", "y", "z", "x", "z"], ["cat", "cat", "dog", "dog", "cat"]
    >>> ZeroBasedSkill().fit(answers).skill_.round(3)
    array([1., 1., 0.])
    """

    calibration: Calibration = "none"
    """``"none"``: shares of votes; ``"crowd"``: probabilities."""

    tol: float = 1e-12
    lr: PositiveFloat = 1.0
    """Step towards the agreement; halved every ``lr_steps`` rounds."""
    lr_steps: PositiveInt = 20

    holds_shares = True
    uses_history = True
    streams = True
    settles = False
    state = Skills

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Skills:
        skill = np.full(crowd.n_annotators, 1.0 / crowd.n_classes + 1e-5)
        return Skills(crowd.weighted_majority(skill), 0.0, skill, 0)

    def _round(self, crowd: Crowd, state: Skills, rng: np.random.Generator) -> Skills:
        rounds = state.rounds + 1
        target = agreement(crowd, state.posterior)
        skill = state.skill + self.lr * 0.5 ** (rounds // self.lr_steps) * (target - state.skill)
        return Skills(crowd.weighted_majority(skill), float(target @ crowd.labels_per_annotator), skill, rounds)

    def _converged(self, crowd: Crowd, before: Skills, after: Skills) -> bool:
        return bool(np.abs(after.skill - before.skill).max() < self.tol)

    def _finish(self, crowd: Crowd, state: Skills) -> None:
        self.skill_ = state.skill
