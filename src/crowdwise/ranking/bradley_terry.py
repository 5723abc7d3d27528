"""Bradley-Terry: a score for each contestant from votes on pairs, with ties, order effects and annotators of their own.

R. A. Bradley, M. E. Terry, "Rank analysis of incomplete block designs", Biometrika 1952; ties as in R. R. Davidson (JASA 1970),
order effects as in Davidson & R. J. Beaver (Biometrics 1977). u is exp(c_j) (s_left - s_right) plus the order effect of annotator
j, and P(left, right, tie) is proportional to (exp(u / 2), exp(-u / 2), exp(t_j)).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse, special
from scipy.sparse import csgraph

from crowdwise.constraints import NonNegativeFloat, NonNegativeInt, OpenProbability, check_parameters
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, suggest
from crowdwise.ranking import fitting, uncertainty
from crowdwise.ranking.davidson import NO_TIES, probabilities
from crowdwise.ranking.fitting import Cells, Model, Parameters
from crowdwise.ranking.votes import TIE, Votes
from crowdwise.ranking.win_rate import pooled_rate, tally, win_rate

MOST_CONTESTANTS = 4_000
OWN_VOTES = 1_000  # from which on annotators get parameters of their own
OWN_EACH = 5  # votes per annotator, likewise
FEW_VOTES = 10
ELO = 400 / np.log(10)
BASE = 1000.0

Annotators = Literal["auto", "own", "pooled", "equal"]
Ties = Literal["model", "half", "drop"]
Scale = Literal["elo", "log", "probability"]


class WinProbability(NamedTuple):
    """Probability that the first of two contestants is preferred, if there is no tie, with its interval."""

    probability: float
    low: float
    high: float


@dataclass(kw_only=True, eq=False)
class BradleyTerry:
    """A leaderboard from votes on pairs.

    Fitted: ``scores_`` (K,), mean 0 in each connected part; ``covariance_`` (K, K) of them; ``interval_`` (K, 2);
    ``rank_interval_`` (K, 2), by differences that are significant after Holm's correction; ``groups_`` (K,), the connected
    part of each contestant; ``apart_`` (K, K), adjusted p-values; ``order_effect_`` and ``tie_rate_`` of an average annotator;
    ``skill_``, ``annotator_order_effect_`` and ``annotator_tie_rate_`` (R,); ``win_rate_`` (K,), the plain estimate;
    ``draws_`` (B, K) with ``n_bootstrap``.

    >>> votes = Votes.of(["cat", "dog", "eel", "dog"], ["dog", "cat", "cat", "eel"], ["cat", "cat", "tie", "dog"])
    >>> board = BradleyTerry().fit(votes)
    >>> board.table["name"].to_pylist()
    ['cat', 'eel', 'dog']
    """

    annotators: Annotators = "auto"
    """``"own"``: discrimination, order effect and tie rate for each; ``"pooled"``: the same, fitted after the scores;
    ``"equal"``: none; ``"auto"``: own with 1,000 votes and five per annotator, else equal."""
    ties: Ties = "model"
    """``"model"``: ties have a probability; ``"half"``: half a win for both; ``"drop"``: left out."""
    order: bool = True
    """Whether standing first may be an advantage."""
    ridge: NonNegativeFloat = 0.01
    """Precision of the prior of scores; it keeps those of contestants finite that always win."""
    scale: Scale = "elo"
    """Of the scores in ``table``: Elo points around 1000, natural logarithms, or the mean probability to win."""
    confidence: OpenProbability = 0.95
    """Of intervals and of ranks."""
    n_bootstrap: NonNegativeInt = 0
    """Draws of the bootstrap over annotators (else instances, else votes); 0: intervals by the covariance."""
    random_state: NonNegativeInt = 0

    def fit(self, votes: Votes) -> BradleyTerry:
        """Fit scores to votes; returns self."""
        check_parameters(self)
        if votes.size > MOST_CONTESTANTS:
            raise DataError(f"there are {votes.size:,} contestants; at most {MOST_CONTESTANTS:,} can be ranked")
        votes = self._kept(votes)
        self.votes_ = votes
        self.counts_ = tally(votes)
        self.groups_ = _groups(self.counts_)
        has_ties = self.ties == "model" and bool(np.any(votes.outcome == TIE))
        self._model = Model(self.order, has_ties, self.ridge, self.groups_)
        if not self.ridge:
            self._check_finite()
        own = self._has_own(votes)
        self._cells = Cells.of(votes, own=own, ties=self.ties)
        self._at, self.n_iter_ = self._fitted(votes, own)
        self._own_parameters = own
        self._summarise(votes, own)
        self._warn(votes)
        return self

    # fitting

    def _kept(self, votes: Votes) -> Votes:
        if self.ties != "drop":
            return votes
        decided = np.flatnonzero(votes.outcome != TIE)
        if not decided.size:
            raise DataError("all votes are ties, and ties='drop' leaves none")
        return votes.take(decided)

    def _has_own(self, votes: Votes) -> bool:
        named = votes.annotator is not None and votes.annotators.size > 1
        if self.annotators == "auto":
            return named and len(votes) >= max(OWN_VOTES, OWN_EACH * votes.annotators.size)
        if self.annotators in ("own", "pooled") and votes.annotator is None:
            raise ConfigError(f"annotators={self.annotators!r} needs votes with annotators", parameter="annotators")
        return self.annotators == "own"

    def _fitted(self, votes: Votes, own: bool) -> tuple[Parameters, int]:
        start = Parameters.start(self._cells, ties=self._model.ties)
        if own:
            plain = Cells.of(votes, own=False, ties=self.ties)
            first, _ = fitting.newton(plain, Parameters.start(plain, ties=self._model.ties), self._model)
            start = Parameters(first.score, first.order, first.tie, start.annotator)
            found, rounds = fitting.fit_own(self._cells, start, self._model)
        else:
            found, rounds = fitting.newton(self._cells, start, self._model)
        return _typical(found, self._cells), rounds

    def _check_finite(self) -> None:
        """Without a prior, scores are finite only if wins lead from everybody to everybody."""
        wins = self.counts_[0] + self.counts_[2]
        number, strong = csgraph.connected_components(sparse.csr_array(wins > 0), connection="strong")
        for part in np.unique(self.groups_):
            parts = np.unique(strong[self.groups_ == part])
            if number > 1 and len(parts) > 1:
                loser = np.flatnonzero((strong == parts[0]) & (self.groups_ == part))[0]
                name = self._name(int(loser))
                raise ConfigError(
                    f"scores are not finite: {name!r} and those like it always win or always lose against the others; use "
                    "ridge=0.01",
                    parameter="ridge",
                )

    def _summarise(self, votes: Votes, own: bool) -> None:
        at, model = self._at, self._model
        self.scores_ = _centred(at.score, self.groups_)
        self.objective_ = fitting.log_posterior(self._cells, at, model)
        self.order_effect_ = at.order
        self.tie_rate_ = _tie_rate(at.tie)
        self._annotator_parameters(votes, own)
        found = uncertainty.spread(self._cells, votes, at, model, own=own)
        self.covariance_, self.clusters_, self._freedom = found.covariance, found.clusters, found.freedom
        self.apart_ = uncertainty.told_apart(self.scores_, found, self.groups_, self.confidence)
        self.rank_interval_ = _rank_intervals(self.scores_, self.apart_, self.groups_, 1 - self.confidence)
        error = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        half = self._quantile() * error
        self.interval_ = np.column_stack([self.scores_ - half, self.scores_ + half])
        self.win_rate_ = win_rate(self.counts_)
        self.draws_ = self._bootstrap(votes, own) if self.n_bootstrap else np.empty((0, votes.size))
        if self.n_bootstrap:
            tail = (1 - self.confidence) / 2
            self.interval_ = np.quantile(self.draws_, [tail, 1 - tail], axis=0).T

    def _annotator_parameters(self, votes: Votes, own: bool) -> None:
        """Set what is known of each annotator."""
        people = votes.annotators.size
        own_values = np.zeros((people, 3))
        if own:
            own_values = self._at.annotator
        elif self.annotators == "pooled":
            cells = Cells.of(votes, own=True, ties=self.ties)
            start = Parameters(self._at.score, self._at.order, self._at.tie, own_values)
            own_values = fitting.annotator_steps(cells, start, self._model, steps=25).annotator
        self.skill_ = np.exp(own_values[:, 0])
        self.annotator_order_effect_ = self._at.order + own_values[:, 1]
        self.annotator_tie_rate_ = _tie_rate(self._at.tie + own_values[:, 2])

    def _quantile(self) -> float:
        tail = (1 + self.confidence) / 2
        if np.isinf(self._freedom):
            return float(special.ndtri(tail))
        return float(special.stdtrit(self._freedom, tail))

    def _bootstrap(self, votes: Votes, own: bool) -> Floats:
        """Scores (B, K) of votes whose clusters were drawn again: each counts a Poisson number of times."""
        clusters = votes.annotator if votes.annotator is not None else votes.instance
        draws = np.empty((self.n_bootstrap, votes.size))
        for number in range(self.n_bootstrap):
            rng = np.random.Generator(np.random.Philox(key=[self.random_state, number]))
            if clusters is None:
                times = rng.poisson(1.0, len(votes))
            else:
                times = rng.poisson(1.0, int(clusters.max()) + 1)[clusters]
            cell = self._cells.number * 3 + votes.outcome
            counts = np.bincount(cell, votes.weights * times, len(self._cells.left) * 3).reshape(-1, 3)
            drawn = self._recounted(np.asarray(counts, np.float64))
            found, _ = fitting.newton(drawn, self._at, self._model, rounds=5)
            draws[number] = _centred(found.score, self.groups_)
        return draws

    def _recounted(self, counts: Floats) -> Cells:
        cells = self._cells
        if self.ties == "half":
            shared = counts[:, TIE] / 2
            counts = np.column_stack([counts[:, 0] + shared, counts[:, 1] + shared, np.zeros(len(counts))])
        return Cells(cells.left, cells.right, cells.annotator, counts, cells.size, cells.n_annotators, cells.number)

    def _warn(self, votes: Votes) -> None:
        names = [self._name(code) for code in range(votes.size)]
        parts, sizes = np.unique(self.groups_, return_counts=True)
        if len(parts) > 1:
            examples = [names[int(np.flatnonzero(self.groups_ == part)[0])] for part in parts[:2]]
            _say(
                f"the contestants fall into {len(parts)} groups that never met (of {', '.join(map(str, sizes[:5]))}): each is "
                f"ranked by itself; votes on {examples[0]!r} against {examples[1]!r}, for example, would join them"
            )
        unbeaten = self._one_sided()
        if unbeaten.any():
            listed = ", ".join(repr(names[code]) for code in np.flatnonzero(unbeaten)[:3])
            _say(f"{listed} always won or always lost: the scores of such contestants rest on the prior")
        pairs = np.unique(votes.left.astype(np.int64) * votes.size + votes.right)
        reverse = np.isin((pairs % votes.size) * votes.size + pairs // votes.size, pairs)
        if self.order and not reverse.any() and len(pairs) > 1:
            _say(
                "every pair was shown in one order only, so that the order effect and the scores are hard to separate: ask "
                "for some pairs in both orders, or use order=False"
            )

    def _one_sided(self) -> Any:
        """(K,): contestants who never lost and never tied, or never won and never tied."""
        wins, losses, ties = self.counts_.sum(axis=2)
        return (ties == 0) & ((wins == 0) | (losses == 0)) & (wins + losses > 0)

    # results

    @property
    def table(self) -> pa.Table:
        """The leaderboard: a row for each contestant, groups and then scores descending."""
        self._check_fitted()
        order = np.lexsort((-self.scores_, self.groups_))
        wins, losses, ties = self.counts_.sum(axis=2)
        number = wins + losses + ties
        shown = [self._displayed(values) for values in (self.scores_, self.interval_[:, 0], self.interval_[:, 1])]
        rank = _ranks(self.scores_, self.groups_)
        one_sided = self._one_sided()
        notes = np.where(one_sided, "always won or lost", np.where(number < FEW_VOTES, "few votes", ""))
        columns = {
            "rank": rank,
            "low_rank": self.rank_interval_[:, 0],
            "high_rank": self.rank_interval_[:, 1],
            "name": np.array([self._name(code) for code in range(len(rank))], object),
            "score": shown[0],
            "low": shown[1],
            "high": shown[2],
            "win_rate": self.win_rate_,
            "pooled_rate": pooled_rate(self.counts_),
            "wins": wins,
            "losses": losses,
            "ties": ties,
            "votes": number,
            "group": self.groups_ + 1,
            "note": notes.astype(object),
        }
        return pa.table({name: pa.array(values[order]) for name, values in columns.items()})

    def annotator_table(self) -> pa.Table:
        """A row for each annotator: votes, skill (discrimination, 1 is average), order effect and tie rate."""
        self._check_fitted()
        votes = self.votes_
        if votes.annotator is None:
            raise DataError("the votes name no annotators")
        number = np.bincount(votes.annotator, minlength=votes.annotators.size)
        first = special.expit(self.annotator_order_effect_)
        return pa.table(
            {
                "annotator": votes.annotators.arrow,
                "votes": number,
                "skill": self.skill_,
                "first_if_equal": first,
                "tie_rate": self.annotator_tie_rate_,
            }
        ).sort_by([("skill", "descending"), ("votes", "descending")])

    def win_probability(self, first: Any, second: Any) -> WinProbability:
        """P(first preferred | no tie) for an average annotator and no order effect, with its interval."""
        self._check_fitted()
        a, b = self._code(first), self._code(second)
        if self.groups_[a] != self.groups_[b]:
            raise DataError(
                f"{first!r} and {second!r} are in groups {self.groups_[a] + 1} and {self.groups_[b] + 1}, which never met"
            )
        gap = self.scores_[a] - self.scores_[b]
        covariance = self.covariance_
        variance = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
        half = self._quantile() * np.sqrt(max(variance, 0.0))
        low, middle, high = special.expit([gap - half, gap, gap + half])
        return WinProbability(float(middle), float(low), float(high))

    def log_loss(self, votes: Votes) -> float:
        """Mean of -ln P(outcome) over other votes, in nats; annotators who are new count as average ones.

        Votes on contestants who were not there are refused.
        """
        self._check_fitted()
        names = votes.contestants.arrow.to_pylist()
        code = np.array([self._code(name) for name in names])
        own = self._at.annotator if self._own_parameters else np.zeros((0, 3))
        known = {str(name): place for place, name in enumerate(self.votes_.annotators.arrow.to_pylist())}
        person = np.zeros((len(votes), 3))
        if votes.annotator is not None and len(own):
            place = np.array([known.get(str(name), -1) for name in votes.annotators.arrow.to_pylist()])[votes.annotator]
            person = np.where(place[:, None] >= 0, own[place], 0.0)
        gap = self._at.score[code[votes.left]] - self._at.score[code[votes.right]]
        u = np.exp(person[:, 0]) * gap + self._at.order + person[:, 1]
        chance = probabilities(u, self._at.tie + person[:, 2])[np.arange(len(votes)), votes.outcome]
        with np.errstate(divide="ignore"):
            return float(-(votes.weights * np.log(chance)).sum() / votes.weights.sum())

    def best(self) -> Floats:
        """(K,): share of the bootstrap's draws in which each contestant is first; needs ``n_bootstrap``."""
        if not len(self.draws_):
            raise ConfigError("best() needs n_bootstrap draws", parameter="n_bootstrap")
        firsts = np.bincount(self.draws_.argmax(axis=1), minlength=self.draws_.shape[1])
        return np.asarray(firsts / len(self.draws_))

    def _displayed(self, score: Floats) -> Floats:
        if self.scale == "log":
            return score
        if self.scale == "elo":
            return np.asarray(BASE + ELO * score)
        others = (self.groups_[:, None] == self.groups_) & ~np.eye(len(score), dtype=bool)
        chance = special.expit(score[:, None] - self.scores_)
        number = others.sum(axis=1)
        total = (chance * others).sum(axis=1)
        return np.asarray(np.divide(total, number, out=np.full(len(score), np.nan), where=number > 0))

    def _name(self, code: int) -> str:
        return str(self.votes_.contestants.take(np.array([code]))[0].as_py())

    def _code(self, name: Any) -> int:
        names = [str(each) for each in self.votes_.contestants.arrow.to_pylist()]
        if str(name) not in names:
            raise DataError(f"{name!r} is not a contestant{suggest(str(name), names)}")
        return names.index(str(name))

    def _check_fitted(self) -> None:
        if not hasattr(self, "scores_"):
            raise ConfigError(f"this {type(self).__name__} is not fitted yet; call fit with votes first")


def _typical(at: Parameters, cells: Cells) -> Parameters:
    """The same model with annotators whose mean log-discrimination, weighted by votes, is 0."""
    number = np.bincount(cells.annotator, cells.counts.sum(axis=1), cells.n_annotators)
    mean = float(number @ at.annotator[:, 0] / number.sum())
    return Parameters(at.score * np.exp(mean), at.order, at.tie, at.annotator - np.array([mean, 0.0, 0.0]))


def _groups(counts: Floats) -> Ints:
    """(K,): number of the connected part of each contestant, the largest part first."""
    met = counts.sum(axis=0) > 0
    _, part = csgraph.connected_components(sparse.csr_array(met), directed=False)
    order = np.argsort(-np.bincount(part), kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[part]


def _centred(score: Floats, groups: Ints) -> Floats:
    mean = np.bincount(groups, score) / np.bincount(groups)
    return np.asarray(score - mean[groups])


def _tie_rate(tie: Any) -> Any:
    """P(tie) of two equals."""
    with np.errstate(over="ignore"):
        odds = np.exp(np.minimum(tie, fitting.LARGEST_TIE)) if np.any(np.asarray(tie) > NO_TIES) else np.zeros_like(tie)
    return odds / (2 + odds)


def _ranks(score: Floats, groups: Ints) -> Ints:
    """Rank (K,) within the group: 1 and the number of better scores."""
    better = (score[None, :] > score[:, None]) & (groups[None, :] == groups[:, None])
    return np.asarray(1 + better.sum(axis=1))


def _rank_intervals(score: Floats, apart: Floats, groups: Ints, level: float) -> Ints:
    """Lowest and highest rank (K, 2) that significant differences leave open."""
    significant = (apart < level) & (groups[None, :] == groups[:, None])
    above = significant & (score[None, :] > score[:, None])
    below = significant & (score[None, :] < score[:, None])
    size = np.bincount(groups)[groups]
    return np.column_stack([1 + above.sum(axis=1), size - below.sum(axis=1)])


def _say(message: str) -> None:
    warnings.warn(message, CrowdwiseWarning, stacklevel=4)
