"""A committee: the mean of methods that fail in different ways."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.registry import AGGREGATORS

MEMBERS = ("hierarchical-dawid-skene", "ebcc", "mace", "wawa")
SLOPE = 2.25  # of members: a mean of posteriors is less sure than they are
RESTARTS = 3  # of members that restart: the committee needs no member's best


@AGGREGATORS.register("committee")
@dataclass(kw_only=True, eq=False, repr=False)
class Committee(Aggregator):
    """The mean posterior of several methods, each with honest confidence.

    One confusion matrix per annotator misreads annotators with few labels, subtypes cost where labels are few, spam models
    know no rare classes, and votes know no annotators. Where members agree, so does the committee; where they do not, the
    surer ones win, and its confidence is low. Also fitted: ``members_``, by name. ``raw_posterior_`` is the mean of the
    members' own posteriors, whose labels may differ: there the most certain member decides.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> Committee(random_state=0).fit_predict(answers).tolist()[:4]
    [0, 1, 0, 1]
    """

    members: tuple[str, ...] = MEMBERS
    """Names of aggregators, two or more."""
    n_jobs: int | None = None
    """Threads for large crowds; None: one, -1: all cores."""

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        raws, tempered = [], []
        self.members_: dict[str, Aggregator] = {}
        for name in self.members:
            member = self.members_[name] = self._member(name, rng)
            with (
                warnings.catch_warnings()
            ):  # a member that does not settle, or has few labels, is one voice among others
                warnings.simplefilter("ignore", CrowdwiseWarning)
                warnings.simplefilter("ignore", UserWarning)
                member.fit_crowd(crowd)
            raws.append(member.raw_posterior_)
            tempered.append(member.posterior_)
        self._mean: Floats = np.mean(tempered, axis=0)
        first = next(iter(self.members_.values()))
        self.confusion_, self.class_prior_ = first.confusion_, first.class_prior_
        return np.asarray(np.mean(raws, axis=0))

    def _tempered(self, crowd: Crowd) -> Floats:
        return self._mean

    def _member(self, name: str, rng: np.random.Generator) -> Aggregator:
        kind = AGGREGATORS[name]
        asked: dict[str, Any] = {"calibration": self.calibration, "random_state": rng, "tie": self.tie}
        defaults = kind().get_params()
        asked |= {"n_restarts": RESTARTS} if "n_restarts" in defaults else {}
        asked |= {"n_jobs": self.n_jobs} if "n_jobs" in defaults else {}
        member: Aggregator = kind(**asked)
        member._slope = SLOPE
        return member

    def _check(self) -> None:
        super()._check()
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(f"members must name two or more different aggregators, got {self.members!r}")
        if "committee" in self.members:
            raise ConfigError("a committee cannot be a member of itself")
