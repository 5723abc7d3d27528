"""IBCC: independent Bayesian classifier combination, by variational inference or Gibbs sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from crowdwise.aggregation.core.base import IterativeAggregator, State, choose
from crowdwise.aggregation.core.bayes_kernels import Rows, entropy, evidence, expected_log
from crowdwise.aggregation.core.crowd import Crowd, confusion
from crowdwise.aggregation.core.kernels import Floats, Step
from crowdwise.constraints import NonNegativeInt, PositiveFloat
from crowdwise.errors import ConfigError
from crowdwise.registry import AGGREGATORS

Inference = Literal["variational", "gibbs"]


@dataclass
class LatentState(State):
    """A posterior over latent states, and the tables with which the next E step weighs the labels."""

    rows: Rows
    log_emission: Floats  # (A, K)
    log_prior: Floats  # (K,)
    alpha: Floats  # (C,) prior of the class proportions

    def content(self) -> dict[str, Any]:
        return {
            name: value for name, value in super().content().items() if name != "rows"
        }  # they follow from the crowd


S = TypeVar("S", bound=State)


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianConfusion(IterativeAggregator[S]):
    """Base of the Bayesian relatives of Dawid-Skene: Dirichlet priors on confusion rows and on class proportions."""

    max_iter: int = 500
    tol: float = 1e-6
    diagonal: PositiveFloat = 4.0
    """Pseudo-count of right labels in every confusion row, beta_pp."""
    off_diagonal: PositiveFloat = 1.0
    """Pseudo-count of each wrong label in every confusion row, beta_pq."""
    class_count: PositiveFloat | Literal["empirical"] = 1.0
    """Pseudo-count of every class, alpha; ``"empirical"``: the class sums of the soft majority vote."""
    warm_start: bool = False
    """Start `partial_fit` at the posterior of the last fit; see `DawidSkene`."""

    uses_history: ClassVar[bool] = True

    def _alpha(self, crowd: Crowd) -> Floats:
        """Prior of the class proportions, (C,)."""
        if self.class_count == "empirical":
            return np.maximum(crowd.mass(crowd.majority()), 1e-3)  # a class without votes stays possible
        return np.full(crowd.n_classes, float(self.class_count))

    def revived(self, crowd: Crowd, content: dict[str, Any]) -> Any:
        return super().revived(crowd, {**content, "rows": self._rows(crowd)})

    def _rows(self, crowd: Crowd) -> Rows:
        return Rows.of(crowd, self.diagonal, self.off_diagonal)

    def _believed(self, crowd: Crowd) -> Floats:
        c = crowd.n_classes
        return np.full((c, c), float(self.off_diagonal)) + (self.diagonal - self.off_diagonal) * np.eye(c)

    def _needs(self, n_classes: int) -> int:
        return n_classes

    def _set_confusion(self, table: Floats, class_parameters: Floats) -> None:
        """Fitted means: ``table`` (R, C, C) holds parameters or probabilities [annotator, label, class]."""
        self.confusion_ = confusion(table)
        self.class_prior_ = class_parameters / class_parameters.sum()
        self.skill_ = np.einsum("jpp,p->j", self.confusion_, self.class_prior_)

    def _prior_table(self, crowd: Crowd) -> Floats:
        """Prior and history of all confusion rows, (R, C, C) or (1, C, C) as [annotator, label, class]."""
        return np.asarray(self._believed(crowd)[None] + (0.0 if crowd.history is None else crowd.history))


@dataclass
class Chain(State):
    """A Gibbs chain; ``posterior`` is the mean of the conditionals of the kept sweeps."""

    conditional: Floats  # (n, C) P(class | drawn parameters)
    alpha: Floats
    sweeps: int = 0


@AGGREGATORS.register("ibcc")
@dataclass(kw_only=True, eq=False, repr=False)
class IBCC(BayesianConfusion[LatentState | Chain]):
    """Dawid-Skene with Dirichlet priors: proportions ~ Dir(alpha), confusion rows ~ Dir(beta_p).

    H.-C. Kim and Z. Ghahramani, Bayesian classifier combination, AISTATS 2012. ``"variational"`` maximises the evidence
    lower bound, which ``objective_`` traces and which never falls. ``"gibbs"`` draws labels, proportions and confusion
    matrices in turn for ``max_iter`` sweeps and averages P(class | drawn parameters), which has the mean of the drawn
    labels and less variance; ``objective_`` then is the log-likelihood of the drawn parameters.

    ``skill_`` is the posterior mean of the probability of a right label, for silent annotators that of the prior.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> IBCC().fit_predict(answers).tolist()
    [0, 1, 0, 1, 0]
    """

    method: Inference = "variational"
    """How the posterior is found: ``"variational"`` or ``"gibbs"``."""
    burn_in: NonNegativeInt = 100
    """Gibbs sweeps that are left out of the mean."""

    streams: ClassVar[bool] = True
    state: ClassVar[type[State]] = LatentState

    def check_streams(self) -> None:
        super().check_streams()
        if self.method == "gibbs":
            raise ConfigError("ibcc with method='gibbs' cannot be streamed; use method='variational'")

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> LatentState | Chain:
        q, alpha = crowd.initial(), self._alpha(crowd)
        if self.method == "gibbs":
            return Chain(q, -np.inf, np.eye(crowd.n_classes)[choose(q, self.tie, rng)], alpha)
        rows = self._rows(crowd)
        return self._variational(rows, rows.count(crowd, q), 0.0, alpha)

    def _round(self, crowd: Crowd, state: LatentState | Chain, rng: np.random.Generator) -> LatentState | Chain:
        if isinstance(state, Chain):
            return self._sweep(crowd, state, rng)
        step = state.rows.em_step(state.log_emission, state.log_prior, out=state.posterior)
        return self._variational(state.rows, step, entropy(step, state.log_emission, state.log_prior), state.alpha)

    def _variational(self, rows: Rows, step: Step, disorder: float, alpha: Floats) -> LatentState:
        """Optimal posteriors of the parameters given expected counts; the bound is H(q) and the ln B terms."""
        log_emission, gain = rows.update(step.counts)
        nu = alpha + step.mass
        bound = disorder + evidence(nu, alpha) + gain
        return LatentState(step.posterior, bound, rows, log_emission, expected_log(nu), alpha)

    def _sweep(self, crowd: Crowd, chain: Chain, rng: np.random.Generator) -> Chain:
        """Draw labels, then parameters given them."""
        passed = chain.conditional.cumsum(axis=1) < rng.random((crowd.n_instances, 1))
        drawn = np.eye(crowd.n_classes)[np.minimum(passed.sum(axis=1), crowd.n_classes - 1)]
        rows = rng.standard_gamma(self._prior_table(crowd) + crowd.counts(drawn)) + 1e-250  # 0 has no logarithm
        prior = rng.standard_gamma(chain.alpha + crowd.mass(drawn)) + 1e-250
        step = crowd.em_step(rows / rows.sum(axis=1, keepdims=True), prior / prior.sum())
        sweeps = chain.sweeps + 1
        mean = chain.posterior + (step.posterior - chain.posterior) / max(sweeps - self.burn_in, 1)
        return Chain(mean, step.log_likelihood, step.posterior, chain.alpha, sweeps)

    def _converged(self, crowd: Crowd, before: LatentState | Chain, after: LatentState | Chain) -> bool:
        if isinstance(after, Chain):  # a chain runs its length
            return after.sweeps == self.max_iter
        return super()._converged(crowd, before, after)

    def _finish(self, crowd: Crowd, state: LatentState | Chain) -> None:
        q = state.posterior
        self._set_confusion(self._prior_table(crowd) + crowd.counts(q), state.alpha + crowd.mass(q))

    def _check(self) -> None:
        super()._check()
        if self.method == "gibbs" and self.burn_in >= self.max_iter:
            raise ConfigError(f"burn_in must be less than max_iter={self.max_iter}, got {self.burn_in!r}")
