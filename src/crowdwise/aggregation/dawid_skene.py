"""Dawid-Skene: EM for one confusion matrix per annotator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import intervals, kernels
from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.correlation import crowd_matrix
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import FLOOR, Floats
from crowdwise.errors import ConfigError
from crowdwise.registry import AGGREGATORS

Prior = Literal["auto"] | float | npt.NDArray[Any] | None
AUTO = 4.0  # labels that the prior of an annotator (one-coin) or of a row (full) weighs; 1 or 2 let sparse crowds down


@dataclass
class Confusions(State):
    """Posterior, penalised log-likelihood, and the parameters for the next round."""

    emission: Floats  # (R, C, C): P(label | class) as [annotator, label, class]
    class_prior: Floats  # (C,)
    pseudo: Floats | None  # (C, C) the prior in labels, [label, class]; the same in all rounds
    soft: bool = True  # whether the next round counts posteriors; False: most probable classes only


@AGGREGATORS.register("dawid-skene")
@dataclass(kw_only=True, eq=False, repr=False)
class DawidSkene(IterativeAggregator[Confusions]):
    """Dawid & Skene (1979): q_i(p) ∝ π_p Π_j T_j[p, y_ij], T_j[p, y] ∝ Σ_i q_i(p) 1[y_ij = y] + prior, in turns.

    Starts at the (soft) majority vote. ``objective_`` is the log-likelihood plus the log-density of the prior, and
    never falls.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> DawidSkene(prior=None).fit_predict_proba(answers).round(3)[:2]
    array([[0.967, 0.033],
           [0.033, 0.967]])
    """

    prior: Prior = "auto"
    """What is believed of an annotator before any label, in numbers of labels. ``"auto"``: four a class, right and
    wrong as the whole crowd is when majority vote is taken for the truth (and one instance a class in the class prior);
    it keeps sparse crowds from collapsing. A number is added to every count; a matrix (C, C) holds counts
    [class, label]; None is maximum likelihood."""
    warm_start: bool = False
    """Start `partial_fit` at the posterior of the last fit: fewer rounds, but it may stay in another local optimum
    than one fit on all annotations would find."""

    uses_history = True
    streams = True
    state = Confusions

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Confusions:
        posterior = crowd.initial()
        counts = crowd.counts(posterior)
        pseudo = self._pseudo_counts(crowd, counts)
        return self._maximise(crowd, posterior, -np.inf, counts, crowd.mass(posterior), pseudo)

    def _round(self, crowd: Crowd, state: Confusions, rng: np.random.Generator) -> Confusions:
        step = crowd.em_step(state.emission, state.class_prior, out=state.posterior)
        objective = step.log_likelihood + self._log_prior(crowd, state)
        return self._maximise(crowd, step.posterior, objective, step.counts, step.mass, state.pseudo)

    def _maximise(
        self, crowd: Crowd, posterior: Floats, objective: float, counts: Floats, mass: Floats, pseudo: Floats | None
    ) -> Confusions:
        """M step: parameters from expected counts [annotator, label, class], which it overwrites, and class sums."""
        if pseudo is not None:
            counts += pseudo
        if crowd.history is not None:
            counts += crowd.history
        np.maximum(counts, FLOOR if pseudo is not None else crowd.used_labels * FLOOR, out=counts)
        counts /= np.einsum("jlc->jc", counts)[:, None]  # like counts.sum(axis=1), which is slow along short axes
        prior = normalised(mass + self._class_pseudo_count())
        return Confusions(posterior, objective, counts, prior, pseudo)

    def _log_prior(self, crowd: Crowd, state: Confusions) -> float:
        """Log-density of the prior at the parameters, up to a constant."""
        value = self._class_pseudo_count() * float(np.log(state.class_prior).sum())
        if state.pseudo is not None or crowd.history is not None:
            logs = np.log(np.maximum(state.emission, kernels.TINY))
            value += 0.0 if state.pseudo is None else float(np.vdot(state.pseudo, logs.sum(axis=0)))
            value += 0.0 if crowd.history is None else float(np.vdot(crowd.history, logs))
        return value

    def _pseudo_counts(self, crowd: Crowd, counts: Floats) -> Floats | None:
        """The prior in labels, (C, C) as [label, class]; ``counts`` are those of the start."""
        if self.prior is None:
            return None
        if isinstance(self.prior, str):
            return AUTO * crowd_matrix(counts if crowd.earlier is None else crowd.counts(crowd.majority()))
        given = np.asarray(self.prior, np.float64)
        if given.ndim == 2 and given.shape != (crowd.n_classes, crowd.n_classes):
            raise ConfigError(f"prior has shape {given.shape}, but this crowd has {crowd.n_classes} classes")
        return np.broadcast_to(given.T, (crowd.n_classes, crowd.n_classes))

    def _class_pseudo_count(self) -> float:
        return 1.0 if isinstance(self.prior, str) else 0.0

    def _finish(self, crowd: Crowd, state: Confusions) -> None:
        self.confusion_ = np.ascontiguousarray(state.emission.transpose(0, 2, 1))
        self.class_prior_ = state.class_prior
        self.skill_ = np.einsum("jcc,c->j", state.emission, state.class_prior)
        self._pseudo = state.pseudo

    def _believed(self, crowd: Crowd) -> Floats:
        pseudo = getattr(self, "_pseudo", None)
        return super()._believed(crowd) if pseudo is None else np.maximum(pseudo, intervals.JEFFREYS / 10)

    def _needs(self, n_classes: int) -> int:
        return n_classes

    def _check(self) -> None:
        super()._check()
        if self.prior is None or (isinstance(self.prior, str) and self.prior == "auto"):
            return
        values = np.asarray(self.prior)
        if values.dtype.kind not in "fiu" or values.ndim not in (0, 2) or not np.all(values >= 0):
            raise ConfigError(
                f"prior must be 'auto', None, a number of 0 or more, or a matrix (C, C) of such; got {self.prior!r}"
            )


def normalised(mass: Floats) -> Floats:
    """A distribution from class sums, floored so that its logarithm is finite."""
    prior = np.maximum(mass / mass.sum(), FLOOR)
    return np.asarray(prior / prior.sum())
