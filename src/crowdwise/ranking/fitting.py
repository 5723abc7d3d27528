"""Fitting scores to votes: Newton's method in turns with two steps per annotator.

Votes that agree in annotator, contestants and outcome are one cell, so that a round costs as much as there are different votes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import linalg

from crowdwise.data.types import Floats, Ints
from crowdwise.ranking.davidson import NO_TIES, Curvature, curvature, log_likelihood
from crowdwise.ranking.votes import LEFT, RIGHT, TIE, Votes

SPREAD = np.array([0.5, 0.5, 1.0])
"""Prior standard deviations of an annotator's log-discrimination, order effect and tie rate."""
LARGEST_TIE = np.log(1e6)
LARGEST_TABLE = 50_000_000  # cells counted in one table; above, different votes are found by sorting
LARGEST_STEP = 1.0
PRECISE = 1e-10
ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Cells:
    """Votes counted by annotator and contestants: M cells of K contestants and R annotators."""

    left: Ints
    right: Ints
    annotator: Ints
    counts: Floats
    """(M, 3): sums of the weights of left, right and tie."""
    size: int
    """K."""
    n_annotators: int
    number: Ints
    """(E,): the cell of every vote."""

    @classmethod
    def of(cls, votes: Votes, *, own: bool, ties: str) -> Cells:
        """Count votes; without ``own``, all annotators are one. A tie can count as half a win for both."""
        size = votes.size
        own = own and votes.annotator is not None
        people = votes.annotators.size if own else 1
        key = votes.left.astype(np.int64) * size + votes.right
        if own and votes.annotator is not None:
            key += votes.annotator.astype(np.int64) * size * size
        if people * size * size <= LARGEST_TABLE:
            present = np.flatnonzero(np.bincount(key, minlength=people * size * size))
            place = np.empty(people * size * size, np.int64)
            place[present] = np.arange(len(present))
            number = place[key]
        else:
            present, number = np.unique(key, return_inverse=True)
        flat = np.bincount(number * 3 + votes.outcome, votes.weight, len(present) * 3)
        counts = flat.reshape(-1, 3).astype(np.float64)
        if ties != "model":
            shared = counts[:, TIE] / 2 if ties == "half" else np.zeros(len(counts))
            counts = np.column_stack([counts[:, LEFT] + shared, counts[:, RIGHT] + shared, np.zeros(len(counts))])
        person, pair = np.divmod(present, size * size)
        left, right = np.divmod(pair, size)
        return cls(left, right, person, counts, size, people, number)


@dataclass(frozen=True, eq=False)
class Parameters:
    """What a model of votes is made of."""

    score: Floats
    """(K,)"""
    order: float
    """Advantage of standing first; 0 without it."""
    tie: float
    """Tie parameter; `NO_TIES` without ties."""
    annotator: Floats
    """(R, 3): log-discrimination, order effect and tie rate of each annotator, apart from those of all."""

    @classmethod
    def start(cls, cells: Cells, *, ties: bool) -> Parameters:
        return cls(np.zeros(cells.size), 0.0, 0.0 if ties else NO_TIES, np.zeros((cells.n_annotators, 3)))


@dataclass(frozen=True)
class Model:
    """Which parameters are free, and the prior of the scores."""

    order: bool
    ties: bool
    ridge: float
    components: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(K,): number of the connected part of each contestant."""

    @property
    def free(self) -> int:
        """Parameters common to all votes, besides the scores."""
        return int(self.order) + int(self.ties)


def difference(cells: Cells, at: Parameters) -> tuple[Floats, Floats, Floats]:
    """u and t of every cell, (M,), and the discrimination of its annotator."""
    skill = np.exp(at.annotator[cells.annotator, 0])
    gap = at.score[cells.left] - at.score[cells.right]
    u = skill * gap + at.order + at.annotator[cells.annotator, 1]
    return u, at.tie + at.annotator[cells.annotator, 2], skill


def log_posterior(cells: Cells, at: Parameters, model: Model) -> float:
    """Log-likelihood and log-priors, up to a constant."""
    u, t, _ = difference(cells, at)
    priors = model.ridge / 2 * (at.score @ at.score) + ((at.annotator / SPREAD) ** 2).sum() / 2
    return log_likelihood(cells.counts, u, t) - float(priors)


def shared_design(cells: Cells, at: Curvature, skill: Floats, model: Model) -> tuple[Floats, Floats]:
    """Gradient (p,) and information (p, p) of the scores and the parameters common to all votes, without priors."""
    size, free = cells.size, model.free
    pairs = cells.left * size + cells.right

    def table(values: Floats) -> Floats:
        return np.asarray(np.bincount(pairs, values, size * size), np.float64).reshape(size, size)

    def edge(values: Floats) -> Floats:
        """(K,): what cells add to the contestant on the left, and take from the one on the right."""
        return np.asarray(np.bincount(cells.left, values, size) - np.bincount(cells.right, values, size))

    gradient = np.zeros(size + free)
    information = np.zeros((size + free, size + free))
    gradient[:size] = edge(skill * at.by_u)
    weight = table(skill**2 * at.uu)
    information[:size, :size] = np.diag(weight.sum(axis=1) + weight.sum(axis=0)) - weight - weight.T
    common = [(at.by_u, at.uu, at.ut)] if model.order else []
    if model.ties:
        common.append((at.by_t, at.ut, at.tt))
    for row, (first, with_u, with_t) in enumerate(common, size):
        gradient[row] = first.sum()
        information[row, :size] = edge(skill * with_u)
        information[:size, row] = information[row, :size]
        information[row, row] = (with_t if model.ties and row == size + free - 1 else with_u).sum()
    if model.order and model.ties:
        information[size, size + 1] = at.ut.sum()
        information[size + 1, size] = information[size, size + 1]
    return gradient, information


def with_priors(information: Floats, model: Model, size: int) -> Floats:
    """The information with the prior of the scores; without one, every connected part gets a fixed mean."""
    scores = np.arange(size)
    information = information.copy()
    information[scores, scores] += model.ridge
    if model.ridge == 0:
        same = model.components[:, None] == model.components
        information[:size, :size] += same / same.sum(axis=1)
    return information


def newton(cells: Cells, at: Parameters, model: Model, rounds: int = ROUNDS) -> tuple[Parameters, int]:
    """Scores, order effect and tie rate that maximise the posterior, given the annotators; and the rounds it took."""
    size = cells.size
    value = log_posterior(cells, at, model)
    done = 0
    while done < rounds:
        done += 1
        u, t, skill = difference(cells, at)
        gradient, information = shared_design(cells, curvature(cells.counts, u, t), skill, model)
        gradient[:size] -= model.ridge * at.score
        step = linalg.solve(with_priors(information, model, size), gradient, assume_a="sym")
        factor = 1.0
        while True:
            trial = _moved(at, factor * step, model)
            found = log_posterior(cells, trial, model)
            if found >= value - 1e-12 * abs(value) or factor < 1e-6:
                break
            factor /= 2
        at, value = trial, found
        if np.abs(factor * step).max() < PRECISE:
            break
    return at, done


def _moved(at: Parameters, step: Floats, model: Model) -> Parameters:
    size = len(at.score)
    order = at.order + float(step[size]) if model.order else at.order
    tie = min(at.tie + float(step[-1]), LARGEST_TIE) if model.ties else at.tie
    return replace(at, score=at.score + step[:size], order=order, tie=tie)


def annotator_design(cells: Cells, at: Parameters, model: Model) -> tuple[Floats, Floats]:
    """Gradient (R, 3) and information (R, 3, 3) of the annotators' parameters, with their priors."""
    u, t, skill = difference(cells, at)
    found = curvature(cells.counts, u, t)
    slope = skill * (at.score[cells.left] - at.score[cells.right])  # du / dc
    entries = {
        (0, 0): found.uu * slope**2,
        (0, 1): found.uu * slope,
        (0, 2): found.ut * slope,
        (1, 1): found.uu,
        (1, 2): found.ut,
        (2, 2): found.tt,
    }
    people = cells.n_annotators
    information = np.zeros((people, 3, 3))
    for (row, column), values in entries.items():
        total = np.bincount(cells.annotator, values, people)
        information[:, row, column] = total
        information[:, column, row] = total
    firsts = (found.by_u * slope, found.by_u, found.by_t)
    gradient = np.stack([np.bincount(cells.annotator, values, people) for values in firsts], axis=1)
    held = [1] * (not model.order) + [2] * (not model.ties)  # what the model leaves out stays 0
    information[:, held, :] = 0.0
    information[:, :, held] = 0.0
    gradient[:, held] = 0.0
    information[:, range(3), range(3)] += 1 / SPREAD**2
    return gradient - at.annotator / SPREAD**2, information


def annotator_steps(cells: Cells, at: Parameters, model: Model, steps: int = 2) -> Parameters:
    """A few Newton steps on every annotator's parameters, given the scores; steps that overshoot are halved."""
    value = log_posterior(cells, at, model)
    for _ in range(steps):
        gradient, information = annotator_design(cells, at, model)
        step = np.linalg.solve(information, gradient[:, :, None])[:, :, 0]
        step = np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        for factor in (1.0, 0.5, 0.25, 0.125):
            trial = replace(at, annotator=at.annotator + factor * step)
            found = log_posterior(cells, trial, model)
            if found >= value:
                at, value = trial, found
                break
    return at


def recentred(at: Parameters, model: Model) -> Parameters:
    """The same likelihood with smaller priors: means move from annotators to what is common, and scale to the scores."""
    mean = at.annotator.mean(axis=0)
    order = at.order + mean[1] if model.order else at.order
    tie = min(at.tie + mean[2], LARGEST_TIE) if model.ties else at.tie
    annotator = at.annotator - np.array([0.0, mean[1] * model.order, mean[2] * model.ties])
    total, people = float(at.score @ at.score), len(annotator)
    shift = 0.0
    for _ in range(20):  # Newton on the two penalties that the scale moves
        first = model.ridge * np.exp(2 * shift) * total - (annotator[:, 0] - shift).sum() / SPREAD[0] ** 2
        second = 2 * model.ridge * np.exp(2 * shift) * total + people / SPREAD[0] ** 2
        shift -= first / second
    annotator[:, 0] -= shift
    return Parameters(at.score * np.exp(shift), float(order), float(tie), annotator)


def fit_own(cells: Cells, at: Parameters, model: Model, rounds: int = 200) -> tuple[Parameters, int]:
    """Scores and annotators' parameters together, in turns, until the posterior stands still twice."""
    value = -np.inf
    still = 0
    done = 0
    while done < rounds and still < 2:
        done += 1
        at, _ = newton(cells, at, model, rounds=3)
        at = recentred(annotator_steps(cells, at, model), model)
        found = log_posterior(cells, at, model)
        still = still + 1 if found - value < 1e-9 * abs(found) else 0
        value = found
    at, _ = newton(cells, at, model, rounds=5)
    return at, done
