"""EBCC: annotators who err alike, through subtypes of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gammaln, psi

from crowdwise.aggregation.core.bayes_kernels import (
    LOWEST,
    Rows,
    entropy,
    evidence,
    expected_log,
)
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats, Step
from crowdwise.aggregation.ibcc import BayesianConfusion, LatentState
from crowdwise.constraints import PositiveFloat, PositiveInt
from crowdwise.registry import AGGREGATORS

EMPTY = 1e-10  # instances in a subtype below which it is dropped: E ln tau is about -M / a_pi, it cannot come back


@dataclass
class EBCCState(LatentState):
    """K = C * M' states: the M' subtypes per class that are still in use, k // M' is the class of state k."""

    counts: Floats  # (A, K) expected labels
    eta: Floats  # (C, M') parameters of the subtypes


@AGGREGATORS.register("ebcc")
@dataclass(kw_only=True, eq=False, repr=False)
class EBCC(BayesianConfusion[EBCCState]):
    """IBCC in which every class is a mixture of subtypes, each with its own confusion rows.

    Y. Li, B. Rubinstein and T. Cohn, Exploiting worker correlation for label aggregation in crowdsourcing, ICML 2019.
    Instances of one subtype mislead annotators in the same way, so labels are correlated given the class.
    ``objective_`` is the evidence lower bound of the best restart and never falls. Subtypes that lost all their
    instances are dropped on the way, which changes nothing and makes later rounds several times cheaper.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]]
    >>> EBCC(random_state=0).fit_predict(answers).tolist()
    [0, 1, 0, 1]
    """

    class_count: PositiveFloat | Literal["empirical"] = "empirical"
    n_subtypes: PositiveInt = 10
    """Subtypes of every class, M."""
    concentration: PositiveFloat = 0.1
    """a_pi: the proportions of the subtypes of a class are Dirichlet(a_pi / M); small values use few of them."""
    n_restarts: PositiveInt = 10
    """Random starts, of which the one with the highest bound wins. The paper has 40: bounds of single starts differ by
    several nats on small crowds, where more starts cost little."""

    def _starts(self) -> int:
        return self.n_restarts if self.n_subtypes > 1 else 1

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> EBCCState:
        start = crowd.initial()
        useful = min(self.n_subtypes, int((start > 0).sum(axis=0).max()))  # a subtype without instances is none
        shares = crowd.drawn_for_instances(rng.standard_exponential((*start.shape, useful)))
        shares *= (start / shares.sum(axis=2))[:, :, None]
        rows = self._rows(crowd)
        return self._update(rows, rows.count(crowd, shares.reshape(len(start), -1)), 0.0, self._alpha(crowd))

    def _round(self, crowd: Crowd, state: EBCCState, rng: np.random.Generator) -> EBCCState:
        reusable = state.posterior if state.posterior.shape[1] == len(state.log_prior) else None
        step = state.rows.em_step(state.log_emission, state.log_prior, out=reusable)
        return self._update(state.rows, step, entropy(step, state.log_emission, state.log_prior), state.alpha)

    def _update(self, rows: Rows, step: Step, disorder: float, alpha: Floats) -> EBCCState:
        """Optimal posteriors of the parameters given expected counts; a subtype without instances adds nothing."""
        mass, counts = occupied(step, len(alpha))  # (C, M'), (A, C * M')
        size, share = mass.sum(axis=1), self.concentration / self.n_subtypes
        nu, eta = alpha + size, share + mass
        log_emission, gain = rows.update(counts)
        bound = disorder + evidence(nu, alpha) + gain + float((gammaln(eta) - gammaln(share)).sum())
        bound -= float((gammaln(self.concentration + size) - gammaln(self.concentration)).sum())
        log_tau = psi(eta) - psi(self.concentration + size)[:, None]
        log_prior = np.maximum(expected_log(nu)[:, None] + log_tau, LOWEST).ravel()
        return EBCCState(step.posterior, bound, rows, log_emission, log_prior, alpha, counts, eta)

    def _posterior(self, crowd: Crowd, state: EBCCState) -> Floats:
        return np.asarray(state.posterior.reshape(crowd.n_instances, crowd.n_classes, -1).sum(axis=2))

    def _finish(self, crowd: Crowd, state: EBCCState) -> None:
        """Confusion rows are means over subtypes: sum_m tau_pm (prior + counts) / total."""
        rows, eta = state.rows, state.eta
        crowd.check_table(crowd.n_classes)
        prior = self._prior_table(crowd)
        added = np.zeros((crowd.n_annotators, *eta.shape))
        added[rows.annotator[rows.starts]] = rows.by_annotator(state.counts).reshape(-1, *eta.shape)
        weight = eta / eta.sum(axis=1, keepdims=True) / (prior.sum(axis=1)[:, :, None] + added)  # (R, C, M')
        table = prior * weight.sum(axis=2)[:, None, :]
        table[rows.annotator, rows.label] += (state.counts.reshape(-1, *eta.shape) * weight[rows.annotator]).sum(axis=2)
        self._set_confusion(table, state.alpha + crowd.mass(self._posterior(crowd, state)))


def occupied(step: Step, n_classes: int) -> tuple[Floats, Floats]:
    """Mass (C, M') and counts (A, C * M') without the empty subtypes.

    Every class keeps as many as the class with most of them, the largest ones, so that tables stay rectangular.
    """
    mass = step.mass.reshape(n_classes, -1)
    subtypes = int((mass > EMPTY).sum(axis=1).max(initial=1))
    if subtypes == mass.shape[1]:
        return mass, step.counts
    largest = np.argsort(-mass, axis=1, kind="stable")[:, :subtypes]  # (C, M')
    states = (largest + np.arange(n_classes)[:, None] * mass.shape[1]).ravel()
    return step.mass[states].reshape(n_classes, subtypes), step.counts[:, states]
