"""M-MSR: skills by robust rank-one matrix completion, then a weighted vote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.registry import AGGREGATORS

_SMALLEST = 1e-6  # a factor is not divided by less
_PACK = 2.0**26  # more than the common instances of any two annotators


@dataclass
class Factors(State):
    """The two factors of |X| = u v^T; the objective is minus the change of the product in the last round."""

    covariance: sp.csr_array  # (R, R) X: agreement of every pair with common instances, rescaled so that E X = s s^T
    u: Floats  # (R,)
    v: Floats  # (R,)
    trim: int  # values to leave out at either end


@AGGREGATORS.register("mmsr")
@dataclass(kw_only=True, eq=False, repr=False)
class MMSR(IterativeAggregator[Factors]):
    """Ma & Olshevsky (NeurIPS 2020): X_ab = (C · agreement_ab - 1) / (C - 1) ≈ s_a s_b, completed with trimmed means.

    Only pairs of annotators with common instances are held. ``weight_`` (R,) is ln(a (C - 1) / (1 - a)) of the accuracy
    a = ``skill_``; ``posterior_`` is a softmax of the weighted votes.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> MMSR(random_state=0).fit_predict(answers)
    array([0, 1, 0, 1, 0])
    """

    weighs = False
    decomposes = True

    max_iter: int = 10_000
    tol: float = 1e-10
    """Stop when ‖u vᵀ - previous‖ / ‖u vᵀ‖ is below; 0: exactly ``max_iter`` rounds."""

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        if np.count_nonzero(crowd.labels_per_annotator) < 3 or crowd.labels_per_instance.max() < 2:
            return self._majority_instead(crowd, "it compares annotators, and needs three with common instances")
        return super()._infer(crowd, rng)

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Factors:
        covariance = pair_covariance(crowd)
        degree = np.diff(covariance.indptr)
        connected = degree[degree > 0]
        trim = max(int(connected.min()) // 2 - 1, 0) if connected.size else 0
        u, v = np.zeros((2, crowd.n_annotators))
        compared = np.flatnonzero(degree)  # nobody else changes the draws
        u[compared], v[compared] = crowd.drawn_for_annotators(rng.random((len(compared), 2)), compared).T
        return Factors(np.empty(0), -np.inf, covariance, u, v, trim)

    def _round(self, crowd: Crowd, state: Factors, rng: np.random.Generator) -> Factors:
        x = state.covariance  # symmetric: its rows are its columns
        values = np.abs(x.data)
        v = kernels.trimmed_means(x.indptr, values / np.maximum(state.u, _SMALLEST)[x.indices], state.v, state.trim)
        u = kernels.trimmed_means(x.indptr, values / np.maximum(v, _SMALLEST)[x.indices], state.u, state.trim)
        du, dv = u - state.u, v - state.v
        # ‖u vᵀ - u' v'ᵀ‖² with u vᵀ - u' v'ᵀ = du vᵀ + u' dvᵀ: nothing of size R x R, nothing cancels
        squared = float((du @ du) * (v @ v) + (state.u @ state.u) * (dv @ dv) + 2 * (du @ state.u) * (v @ dv))
        change = np.sqrt(max(squared, 0.0) / max(float((u @ u) * (v @ v)), _SMALLEST))
        return Factors(state.posterior, -float(change), x, u, v, state.trim)

    def _converged(self, crowd: Crowd, before: Factors, after: Factors) -> bool:
        return -after.objective < self.tol

    def _finish(self, crowd: Crowd, state: Factors) -> None:
        c, n = crowd.n_classes, crowd.n_labelled
        skill = rank_one_skill(state.covariance, state.u, state.v)
        margin = 1.0 / np.sqrt(n) if n > 1 else 0.5
        clipped = np.clip(skill, min(-1.0 / (c - 1) + margin, 0.0), max(1.0 - margin, 0.0))
        self.skill_ = clipped * (c - 1) / c + 1.0 / c
        self.weight_ = np.log(self.skill_ * (c - 1) / (1.0 - self.skill_))

    def _posterior(self, crowd: Crowd, state: Factors) -> Floats:
        if not np.any(self.weight_):
            return crowd.majority()
        scores = crowd.votes(self.weight_)
        posterior = np.exp(scores - scores.max(axis=1, keepdims=True))
        return crowd.clamp(posterior / posterior.sum(axis=1, keepdims=True))


def pair_covariance(crowd: Crowd) -> sp.csr_array:
    """X (R, R) of all pairs of different annotators with common instances, sparse and symmetric."""
    c, layout = crowd.n_classes, crowd.layout
    instance, label = kernels.instances(layout), kernels.labels(layout)
    annotator = (layout.cells // c).astype(np.int64)
    shape = crowd.n_annotators, crowd.n_instances

    def incidence(rows: npt.NDArray[np.bool_] | slice) -> sp.csr_array:
        values = np.ones(len(annotator))[rows]
        made = sp.csr_array((values, (annotator[rows], instance[rows])), shape=shape)
        made.data[:] = 1.0  # a repeated label is one opinion here
        return made

    everything = incidence(slice(None))
    packed = (everything @ everything.T) * _PACK  # both numbers of a pair in one value keeps the sparse rows aligned
    for k in range(c):
        chosen = incidence(label == k)
        packed = packed + chosen @ chosen.T
    packed.setdiag(0.0)
    packed.eliminate_zeros()
    common, agreed = np.divmod(packed.data, _PACK)
    return sp.csr_array(((c * agreed / common - 1.0) / (c - 1.0), packed.indices, packed.indptr), shape=packed.shape)


def rank_one_skill(covariance: sp.csr_array, u: Floats, v: Floats) -> Floats:
    """s (R,) with s sᵀ ≈ X from |s| = u / √(‖u‖ / ‖v‖) and the signs of X's leading eigenvector, most of them positive.

    Annotators who share no instance with anybody get 0.
    """
    alone = np.diff(covariance.indptr) == 0
    if np.all(alone):
        return np.zeros(len(u))
    sign = np.where(_leading_eigenvector(covariance) < 0, -1.0, 1.0)
    sign *= 1.0 if sign[~alone].sum() >= 0 else -1.0
    return np.where(alone, 0.0, sign * u / np.sqrt(np.linalg.norm(u) / np.linalg.norm(v)))


def _leading_eigenvector(matrix: sp.csr_array) -> Floats:
    """Eigenvector (R,) of the largest eigenvalue of a symmetric matrix."""
    if matrix.shape[0] <= 200:
        return np.asarray(np.linalg.eigh(matrix.toarray())[1][:, -1], np.float64)
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh  # slow to import

    start = np.ones(matrix.shape[0])
    try:
        return np.asarray(eigsh(matrix, k=1, which="LA", v0=start, tol=1e-6)[1][:, 0], np.float64)
    except ArpackNoConvergence as unfinished:
        return np.asarray(unfinished.eigenvectors[:, 0], np.float64) if len(unfinished.eigenvalues) else start
