"""Fast Dawid-Skene: hard assignment after each E step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.aggregation.dawid_skene import Confusions, DawidSkene
from crowdwise.registry import AGGREGATORS


@AGGREGATORS.register("fast-dawid-skene")
@dataclass(kw_only=True, eq=False, repr=False)
class FastDawidSkene(DawidSkene):
    """Sinha, Rao & Balasubramanian (2018): `DawidSkene` that counts every instance for its most probable class only.
    Classes that tie share it.

    Settles in a few rounds, once the class shares move by less than ``tol`` in all. ``objective_`` is the likelihood of
    labels and annotations together, which never falls after soft rounds; ``posterior_`` is the last E step before it is
    made hard.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> FastDawidSkene().fit_predict(answers)
    array([0, 1, 0, 1, 0])
    """

    tol: float = 1e-4
    hybrid: bool = False
    """Soft rounds first, until the class shares move by less than 0.005."""

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Confusions:
        state = super()._start(crowd, rng)
        return state if self.hybrid else self._harden(crowd, state.posterior, -np.inf, state.pseudo)

    def _round(self, crowd: Crowd, state: Confusions, rng: np.random.Generator) -> Confusions:
        if state.soft:
            after = super()._round(crowd, state, rng)
            return replace(after, soft=bool(np.abs(after.class_prior - state.class_prior).sum() > 0.005))
        step = crowd.em_step(state.emission, state.class_prior, out=state.posterior)
        likelihood = step.log_likelihood + self._log_prior(crowd, state)
        return self._harden(crowd, step.posterior, likelihood, state.pseudo)

    def _harden(self, crowd: Crowd, posterior: Floats, likelihood: float, pseudo: Floats | None) -> Confusions:
        """M step from the most probable class of every instance."""
        counts, mass, logs = crowd.hard_counts(posterior)
        return replace(self._maximise(crowd, posterior, likelihood + logs, counts, mass, pseudo), soft=False)

    def _converged(self, crowd: Crowd, before: Confusions, after: Confusions) -> bool:
        return not after.soft and bool(np.abs(after.class_prior - before.class_prior).sum() < self.tol)
