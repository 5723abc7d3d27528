"""A committee: the plain mean of methods that fail in different ways."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from crowdwise.aggregation.core import queries
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.constraints import PositiveInt
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.registry import AGGREGATORS

STREAMING = ("hierarchical-dawid-skene", "wawa", "majority-vote")
MEMBERS = ("hierarchical-dawid-skene", "ebcc", "wawa", "majority-vote")
SPARSE = ("wawa", "majority-vote")
NEEDED = 5.0  # labels beyond two per item, for each entry of a confusion matrix, below which no matrix is learnt
MANY = 1_000_000  # labels, and four per annotator and class, times classes: above it EBCC takes too long
HALVES = 2  # fits of a member that starts at random, each with half of the restarts
SMALL = 3_000  # labels up to which restarts are doubled: small crowds have more optima, and cost little
FEWEST = 10  # labels that depend on random starts below which nothing is said
UNSTABLE = 0.03  # share of labels that depend on random starts above which it is said


class Opinion(NamedTuple):
    """A fitted member, and what it contributes: (n, C) each."""

    member: Aggregator
    label: Floats
    """To the label: its posterior, or its shares of votes."""
    confidence: Floats
    """To the confidence: its posterior, or the probabilities that follow from its shares."""
    raw: Floats
    """Its posterior as if errors were independent, or its shares of votes."""


@AGGREGATORS.register("committee")
@dataclass(kw_only=True, eq=False, repr=False)
class Committee(Aggregator):
    """The class with the largest mean posterior of several methods: (1 / M) Σ_m q_i^m.

    One confusion matrix per annotator misreads annotators with few labels and takes a common bias for knowledge; subtypes
    cost where labels are few; votes know no annotators. Where members agree, so does the committee; where they do not, the
    surer ones win, and its confidence is low. Members count alike: weights by what they foretell of labels that were left
    out favour those that explain hard instances by matrices. Of voting members, shares of votes choose the label: the
    methods that know annotators decide where votes are close. The probability of the chosen class is the mean of what all
    members give it, of voting members the probability that follows from the shares.

    Random starts do not depend on ``random_state``: members that need them are fitted twice, from starts that are always
    the same, and count by the mean of both. Also fitted: ``members_`` by name, and ``spread_``, the share of labels that
    differ between these two fits; a warning says so if it is large. ``raw_posterior_`` is the mean of the members' own
    posteriors, without those that give shares of votes; its labels may differ. Annotators are judged by the first member.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> Committee().fit_predict(answers).tolist()[:4]
    [0, 1, 0, 1]
    """

    members: tuple[str, ...] | Literal["auto"] = "auto"
    """Names of aggregators, two or more; ``"auto"``: hierarchical Dawid-Skene, EBCC, WAWA and the votes, without EBCC if
    the crowd is on disk or has a million labels times classes. WAWA and the votes alone if matrices cannot be learnt:
    two labels of an item do not identify them, and fewer than 5 C² labels are beyond two per item."""
    n_restarts: PositiveInt = 10
    """Random starts of a member that needs them, in all; twice as many in crowds of up to 3,000 labels."""
    n_jobs: int | None = None
    """Threads for large crowds; None: one, -1: all cores."""

    streams = True

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        names = self._names(crowd)
        opinions = {name: self._opinions(name, crowd) for name in names}
        self.members_ = {name: each[0].member for name, each in opinions.items()}
        first = self.members_[names[0]]
        self.confusion_, self.class_prior_ = first.confusion_, first.class_prior_
        labels = [[opinion.label for opinion in each] for each in opinions.values()]
        self.spread_ = self._spread(crowd, labels)
        chosen = crowd.rows(queries.mean, *(_mean(crowd, each) for each in labels))
        surely = [_mean(crowd, [opinion.confidence for opinion in each]) for each in opinions.values()]
        self._mean: Floats = crowd.rows(queries.with_confidence, chosen, crowd.rows(queries.mean, *surely))
        own = [each for each in opinions.values() if not each[0].member.holds_shares] or list(opinions.values())
        raw = [_mean(crowd, [opinion.raw for opinion in each]) for each in own]
        return crowd.rows(queries.mean, *raw)  # type: ignore[no-any-return]

    def _names(self, crowd: Crowd) -> tuple[str, ...]:
        return suitable_members(crowd) if self.members == "auto" else self.members

    def _opinions(self, name: str, crowd: Crowd) -> list[Opinion]:
        """What a member says: once, or from each of two sets of starts."""
        kind: type[Aggregator] = AGGREGATORS[name]
        defaults = kind().get_params()
        asked: dict[str, Any] = {"tie": self.tie, "calibration": self.calibration}
        if "n_jobs" in defaults:
            asked["n_jobs"] = self.n_jobs
        seeds = [0]
        if "n_restarts" in defaults:
            number = self.n_restarts * (2 if crowd.n_annotations <= SMALL else 1)
            asked["n_restarts"] = max(number // HALVES, 1)
            seeds = list(range(HALVES))
        found = []
        with warnings.catch_warnings():  # a member that does not settle, or has few labels, is one voice among others
            warnings.simplefilter("ignore", CrowdwiseWarning)
            warnings.simplefilter("ignore", UserWarning)
            for seed in seeds:
                member: Aggregator = kind(**asked, random_state=seed)
                member.fit_crowd(crowd.for_member(member))
                given = member.raw_posterior_ if kind.holds_shares else member.posterior_
                found.append(Opinion(member, given, member.posterior_, member.raw_posterior_))
        return found

    def _spread(self, crowd: Crowd, said: list[list[Floats]]) -> float:
        """Share of labels that differ between the first and the last fits of the members."""
        if all(len(each) == 1 for each in said):
            return 0.0
        first, last = (crowd.rows(queries.mean, *(each[end] for each in said)) for end in (0, -1))
        spread = float(crowd.total(queries.differing_tops, first, last)) / max(crowd.n_labelled, 1)
        if spread > UNSTABLE and spread * crowd.n_labelled >= FEWEST:
            warnings.warn(
                f"{spread:.0%} of the labels depend on random starts: the crowd has several explanations that are nearly as "
                "good; collect more labels or gold labels for doubtful items",
                CrowdwiseWarning,
                stacklevel=6,
            )
        return spread

    def _tempered(self, crowd: Crowd) -> Floats:
        return self._mean

    @property
    def judging_posterior_(self) -> Floats:
        if not hasattr(self, "members_"):
            return self.posterior_
        return self._first.judging_posterior_

    @property
    def _first(self) -> Aggregator:
        return next(iter(self.members_.values()))

    def _believed(self, crowd: Crowd) -> Floats:
        if not hasattr(self, "members_"):
            return super()._believed(crowd)
        return self._first._believed(crowd)

    def _believed_skill(self, crowd: Crowd) -> tuple[float, float]:
        if not hasattr(self, "members_"):
            return super()._believed_skill(crowd)
        return self._first._believed_skill(crowd)

    def check_streams(self) -> None:
        super().check_streams()
        names = STREAMING if self.members == "auto" else self.members
        held = [name for name in names if not getattr(AGGREGATORS[name], "streams", False)]
        if held:
            raise ConfigError(
                f"a committee with {', '.join(held)} cannot be streamed: it needs all annotations at once"
            )

    def _check(self) -> None:
        super()._check()
        if self.members == "auto":
            return
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(f"members must name two or more different aggregators, got {self.members!r}")
        if "committee" in self.members:
            raise ConfigError("a committee cannot be a member of itself")


def suitable_members(crowd: Crowd) -> tuple[str, ...]:
    """The members of a committee by default."""
    if not identified(crowd):
        return SPARSE
    return MEMBERS if isinstance(crowd, MemoryCrowd) and not is_large(crowd) else STREAMING


def identified(crowd: Crowd) -> bool:
    """Whether there are labels enough to learn confusion matrices.

    Matrices and class shares that explain two labels of every item are not unique; a third label, or a gold label, makes
    them so. Below `NEEDED` such labels for each entry of a matrix, what is learnt is mostly a bias common to all.
    """
    beyond = int(np.maximum(crowd.annotators_per_instance - 2, 0).sum())
    known = int(np.count_nonzero(crowd.gold >= 0)) if crowd.gold.size else 0
    return beyond + known >= NEEDED * crowd.n_classes**2


def is_large(crowd: Crowd) -> bool:
    """Whether EBCC takes too long."""
    return (crowd.n_annotations + 4 * crowd.n_annotators * crowd.n_classes) * crowd.n_classes > MANY


def _mean(crowd: Crowd, posteriors: list[Floats]) -> Floats:
    return posteriors[0] if len(posteriors) == 1 else crowd.rows(queries.mean, *posteriors)
