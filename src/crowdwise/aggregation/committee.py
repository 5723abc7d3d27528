"""A committee: the mean of methods that fail in different ways, weighed by what each foretells."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.aggregation.core import heldout
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.aggregation.core.kernels import Floats
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.registry import AGGREGATORS

MEMBERS = ("hierarchical-dawid-skene", "ebcc", "mace", "wawa")
RESTARTS = 3  # of members that restart: the committee needs no member's best
TRIAL = 1  # and of those that are to foretell labels


@AGGREGATORS.register("committee")
@dataclass(kw_only=True, eq=False, repr=False)
class Committee(Aggregator):
    """The mean posterior of several methods, each with honest confidence: q_i = Σ_m w_m q_i^m.

    One confusion matrix per annotator misreads annotators with few labels, subtypes cost where labels are few, spam models
    know no rare classes, and votes know no annotators. Where members agree, so does the committee; where they do not, the
    surer ones win, and its confidence is low. Weights follow from how well the members foretell labels that they were not
    given, `crowdwise.aggregation.core.heldout`. Also fitted: ``members_`` and ``weights_``, by name. ``raw_posterior_`` is
    the mean of the members' own posteriors, whose labels may differ: there the most certain member decides. Annotators are
    judged by the first member.

    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, -1]]
    >>> Committee(random_state=0).fit_predict(answers).tolist()[:4]
    [0, 1, 0, 1]
    """

    members: tuple[str, ...] = MEMBERS
    """Names of aggregators, two or more."""
    weighted: bool = True
    """Weigh members by what they foretell, which takes twice the time; False: all count alike."""
    n_jobs: int | None = None
    """Threads for large crowds; None: one, -1: all cores."""

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        part = heldout.without_some(crowd, rng) if self.weighted else None
        scores = []
        self.members_: dict[str, Aggregator] = {}
        for name in self.members:
            self.members_[name] = self._fitted(name, crowd, self.calibration, rng, RESTARTS)
            if part is not None:
                scores.append(part.score(self._fitted(name, part.rest, "none", rng, TRIAL).raw_posterior_))
        weights = np.full(len(self.members), 1.0 / len(self.members))
        if part is not None:
            weights = part.weights(scores, crowd.patterns)
        self.weights_ = dict(zip(self.members, weights.tolist(), strict=True))
        members = list(self.members_.values())
        self._mean: Floats = np.tensordot(weights, [member.posterior_ for member in members], 1)
        self.confusion_, self.class_prior_ = members[0].confusion_, members[0].class_prior_
        return np.asarray(np.tensordot(weights, [member.raw_posterior_ for member in members], 1))

    def _tempered(self, crowd: Crowd) -> Floats:
        return self._mean

    @property
    def judging_posterior_(self) -> Floats:
        if not hasattr(self, "members_"):
            return self.posterior_
        return self.members_[self.members[0]].judging_posterior_

    def _believed(self, crowd: Crowd) -> Floats:
        if not hasattr(self, "members_"):
            return super()._believed(crowd)
        return self.members_[self.members[0]]._believed(crowd)

    def _believed_skill(self, crowd: Crowd) -> tuple[float, float]:
        if not hasattr(self, "members_"):
            return super()._believed_skill(crowd)
        return self.members_[self.members[0]]._believed_skill(crowd)

    def _fitted(self, name: str, crowd: Crowd, calibration: str, rng: np.random.Generator, restarts: int) -> Aggregator:
        kind = AGGREGATORS[name]
        asked: dict[str, Any] = {"calibration": calibration, "random_state": rng, "tie": self.tie}
        defaults = kind().get_params()
        asked |= {"n_restarts": restarts} if "n_restarts" in defaults else {}
        asked |= {"n_jobs": self.n_jobs} if "n_jobs" in defaults else {}
        with warnings.catch_warnings():  # a member that does not settle, or has few labels, is one voice among others
            warnings.simplefilter("ignore", CrowdwiseWarning)
            warnings.simplefilter("ignore", UserWarning)
            fitted: Aggregator = kind(**asked).fit_crowd(crowd)
        return fitted

    def _check(self) -> None:
        super()._check()
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ConfigError(f"members must name two or more different aggregators, got {self.members!r}")
        if "committee" in self.members:
            raise ConfigError("a committee cannot be a member of itself")
