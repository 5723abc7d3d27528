"""MACE: annotators either know the answer or spam."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from crowdwise.aggregation.core.base import IterativeAggregator, State, uniform
from crowdwise.aggregation.core.bayes_kernels import expected_log, log_beta
from crowdwise.aggregation.core.crowd import Crowd, confusion
from crowdwise.aggregation.core.kernels import FLOOR, Floats
from crowdwise.constraints import PositiveFloat, PositiveInt
from crowdwise.registry import AGGREGATORS

Training = Literal["vb", "em"]


class Expectation(NamedTuple):
    """E step of MACE, for S models at once."""

    spam: Floats  # (R, C, S) expected number of labels that were drawn from the strategy, by label
    knowing: Floats  # (R, S) expected number of labels that were known
    log_likelihood: Floats  # (S,)


@dataclass
class MACEState(State):
    """All S restarts side by side; parameters are means, or exp E ln in VB. The posterior is made at the end."""

    behaviour: Floats  # (2, R, S) spamming, knowing
    strategy: Floats  # (R, C, S) labels of a spammer
    objectives: Floats  # (S,)


@AGGREGATORS.register("mace")
@dataclass(kw_only=True, eq=False, repr=False)
class MACE(IterativeAggregator[MACEState]):
    """Annotator j spams with probability eps_j, then draws from the strategy xi_j; otherwise it gives the true label.

    D. Hovy et al., Learning whom to trust with MACE, NAACL 2013. Classes are uniform a priori. Restarts advance side
    by side. ``objective_`` is the best restart's evidence lower bound (``"vb"``), or lower bound of the penalised
    log-likelihood (``"em"``), after every round; it never falls.

    Fitted beside the usual: ``competence_`` (R,), the share 1 - eps_j of labels that are known, and ``strategy_``
    (R, C).

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> MACE(random_state=0).fit_predict(answers).tolist()
    [0, 1, 0, 1, 0]
    """

    max_iter: int = 50
    tol: float = 0.0
    method: Training = "vb"
    """M step: ``"vb"``, variational Bayes with the priors below, or ``"em"``, maximum likelihood with smoothing."""
    behaviour_count: PositiveFloat = 0.5
    """Pseudo-count of spamming and of knowing: eps_j ~ Beta(0.5, 0.5) in VB."""
    strategy_count: PositiveFloat = 10.0
    """Pseudo-count of every label in the strategy: xi_j ~ Dirichlet(10) in VB."""
    smoothing: PositiveFloat = 0.01
    """Added to the counts in EM, divided by the number of classes."""
    n_restarts: PositiveInt = 10
    """Random starts, of which the one with the highest objective wins."""

    uses_history: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    state: ClassVar[type[State]] = MACEState

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> MACEState:
        drawn = np.ones((crowd.n_annotators, 2 + crowd.n_classes, self.n_restarts))
        there = np.flatnonzero(crowd.labels_per_annotator)  # nobody else changes the draws
        drawn[there] = rng.uniform(1.0, 2.5, (len(there), *drawn.shape[1:]))
        behaviour, strategy = drawn[:, :2].transpose(1, 0, 2), drawn[:, 2:]
        objectives = np.full(self.n_restarts, -np.inf)
        return MACEState(np.empty(0), -np.inf, normalised(behaviour, 0), normalised(strategy, 1), objectives)

    def _round(self, crowd: Crowd, state: MACEState, rng: np.random.Generator) -> MACEState:
        spam, knowing, objectives = e_step(crowd, state.behaviour, state.strategy)
        acts = np.stack([spam.sum(axis=1), knowing])  # (2, R, S)
        # what is left is the entropy of labels and acts, and the prior of the classes
        objectives = objectives - total(acts * np.log(state.behaviour)) - total(spam * np.log(state.strategy))
        if self.method == "vb":
            a, b = self.behaviour_count, self.strategy_count
            objectives += (log_beta(a + acts, 0) - log_beta(np.full(2, a))).sum(axis=0)
            objectives += (log_beta(b + spam, 1) - log_beta(np.full(crowd.n_classes, b))).sum(axis=0)
            behaviour, strategy = np.exp(expected_log(a + acts, 0)), np.exp(expected_log(b + spam, 1))
        else:
            acts, spam = (table + self.smoothing / crowd.n_classes for table in (acts, spam))
            behaviour, strategy = (np.maximum(normalised(table, k), FLOOR) for k, table in enumerate((acts, spam)))
            objectives += total(acts * np.log(behaviour)) + total(spam * np.log(strategy))
        return MACEState(state.posterior, float(objectives.max()), behaviour, strategy, objectives)

    def _converged(self, crowd: Crowd, before: MACEState, after: MACEState) -> bool:
        change = np.abs(after.objectives - before.objectives).max()
        return bool(change < self.tol * max(crowd.n_labelled, 1))

    def _posterior(self, crowd: Crowd, state: MACEState) -> Floats:
        best = int(state.objectives.argmax())
        return crowd.vote_step(odds(state.behaviour, state.strategy)[:, :, best], uniform(crowd.n_classes)).posterior

    def _finish(self, crowd: Crowd, state: MACEState) -> None:
        best = int(state.objectives.argmax())
        self.competence_ = normalised(state.behaviour[:, :, best], 0)[1]
        self.strategy_ = normalised(state.strategy[:, :, best], 1)
        self.class_prior_ = uniform(crowd.n_classes)

    @cached_property
    def confusion_(self) -> Floats:
        """T_j[p, q] = eps_j xi_j(q) + (1 - eps_j) 1[p = q], (R, C, C)."""
        crowd = self._fitted_crowd()
        if not hasattr(self, "competence_"):  # nothing to infer, such as a single class
            return confusion(crowd.counts(self.posterior_))
        crowd.check_table(crowd.n_classes)
        known = self.competence_[:, None, None]
        return np.asarray((1.0 - known) * self.strategy_[:, None, :] + known * np.eye(crowd.n_classes))

    def _needs(self, n_classes: int) -> int:
        return 2


def odds(behaviour: Floats, strategy: Floats) -> Floats:
    """What a label says for its own class against any other: 1 + (1 - eps_j) / (eps_j xi_j(y)), (R, C, S)."""
    return np.asarray(1.0 + behaviour[1][:, None] / (behaviour[0][:, None] * strategy))


def e_step(crowd: Crowd, behaviour: Floats, strategy: Floats) -> Expectation:
    """Under g_i(c) ~ (1/C) prod (eps_j xi_j(y) + (1 - eps_j) 1[y = c]), who knew what.

    A history is labels of instances whose class is known: those off the diagonal are spam, those on it may be known.
    """
    ratio = odds(behaviour, strategy)
    right, log_likelihood = crowd.vote_hits(ratio)
    given = crowd.label_counts.astype(np.float64)
    if crowd.history is not None:  # [annotator, label, class]
        on_diagonal = np.diagonal(crowd.history, axis1=1, axis2=2)[:, :, None]
        given, right = given + crowd.history.sum(axis=2), right + on_diagonal
        log_likelihood = log_likelihood + total(on_diagonal * np.log(ratio))
    known = right * (1.0 - 1.0 / ratio)
    log_likelihood = log_likelihood + total(given[:, :, None] * np.log(behaviour[0][:, None] * strategy))
    return Expectation(given[:, :, None] - known, known.sum(axis=1), log_likelihood)


def normalised(table: Floats, axis: int) -> Floats:
    """Distributions along ``axis``."""
    return np.asarray(table / table.sum(axis=axis, keepdims=True))


def total(table: Floats) -> Floats:
    """Sums of a table (., ., S) for every model, (S,)."""
    return np.asarray(table.sum(axis=(0, 1)))
