"""What the Bayesian aggregators share: the algebra of Dirichlet distributions, and hot loops.

A block of Dirichlet parameters contributes two things to a variational method: the expected logarithms with which the
E step weighs the data, and, once the posterior of the block is optimal given the expected counts, a term
ln B(prior + counts) - ln B(prior) of the evidence lower bound. Together with the entropy of the latent variables these
terms are the whole bound.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, gammaln, psi

from crowdwise.aggregation.core import compiled, kernels
from crowdwise.aggregation.core.kernels import Cells, Floats, Layout, Step

if TYPE_CHECKING:
    from crowdwise.aggregation.core.crowd import Crowd

LOWEST = -600.0  # expected logarithms stop here, so that their exponentials do not underflow


def expected_log(parameters: Floats, axis: int = -1) -> Floats:
    """E ln p of p ~ Dirichlet(parameters), with the components along ``axis``.

    >>> expected_log(np.array([1.0, 1.0]))
    array([-1., -1.])
    """
    return np.asarray(np.maximum(psi(parameters) - psi(parameters.sum(axis=axis, keepdims=True)), LOWEST))


def log_beta(parameters: Floats, axis: int = -1) -> Floats:
    """ln B, the logarithm of the normalising constant of a Dirichlet distribution, with the components along ``axis``.

    >>> float(np.exp(log_beta(np.array([1.0, 1.0, 1.0]))))
    0.5
    """
    return np.asarray(gammaln(parameters).sum(axis=axis) - gammaln(parameters.sum(axis=axis)))


def evidence(parameters: Floats, prior: Floats) -> float:
    """Term of the bound of one Dirichlet distribution: ln B(parameters) - ln B(prior)."""
    return float(log_beta(parameters) - log_beta(prior))


@dataclass(frozen=True, eq=False)
class Rows:
    """The A pairs (annotator, label) that occur, of G annotators, and the prior of what they say about C classes.

    Variational methods need a table [annotator, label, state] at these pairs only: the others weigh no label, and their
    parameters stay at the prior. With many classes that is nearly all of the table.
    """

    crowd: Crowd  # with pairs for cells
    shape: tuple[int, int]  # of a table with a cell for every pair: kernels think in annotators times labels
    annotator: npt.NDArray[np.int64]  # (A,) ascending
    label: npt.NDArray[np.int64]  # (A,)
    group: npt.NDArray[np.int64]  # (A,) number of the annotator among the G that occur
    starts: npt.NDArray[np.int64]  # (G,) first pair of every annotator
    beta: Floats  # (A, C) pseudo-counts of the label in the confusion rows of the classes
    past: Floats  # (A, C) the annotator's history, or (1, 1) without one
    total: Floats  # (G, C) pseudo-counts and history of all labels, or (1, 1) without history

    @classmethod
    def of(cls, crowd: Crowd, diagonal: float, off_diagonal: float) -> Rows:
        """The pairs of a crowd and its history; the prior of a right label is ``diagonal``, else ``off_diagonal``."""
        occurs, c = crowd.label_counts > 0, crowd.n_classes
        if crowd.history is not None:
            occurs |= crowd.history.any(axis=2)
        annotator, label = np.nonzero(occurs)
        number = (np.cumsum(occurs) - 1).astype(np.uint32)
        first = np.diff(annotator, prepend=-1) > 0
        beta = np.full((len(label), c), float(off_diagonal))
        beta[np.arange(len(label)), label] = diagonal
        past, total = np.zeros((1, 1)), np.full((1, 1), diagonal + (c - 1.0) * off_diagonal)
        if crowd.history is not None:
            past, total = crowd.history[annotator, label], total + crowd.history[annotator[first]].sum(axis=1)
        shape = -(-len(label) // c), c  # as many rows as hold all pairs
        pairs, group = crowd.renumbered(number, shape), np.cumsum(first) - 1
        return cls(pairs, shape, annotator, label, group, np.flatnonzero(first), beta, past, total)

    def em_step(self, log_emission: Floats, log_prior: Floats, out: Floats | None = None) -> Step:
        """`kernels.em_step` with tables (A, K) of logarithms; the counts are (A, K) too."""
        table = np.ones((self.shape[0] * self.shape[1], len(log_prior)))
        np.exp(log_emission, out=table[: len(log_emission)])
        step = self.crowd.em_step(table.reshape(*self.shape, -1), np.exp(log_prior), out)
        return step._replace(counts=step.counts.reshape(table.shape)[: len(log_emission)])

    def count(self, crowd: Crowd, posterior: Floats) -> Step:
        """A step whose posterior (n, K) is given."""
        counts = self.crowd.cell_counts(posterior)
        counts = counts.reshape(-1, counts.shape[2])[: len(self.label)]
        return Step(posterior, counts, crowd.mass(posterior), 0.0)

    def by_annotator(self, table: Floats) -> Floats:
        """Sums of a table (A, ...) over the labels of every annotator, (G, ...)."""
        return np.asarray(np.add.reduceat(table, self.starts, axis=0))

    def update(self, counts: Floats) -> tuple[Floats, float]:
        """Expected log rows (A, K) after expected counts (A, K), K = C * M, and their term of the bound."""
        states = counts.shape[1] // self.beta.shape[1]
        prior, added = self.beta + self.past, self.by_annotator(counts)
        total = added + (np.repeat(self.total, states, axis=1) if self.total.size > 1 else self.total)
        before = np.broadcast_to(gammaln(self.total), (len(self.starts), self.beta.shape[1])).sum()
        gain = -gammaln(total).sum() - states * (gammaln(prior).sum() - before)
        if counts.size >= kernels.PATIENT and kernels.use_numba(counts.size):
            expected = np.empty_like(counts)
            gain += _compiled("rows")(counts, prior, states, psi(total), self.group, LOWEST, expected)
            return expected, float(gain)
        mu = counts + np.repeat(prior, states, axis=1)
        return np.maximum(psi(mu) - psi(total)[self.group], LOWEST), float(gain + gammaln(mu).sum())


def entropy(step: Step, log_emission: Floats, log_prior: Floats) -> float:
    """Entropy of the posterior that an EM step found with these tables.

    Written as log-normaliser minus expected score, it needs no pass over the posterior, and rows confined by gold
    labels need no special care.
    """
    expected = np.vdot(step.counts, log_emission) + np.vdot(step.mass, log_prior)
    return step.log_likelihood - float(expected)


def softmax(scores: Floats) -> Floats:
    """Rows of ``scores`` exponentiated and normalised, safe for any finite values."""
    exponential = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponential / exponential.sum(axis=1, keepdims=True))


class GladStep(NamedTuple):
    """GLAD at given abilities and easiness: posterior, log-likelihood, and gradient of the latter."""

    posterior: Floats  # (n, C)
    log_likelihood: float
    by_ability: Floats  # (R,)
    by_easiness: Floats  # (n,)


def glad_step(layout: Layout, ability: Floats, easiness: Floats) -> GladStep:
    """E step of GLAD with uniform classes, and the gradient of its log-likelihood, in one pass.

    With margin m = ability_j exp(easiness_i) and s = sigmoid(m), a label y multiplies the odds of its own class by
    (C - 1) s / (1 - s), and dL/dm = q_i(y) - s, which is also the gradient of EM's expected log-likelihood.
    """
    n, c = len(easiness), layout.shape[1]
    others = float(c - 1)  # a wrong label is one of C - 1
    annotator, label = decoded(layout)
    number = len(label) if layout.weight is None else float(layout.weight.sum())
    constant = n * np.log(c) + number * np.log(others)
    if layout.compiled and layout.weight is None:
        posterior, sigmoid, by_easiness = np.empty((n, c)), np.empty(len(label)), np.empty(n)

        def run(_: int, start: int, stop: int) -> tuple[float, Floats]:
            by_ability = np.zeros(len(ability))
            data = annotator, label, layout.indptr, start, stop, layout.gold, ability, easiness, others
            return _compiled("glad")(*data, sigmoid, posterior, by_ability, by_easiness), by_ability

        values, parts = zip(*compiled.spread(layout.indptr, run, layout.threads), strict=True)
        return GladStep(posterior, float(sum(values) - constant), np.sum(parts, axis=0), by_easiness)
    instance = kernels.instances(layout)
    scale = np.exp(easiness)[instance]
    margin = ability[annotator] * scale
    scores = (
        np.bincount(instance * c + label, kernels.weighed(layout, margin + np.log(others)), minlength=n * c)
        .astype(np.float64)
        .reshape(n, c)
    )
    if layout.gold.size:
        scores[(layout.gold[:, None] >= 0) & (np.arange(c) != layout.gold[:, None])] = -np.inf
    normaliser = np.logaddexp.reduce(scores, axis=1, keepdims=True)
    posterior = np.exp(scores - normaliser)
    slope = kernels.weighed(layout, posterior[instance, label] - expit(margin))
    return GladStep(
        posterior,
        float(normaliser.sum() - kernels.weighed(layout, np.logaddexp(0.0, margin)).sum() - constant),
        np.bincount(annotator, slope * scale, minlength=len(ability)).astype(np.float64),  # integers if empty
        np.bincount(instance, slope * margin, minlength=n).astype(np.float64),
    )


def decoded(layout: Layout) -> tuple[Cells, Cells]:
    """Annotator and label of every cell, (E,) each."""
    annotator = layout.cells // layout.cells.dtype.type(layout.shape[1])  # in its own type numpy divides fast
    return annotator, layout.cells - annotator * layout.cells.dtype.type(layout.shape[1])


def vote_hits(layout: Layout, ratio: Floats) -> tuple[Floats, Floats]:
    """`kernels.vote_step` with uniform classes for S models at once: hits (R, C, S) and log-likelihoods (S,).

    ``ratio`` (R, C, S) is at least 1. The models advance side by side through one pass over the annotations, so that
    reading an annotation is paid for once; posteriors are not kept.
    """
    r, c, models = ratio.shape
    if not layout.compiled or layout.weight is not None:
        steps = [kernels.vote_step(layout, ratio[:, :, s], np.full(c, 1.0 / c)) for s in range(models)]
        return np.stack([step.counts for step in steps], axis=2), np.array([step.log_likelihood for step in steps])
    _, labels = decoded(layout)

    def run(some: Floats) -> tuple[Floats, Floats]:
        table = np.ascontiguousarray(some.reshape(r * c, -1))
        hits, log_likelihood = np.zeros_like(table), np.zeros(table.shape[1])
        _compiled("votes")(layout.cells, labels, layout.indptr, layout.gold, c, table, hits, log_likelihood)
        return hits.reshape(some.shape), log_likelihood

    parts = np.array_split(ratio, min(layout.threads, models), axis=2)
    if len(parts) == 1:
        return run(ratio)
    with ThreadPoolExecutor(len(parts)) as pool:
        hits, log_likelihoods = zip(*pool.map(run, parts), strict=True)
    return np.concatenate(hits, axis=2), np.concatenate(log_likelihoods)


@functools.cache
def _compiled(name: str) -> Any:
    return kernels.jit()({"glad": _glad, "votes": _votes, "rows": _rows}[name])


def _glad(  # type: ignore[no-untyped-def]
    annotator, label, indptr, start, stop, gold, ability, easiness, others, sigmoid, posterior, by_ability, by_easiness
):
    classes = posterior.shape[1]
    p = np.empty(classes)
    value = 0.0
    for i in range(start, stop):
        first, last = indptr[i], indptr[i + 1]
        known = gold[i] if gold.size else -1
        scale = np.exp(easiness[i])
        product = 1.0  # of 1 + odds: one logarithm for many
        for k in range(classes):
            p[k] = 1.0
        for e in range(first, last):
            odds = np.exp(min(ability[annotator[e]] * scale, 300.0))
            sigmoid[e] = odds / (1.0 + odds)
            product *= 1.0 + odds
            p[label[e]] *= odds * others
            if product > 1e150 or p[label[e]] > 1e100 or p[label[e]] < 1e-100:
                top = p.max()
                value += np.log(top / product)
                product = 1.0
                for k in range(classes):
                    p[k] = max(p[k] / top, 1e-290)
        total = 0.0
        for k in range(classes):
            if known >= 0 and k != known:
                p[k] = 0.0
            total += p[k]
        value += np.log(total / product)
        for k in range(classes):
            p[k] /= total
            posterior[i, k] = p[k]
        slope = 0.0
        for e in range(first, last):
            surprise = p[label[e]] - sigmoid[e]
            by_ability[annotator[e]] += surprise * scale
            slope += surprise * ability[annotator[e]]
        by_easiness[i] = slope * scale
    return value


def _votes(cells, labels, indptr, gold, classes, ratio, hits, log_likelihood):  # type: ignore[no-untyped-def]
    models = ratio.shape[1]
    p = np.empty((classes, models))
    total = np.empty(models)
    product = np.ones(models)  # of the totals of some instances: one logarithm for many
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        if first == last:
            continue
        p[:] = 1.0 / classes
        for e in range(first, last):
            label, cell = labels[e], cells[e]
            for s in range(models):
                p[label, s] *= ratio[cell, s]
            if (e - first) & 3 == 3:
                for s in range(models):
                    top = 0.0
                    for k in range(classes):
                        top = max(top, p[k, s])
                    if top > 1e100:
                        log_likelihood[s] += np.log(top)
                        for k in range(classes):
                            p[k, s] = max(p[k, s] / top, 1e-290)
        if gold.size and gold[i] >= 0:
            for k in range(classes):
                if k != gold[i]:
                    p[k] = 0.0
        total[:] = 0.0
        for k in range(classes):
            for s in range(models):
                total[s] += p[k, s]
        largest, smallest = 1.0, 1.0
        for s in range(models):
            product[s] *= total[s]
            largest, smallest = max(largest, product[s]), min(smallest, product[s])
            total[s] = 1.0 / total[s]
        if largest > 1e100 or smallest < 1e-100:
            for s in range(models):
                log_likelihood[s] += np.log(product[s])
                product[s] = 1.0
        for e in range(first, last):
            label, cell = labels[e], cells[e]
            for s in range(models):
                hits[cell, s] += p[label, s] * total[s]
    for s in range(models):
        log_likelihood[s] += np.log(product[s])


def _rows(counts, prior, states, log_total, group, lowest, expected):  # type: ignore[no-untyped-def]
    """psi(x) - log_total of x = counts + prior, at least ``lowest``, into ``expected``; returns the sum of ln Gamma(x).

    Both by Stirling's series at x + 8, with u = x (x + 7) and p = x (x + 1) ... (x + 7) = u (u + 6) (u + 10) (u + 12), to
    twelve digits; scipy's functions one after the other take three times as long.
    """
    value, product = 0.0, 1.0  # product: one logarithm for many
    for a in range(counts.shape[0]):
        totals = log_total[group[a]]
        for c in range(prior.shape[1]):
            believed = prior[a, c]
            for k in range(c * states, (c + 1) * states):
                x = counts[a, k] + believed
                u = x * (x + 7.0)
                first, second = u * (u + 6.0), (u + 10.0) * (u + 12.0)
                p, z = first * second, x + 8.0
                log_z, scale = np.log(z), 1.0 / (p * z)
                r = p * scale
                r2 = r * r
                slope = (2.0 * x + 7.0) * ((2.0 * u + 6.0) * second + first * (2.0 * u + 22.0)) * (z * scale)
                tail = r2 * (1 / 12 - r2 * (1 / 120 - r2 * (1 / 252 - r2 * (1 / 240 - r2 / 132))))
                expected[a, k] = max(log_z - 0.5 * r - tail - slope - totals[k], lowest)
                tail = r * (1 / 12 - r2 * (1 / 360 - r2 * (1 / 1260 - r2 * (1 / 1680 - r2 / 1188))))
                value += (z - 0.5) * log_z - z + 0.9189385332046727 + tail
                product *= p
                if product > 1e150 or product < 1e-150:
                    value -= np.log(product)
                    product = 1.0
    return value - np.log(product)
