"""Confidence that does not take annotators' errors for independent.

Models multiply what the labels of an instance say. Where instances differ in difficulty, or annotators err alike, the
product is far too sure: on nine real crowds hierarchical Dawid-Skene claims 97 % and has 87 %. Here the evidence of an
instance is read as v₁ votes for the most probable class and v₂ for the next one, in units of ``vote``, the log-odds that one
vote of this crowd says on average. Votes come from an urn that follows its own draws (Pólya): the tenth says less than the first.

    log-odds = h(v₁) - h(v₂),   h(v) = lnΓ(s a + v) - lnΓ(s b + v),   s = 1 / ρ - 1,   a = 1 - b = 1 / (1 + exp(-vote))

ρ is the correlation of the votes of an instance given its class, which the crowd shows in part (`correlation`): without it
(ρ = 0) the log-odds are vote · (v₁ - v₂), those of the model. Gold labels, where given, correct ρ. No posterior becomes more
certain by it, and no label changes.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logit

from crowdwise.aggregation.core import compiled, correlation, kernels, queries
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats, Layout
from crowdwise.errors import DataError

SPREAD = 0.8  # standard deviation of the log-odds of ρ among crowds that look alike
CORRELATIONS = 1.0 / (1.0 + np.exp(-np.linspace(-5.0, 3.0, 81)))
SMALLEST = 1e-13  # probabilities below are rounding
MOST, POINTS = 1e6, 8_192  # votes in the table of an urn, and its length
WEAKEST = 0.05  # least that a vote says, in nats
ALONE = 1.5  # most that a vote says where no other one is there to compare it with
TABLES = 4e8  # bytes of confusion matrices above which correlation is not measured
SHARPENING = 5  # rounds


class Tempering(NamedTuple):
    """How a posterior was tempered."""

    vote: float  # nats that one vote says
    correlation: float  # ρ of the votes of an instance
    n_gold: int = 0  # gold labels that corrected it


class Urn(NamedTuple):
    """h(v) of the votes of a crowd, tabulated over ln(v + s b), since it is nearly straight there."""

    table: Floats  # (POINTS,)
    wrong: float  # s b
    low: float  # where the table begins
    step: float

    @classmethod
    def of(cls, vote: float, correlation: float) -> Urn:
        """The urn of votes that say ``vote`` nats each, and are correlated."""
        size = 1.0 / correlation - 1.0
        right, wrong = size / (1.0 + np.exp(-vote)), size / (1.0 + np.exp(vote))
        places = np.linspace(np.log(wrong), np.log(wrong + MOST), POINTS)
        votes = np.exp(places) - wrong
        table = gammaln(right + votes) - gammaln(wrong + votes)
        return cls(table, float(wrong), float(places[0]), float(places[1] - places[0]))

    def log_odds(self, votes: Any) -> Any:
        """h(v): what v votes for a class say."""
        return np.interp((np.log(votes + self.wrong) - self.low) / self.step, np.arange(POINTS), self.table)


def first_two(posterior: Floats) -> tuple[Floats, Floats]:
    """The largest and the second largest probability of every row, (n,) each."""
    columns = list(posterior.T)
    top, second = columns[0].copy(), np.zeros(len(posterior))
    for column in columns[1:]:
        np.maximum(second, np.minimum(top, column), out=second)
        np.maximum(top, column, out=top)
    return top, second


def evidence(top: Floats, second: Floats) -> Floats:
    """Log-odds of the most probable class against the next one."""
    return np.asarray(np.log(np.maximum(top, SMALLEST) / np.maximum(second, SMALLEST)))


def vote_evidence(
    layout: Layout, posterior: Floats, weight: Floats | None = None, every: int = 1
) -> tuple[float, float]:
    """Sums of evidence times lead and of squared leads, in votes: their ratio is what one vote says.

    ``weight`` (R,): how many votes a label of each annotator is; of the instances, ``every`` second, third, ... is asked.
    """
    if every > 1:
        rows = np.arange(0, len(posterior), every)
        layout, posterior = queries.of_instances(layout, rows), posterior[rows]
    if posterior.shape[1] < 2:
        return 0.0, 0.0
    if layout.compiled and layout.weight is None:
        kernel, none = compiled.evidence_kernel(), np.empty(0)
        given = layout.cells, layout.indptr, np.ascontiguousarray(posterior), none if weight is None else weight
        along, squared = kernel(*given, layout.gold, queries.TIE_TOLERANCE, SMALLEST)
        return float(along), float(squared)
    most = queries.choose(posterior, "first", np.random.default_rng(0))
    votes, places = kernels.votes(layout, _by_cell(layout, weight)), np.arange(len(posterior))
    own = votes[places, most]
    votes[places, most] = 0.0
    lead = own - reduce(np.maximum, votes.T)
    if layout.gold.size:
        lead[layout.gold >= 0] = 0.0
    return float(lead @ evidence(*first_two(posterior))), float(lead @ lead)


def tempered(layout: Layout, posterior: Floats, vote: float, rho: float, weight: Floats | None = None) -> Floats:
    """A posterior (n, C) with honest odds; ``vote`` is what one vote says. A copy, gold instances stay certain."""
    urn = Urn.of(vote, rho)
    if layout.compiled and layout.weight is None:
        result = np.empty(posterior.shape)
        rows = layout.cells, layout.indptr, np.ascontiguousarray(posterior), np.empty(0) if weight is None else weight
        compiled.tempering_kernel()(*rows, vote, *urn, queries.TIE_TOLERANCE, SMALLEST, kernels.TINY, result)
        return queries.clamp(layout, result)
    top, second = first_two(posterior)
    number = label_numbers(layout)
    if weight is not None:
        number = kernels.votes(layout, _by_cell(layout, weight)).sum(axis=1)
    lead = evidence(top, second) / vote
    size = np.maximum(number, lead)
    against = np.exp(urn.log_odds((size - lead) / 2.0) - urn.log_odds((size + lead) / 2.0))
    top = np.maximum(top, SMALLEST)
    np.maximum(against, second / top, out=against)  # never surer than the model
    against += np.maximum(1.0 - top - second, 0.0) / top
    return _with_odds(layout, posterior, against, number > 0)


def halfway(layout: Layout, posterior: Floats, vote: float, rho: float, weight: Floats | None = None) -> Floats:
    """The mean of a posterior (n, C) and the tempered one."""
    return np.asarray((posterior + tempered(layout, posterior, vote, rho, weight)) / 2.0)


def tempered_shares(layout: Layout, posterior: Floats, vote: float, rho: float) -> Floats:
    """`tempered` for shares of votes (n, C)."""
    number, urn = label_numbers(layout), Urn.of(vote, rho)
    best = urn.log_odds(first_two(posterior)[0] * number)
    none = np.exp(urn.log_odds(0.0) - best)
    against = none * (1.0 - posterior.shape[1])  # classes without votes count once, together
    for column in posterior.T:
        against += np.exp(urn.log_odds(column * number) - best)
    return _with_odds(layout, posterior, against - 1.0 + none, number > 0)


def read_votes(
    crowd: Crowd, posterior: Floats, weight: Floats | None, groups: list[npt.NDArray[np.bool_]]
) -> tuple[float, float]:
    """What one vote says under a posterior (n, C), in nats, and how far the votes of an instance are correlated."""
    c = crowd.n_classes
    every = correlation.stride(crowd.n_annotations, crowd.n_instances, c)
    along, squared = crowd.total(vote_evidence, posterior, weight, every)
    vote = max(along / squared, WEAKEST) if squared > 0 else 1.0
    agreed, possible, pairs = 0.0, 0.0, 0.0
    if _fits(crowd):
        counts = crowd.counts(posterior)
        agreed, possible, pairs = crowd.total(correlation.excess_agreement, posterior, counts, weight, every)
        for group in groups:
            share = group * (1.0 if weight is None else weight)
            among, of, _ = crowd.total(correlation.excess_agreement, posterior, counts, share, every)
            agreed, possible = agreed - among, possible - of
    return vote, correlation.correlation(agreed, possible, pairs, crowd.patterns if weight is None else None)


def _fits(crowd: Crowd) -> bool:
    """Whether confusion matrices are small enough to be made for this alone."""
    try:
        crowd.check_table(crowd.n_classes)
    except DataError:
        return False
    return 8.0 * crowd.n_annotators * crowd.n_classes**2 <= TABLES


def sharpened(crowd: Crowd, posterior: Floats) -> Floats:
    """What Dawid-Skene makes of shares of votes (n, C) in a few rounds."""
    if not _fits(crowd):
        return posterior
    for _ in range(SHARPENING):
        counts = crowd.counts(posterior)
        counts += correlation.STRENGTH * correlation.crowd_matrix(counts)
        prior = crowd.mass(posterior) + 1.0
        posterior = crowd.em_step(counts / counts.sum(axis=1, keepdims=True), prior / prior.sum()).posterior
    return posterior


def label_numbers(layout: Layout) -> Floats:
    """Labels of every instance, (n,): annotations, or the sum of their weights."""
    if layout.weight is None:
        return np.diff(layout.indptr).astype(np.float64)
    return np.bincount(kernels.instances(layout), layout.weight, minlength=len(layout.indptr) - 1).astype(np.float64)


def _by_cell(layout: Layout, weight: Floats | None) -> Floats | None:
    return None if weight is None else np.repeat(weight, layout.shape[1])


def _with_odds(layout: Layout, posterior: Floats, against: Floats, labelled: npt.NDArray[np.bool_]) -> Floats:
    """The posterior with odds 1 : against (n,) of its most probable class; the others keep their proportions."""
    rows, most = np.arange(len(posterior)), queries.choose(posterior, "first", np.random.default_rng(0))
    result = posterior.copy()
    result[rows, most] = 0.0
    others = result @ np.ones(result.shape[1])
    bare = others < kernels.TINY  # what is left of them underflows, and nothing can be divided by it
    if np.any(bare):
        result[bare] = 1.0
        result[rows[bare], most[bare]] = 0.0
        others[bare] = result.shape[1] - 1.0
    right = 1.0 / (1.0 + against)
    result *= ((1.0 - right) / others)[:, None]
    result[rows, most] = right
    if not np.all(labelled):
        result[~labelled] = posterior[~labelled]
    return queries.clamp(layout, result)


def correlation_from_gold(
    layout: Layout,
    posterior: Floats,
    vote: float,
    usual: float,
    weight: Floats | None = None,
    *,
    shares: bool = False,
) -> float:
    """The ρ that foretells gold labels best; ``posterior`` (n, C) is what the labels say without them.

    Without gold labels it is the ``usual`` one, and a few hardly move it: its log-odds are believed to be normal around it.
    """
    if not layout.gold.size:
        return usual
    known = np.flatnonzero((layout.gold >= 0) & (np.diff(layout.indptr) > 0))
    bare = queries.of_instances(layout, known)._replace(gold=np.empty(0, np.int32))
    rows, truth = posterior[known], layout.gold[known]
    losses = []
    for rho in CORRELATIONS:
        q = tempered_shares(bare, rows, vote, rho) if shares else tempered(bare, rows, vote, rho, weight)
        logs = np.log(np.maximum(q[np.arange(len(q)), truth], 1e-6)).sum()
        losses.append(0.5 * ((logit(rho) - logit(usual)) / SPREAD) ** 2 - logs)
    return float(CORRELATIONS[int(np.argmin(losses))])
