"""CBCC: communities of annotators who share one confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import entr, gammaln, psi

from crowdwise.aggregation.core.bayes_kernels import (
    Rows,
    entropy,
    evidence,
    expected_log,
    softmax,
)
from crowdwise.aggregation.core.crowd import Crowd, confusion
from crowdwise.aggregation.core.kernels import Floats, Step
from crowdwise.aggregation.ibcc import BayesianConfusion, LatentState
from crowdwise.constraints import PositiveFloat, PositiveInt
from crowdwise.registry import AGGREGATORS


@dataclass
class CBCCState(LatentState):
    """``log_emission`` is an annotator's expected log matrix under its memberships."""

    membership: Floats  # r, (G, M) of the annotators that occur
    omega: Floats  # (M,) parameters of the community proportions
    counts: Floats  # (L, M, C) labels that communities gave, of the L labels that occur


@AGGREGATORS.register("cbcc")
@dataclass(kw_only=True, eq=False, repr=False)
class CBCC(BayesianConfusion[CBCCState]):
    """Bayesian classifier combination in which annotators belong to a few communities with one matrix each.

    After M. Venanzi et al., Community-based Bayesian aggregation models for crowdsourcing, WWW 2014, in conjugate form:
    community proportions ~ Dir(a), the rows of a community's matrix V_m ~ Dir(beta_p), and an annotator has exactly the
    matrix of its community (the paper lets it deviate a little). An annotator with few labels so borrows from others
    like it. ``objective_`` is the evidence lower bound of the best restart and never falls.

    Fitted beside the usual: ``membership_`` (R, M) and ``community_confusion_`` (M, C, C).

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]]
    >>> CBCC(random_state=0).fit_predict(answers).tolist()
    [0, 1, 0, 1]
    """

    n_communities: PositiveInt = 3
    """Communities, M."""
    community_count: PositiveFloat = 1.0
    """Pseudo-count of every community, a."""
    n_restarts: PositiveInt = 10
    """Random starts, of which the one with the highest bound wins."""

    def _starts(self) -> int:
        return self.n_restarts if self.n_communities > 1 else 1

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> CBCCState:
        rows = self._rows(crowd)
        draws = rng.dirichlet(np.ones(self.n_communities), len(rows.starts))
        membership = crowd.drawn_for_annotators(draws, rows.annotator[rows.starts])
        return self._update(rows, rows.count(crowd, crowd.initial()), 0.0, self._alpha(crowd), membership)

    def _round(self, crowd: Crowd, state: CBCCState, rng: np.random.Generator) -> CBCCState:
        step = state.rows.em_step(state.log_emission, state.log_prior, out=state.posterior)
        disorder = entropy(step, state.log_emission, state.log_prior)
        return self._update(state.rows, step, disorder, state.alpha, state.membership)

    def _update(self, rows: Rows, step: Step, disorder: float, alpha: Floats, r: Floats) -> CBCCState:
        """Communities given memberships, memberships given communities, communities once more: all raise the bound."""
        m, c = self.n_communities, len(alpha)
        counts = step.counts + rows.past  # N, (A, C)
        labels, first, place = np.unique(rows.label, return_index=True, return_inverse=True)
        gather = sp.csr_array((np.ones(len(place)), (place, np.arange(len(place)))), shape=(len(labels), len(place)))
        prior, beta = np.full(m, float(self.community_count)), rows.beta[first][:, None]  # (M,), (L, 1, C)
        pseudo = self.diagonal + (c - 1) * self.off_diagonal

        def given_by(r: Floats) -> Floats:
            weighted = r[rows.group][:, :, None] * counts[:, None]  # (A, M, C)
            return np.asarray(gather @ weighted.reshape(len(place), -1)).reshape(-1, m, c)

        def log_matrix(given: Floats) -> Floats:
            return np.asarray((psi(beta + given) - psi(pseudo + given.sum(axis=0)))[place])  # E ln V, (A, M, C)

        said = np.einsum("ap,amp->am", counts, log_matrix(given_by(r)))
        r = softmax(expected_log(prior + r.sum(axis=0)) + rows.by_annotator(said))
        given, omega, nu = given_by(r), prior + r.sum(axis=0), alpha + step.mass
        bound = disorder + float(entr(r).sum()) + evidence(nu, alpha) + evidence(omega, prior)
        bound += float((gammaln(beta + given) - gammaln(beta)).sum())
        bound -= float((gammaln(pseudo + given.sum(axis=0)) - gammaln(pseudo)).sum())
        log_emission = np.einsum("am,amp->ap", r[rows.group], log_matrix(given))
        return CBCCState(step.posterior, bound, rows, log_emission, expected_log(nu), alpha, r, omega, given)

    def _finish(self, crowd: Crowd, state: CBCCState) -> None:
        rows, m = state.rows, self.n_communities
        matrices = np.repeat(self._believed(crowd)[None], m, axis=0)  # [community, label, class]
        matrices[:, np.unique(rows.label)] += state.counts.transpose(1, 0, 2)
        self.community_confusion_ = confusion(matrices)
        self.membership_ = np.repeat(state.omega[None] / state.omega.sum(), crowd.n_annotators, axis=0)  # if silent
        self.membership_[rows.annotator[rows.starts]] = state.membership
        crowd.check_table(crowd.n_classes)
        table = np.einsum("jm,mpy->jyp", self.membership_, self.community_confusion_)
        self._set_confusion(table, state.alpha + crowd.mass(state.posterior))

    def _needs(self, n_classes: int) -> int:
        return 0  # communities pool the labels of many
