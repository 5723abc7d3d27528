"""Hierarchical Dawid-Skene: confusion matrices that borrow strength from the annotator's skill and from the crowd."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from crowdwise.aggregation.core import correlation
from crowdwise.aggregation.core.base import IterativeAggregator, State
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import FLOOR, Floats
from crowdwise.aggregation.dawid_skene import normalised
from crowdwise.aggregation.wawa import agreement
from crowdwise.constraints import PositiveFloat
from crowdwise.registry import AGGREGATORS

_STRENGTHS = 0.01, 1e4  # smallest and largest strength of a prior, in labels
_ENOUGH = 20_000  # annotators from whom the strengths are learnt; more would tell the same


class RowEvidence(NamedTuple):
    """How far a crowd's labels can be trusted to tell about annotators; it depends on agreement, not on the model."""

    trust: float  # share of a label that counts towards its annotator's matrix
    shape: float  # share of a label that counts towards the crowd's mean matrix
    votes: Floats  # (C,) what the class prior is drawn to, in instances


@dataclass
class Hierarchy(State):
    """Posterior, log-likelihood, and what the next round starts from."""

    counts: Floats  # (R, C, C) [annotator, label, class]
    mass: Floats  # (C,)
    trust: float  # these three as in `RowEvidence`
    shape: float
    votes: Floats
    skill_strength: float  # τ
    row_strength: float  # κ
    emission: Floats  # (R, C, C) of the last round
    class_prior: Floats  # (C,)


@AGGREGATORS.register("hierarchical-dawid-skene")
@dataclass(kw_only=True, eq=False, repr=False)
class HierarchicalDawidSkene(IterativeAggregator[Hierarchy]):
    """Dawid-Skene that is safe with one label per annotator and sharp with hundreds.

    Rows of confusion matrices have a Dirichlet prior, T_j[p] ~ Dir(κ m_j[p]). Its mean is the crowd's own confusion
    matrix with the odds of the diagonal scaled by the annotator's skill in the other rows, and skills have a prior
    s_j ~ Beta(τ a, τ (1 - a)). The crowd's matrix, its accuracy a, and the strengths κ and τ are learnt from the labels
    (empirical Bayes; Minka's fixed point for the strengths). EM starts at WAWA.

    Three things keep crowds that tell little from being over-read. The crowd's matrix is drawn to even errors by
    ``shrinkage`` labels a class, and only labels beyond two per instance speak against that, since two cannot identify
    it. The class prior is drawn to the shares of votes, the more the fewer labels an instance has. And where the
    consensus of the others on an instance is unreliable (Spearman-Brown, from the agreement of pairs), a label counts
    for less than one. Also fitted: ``skill_strength_``, ``row_strength_`` (τ and κ, in labels).

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> HierarchicalDawidSkene().fit_predict(answers)
    array([0, 1, 0, 1, 0])
    """

    max_iter: int = 60
    tol: float = 1e-5
    """Stop when no posterior changes by more; 0: exactly ``max_iter`` rounds."""
    strength: PositiveFloat = 5.0
    """Labels that the priors of skills and rows weigh before the crowd says how much (mode of a Gamma hyper-prior)."""
    shrinkage: PositiveFloat = 300.0
    """Labels per class that speak for even errors in the crowd's mean matrix."""
    warm_start: bool = False
    """Start `partial_fit` at the posterior of the last fit; see `DawidSkene`."""

    uses_history = True
    streams = True
    settles = False
    state = Hierarchy

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Hierarchy:
        if crowd.earlier is None:
            posterior = crowd.weighted_majority(agreement(crowd, crowd.majority()))
        else:
            posterior = crowd.initial()
        counts, mass = crowd.counts(posterior), crowd.mass(posterior)
        trust, shape, votes = evidence(crowd)
        start = self.strength, self.strength, counts, mass
        return Hierarchy(posterior, -np.inf, counts, mass, trust, shape, votes, *start)

    def _round(self, crowd: Crowd, state: Hierarchy, rng: np.random.Generator) -> Hierarchy:
        after = self._maximise(crowd, state)
        step = crowd.em_step(after.emission, after.class_prior)
        return replace(
            after, posterior=step.posterior, objective=step.log_likelihood, counts=step.counts, mass=step.mass
        )

    def _maximise(self, crowd: Crowd, state: Hierarchy, whole: bool = False) -> Hierarchy:
        """Parameters from expected counts; arrays are [annotator, label, class].

        Only labels that an annotator gave have entries in the emission, unless the ``whole`` of it is asked for: with many
        classes they are a small part of the table, and the E step reads no others.
        """
        annotator, label = np.nonzero(np.ones(state.counts.shape[:2], bool) if whole else _told(crowd))  # (A,) each
        counts = state.counts[annotator, label]  # (A, C), zero elsewhere
        accuracy, mean = self._crowd_matrix(_summed(counts, label, crowd.n_classes), state.shape)
        counts *= state.trust
        if crowd.history is not None:
            counts += crowd.history[annotator, label]
        given = _summed(counts, annotator, crowd.n_annotators)  # (R, C)
        right = np.zeros(given.shape)
        right[annotator, label] = counts[np.arange(len(label)), label]

        step, all_right, all_given = len(given) // _ENOUGH + 1, right.sum(axis=1), given.sum(axis=1)
        outcomes = np.stack([all_right, all_given - all_right], axis=1)
        chances = np.array([accuracy, 1.0 - accuracy])
        tau = self._strength(state.skill_strength, outcomes[::step], chances, all_given[::step])
        elsewhere = (all_right[:, None] - right + tau * accuracy) / (all_given[:, None] - given + tau)  # other rows

        means = scaled_diagonal(mean, _odds(elsewhere) / _odds(accuracy), annotator, label)
        some = slice(None) if step == 1 else annotator % step == 0
        kappa = self._strength(state.row_strength, counts[some], means[some], given[::step])
        means *= kappa
        means += counts
        np.maximum(means, FLOOR, out=means)
        means /= (kappa + given)[annotator]  # means of all labels sum to one
        emission = means.reshape(state.counts.shape) if whole else np.zeros(state.counts.shape)
        if not whole:
            emission[annotator, label] = means
        prior = normalised(state.mass + 1.0 + state.votes)
        return replace(state, skill_strength=tau, row_strength=kappa, emission=emission, class_prior=prior)

    def _crowd_matrix(self, pooled: Floats, shape: float) -> tuple[float, Floats]:
        """The crowd's accuracy, and its mean matrix (C, C) as [label, class], from counts of all annotators together."""
        c = len(pooled)
        accuracy = float(np.clip((np.trace(pooled) + 1.0) / (pooled.sum() + 2.0), 1.0 / c + 0.01, 0.99))
        even = np.full((c, c), (1.0 - accuracy) / (c - 1))
        np.fill_diagonal(even, accuracy)
        mean = shape * pooled + self.shrinkage * even
        return accuracy, mean / mean.sum(axis=0)

    def _strength(self, now: float, counts: Floats, mean: Floats, total: Floats) -> float:
        """One step of Minka's fixed point for the strength of Dirichlet priors with given means."""
        weights = np.maximum(now * mean, FLOOR)
        up = now * float(np.sum(mean * (digamma(counts + weights) - digamma(weights)))) + self.strength
        return float(np.clip(up / (float(np.sum(digamma(total + now) - digamma(now))) + 1.0), *_STRENGTHS))

    def _converged(self, crowd: Crowd, before: Hierarchy, after: Hierarchy) -> bool:
        return crowd.distance(after.posterior, before.posterior) < self.tol

    def _finish(self, crowd: Crowd, state: Hierarchy) -> None:
        last = self._maximise(crowd, state, whole=True)
        self.confusion_ = np.ascontiguousarray(last.emission.transpose(0, 2, 1))
        self.class_prior_ = normalised(state.mass)
        self.skill_ = np.einsum("jcc,c->j", last.emission, self.class_prior_)
        self.skill_strength_, self.row_strength_ = last.skill_strength, last.row_strength
        _, self._mean = self._crowd_matrix(state.counts.sum(axis=0), state.shape)

    def _believed(self, crowd: Crowd) -> Floats:
        return self.row_strength_ * self._mean if hasattr(self, "row_strength_") else super()._believed(crowd)

    def _believed_skill(self, crowd: Crowd) -> tuple[float, float]:
        if not hasattr(self, "row_strength_"):
            return super()._believed_skill(crowd)
        right = float(np.trace(self._mean)) / crowd.n_classes
        return self.skill_strength_ * right, self.skill_strength_ * (1.0 - right)


def evidence(crowd: Crowd) -> RowEvidence:
    """What agreement and numbers of labels say about a crowd before any model."""
    number = crowd.labels_per_instance.astype(np.float64)
    same = float(np.clip(crowd.agreement_beyond_chance(), 0.01, 0.99))  # squared correlation of a label with the truth
    others = float(number @ number) / float(number.sum()) - 1.0  # labels beside one's own, as seen by a label
    reliability = others * same / (1.0 + max(others - 1.0, 0.0) * same)  # of the others' consensus, Spearman-Brown
    shape = float(np.maximum(number - 2.0, 0.0).sum() / number.sum())
    usual = correlation.typical()
    likely = crowd.patterns.prior[crowd.patterns.place(usual)]
    even = max(1.0 - crowd.patterns.correlation(usual) / usual, 0.0)
    return RowEvidence(
        trust=float(np.clip(reliability / 0.5, 0.04, 1.0)),
        shape=shape,
        votes=(1.0 - shape) * ((1.0 - even) * crowd.mass(crowd.majority()) + even * crowd.n_labelled * likely),
    )


def scaled_diagonal(
    mean: Floats, ratio: Floats, annotator: npt.NDArray[np.int64], label: npt.NDArray[np.int64]
) -> Floats:
    """Rows (A, C) of matrices like ``mean`` (C, C), with the odds of being right times ``ratio`` (R, C); [label, class]."""
    diagonal = np.diag(mean)
    odds = ratio * _odds(diagonal)
    right = odds / (1.0 + odds)
    rows = mean[label]
    rows *= ((1.0 - right) / (1.0 - diagonal))[annotator]
    rows[np.arange(len(label)), label] = right[annotator, label]
    return np.asarray(rows)


def _told(crowd: Crowd) -> npt.NDArray[np.bool_]:
    """Which labels each annotator gave, now or in its history, (R, C)."""
    told = crowd.label_counts > 0
    return told if crowd.history is None else told | crowd.history.any(axis=2)


def _summed(rows: Floats, group: npt.NDArray[np.int64], number: int) -> Floats:
    """Rows (A, C) added up by group (A,) of each: (number, C)."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    total = np.zeros((number, rows.shape[1]))
    total[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return total


def _odds(probability: Any) -> Floats:
    return np.asarray(probability / (1.0 - probability))
