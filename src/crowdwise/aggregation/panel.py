"""Panel: Dawid-Skene for annotators of whom groups err alike, such as several language models beside people."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels, queries
from crowdwise.aggregation.core.correlation import crowd_matrix
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.core.dependence import alike, effective_votes, error_correlations
from crowdwise.aggregation.core.kernels import FLOOR, Floats, Layout
from crowdwise.aggregation.dawid_skene import AUTO, Confusions, DawidSkene
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.registry import AGGREGATORS

EXPONENTS = np.linspace(0.05, 1.0, 20)
ENOUGH = 50  # gold labels, or instances with three labels of people, from which on exponents are chosen by them
FOLDS = 5
FEW = 20  # instances with a reference below which correlations are not measured
UNREAD = (
    "errors common to a group cannot be seen from its votes alone: its {k} annotators count as one vote. Pass gold labels, \
or labels of people, to learn how many they are worth"
)


@AGGREGATORS.register("panel")
@dataclass(kw_only=True, eq=False, repr=False)
class Panel(DawidSkene):
    """Dawid-Skene in which annotators of a group share their say: log P(y) = log π_y + Σ_g β_g Σ_(j in g) log T_j[y, l_j].

    A composite likelihood: the M step counts labels in full, the E step takes those of group g to the power β_g. Six language
    models that err alike are worth about two votes, so β is a third; people are groups of their own, β = 1. Also fitted:
    ``exponents_`` (R,), ``groups_`` (R,) as codes, -1 for those on their own, ``effective_votes_`` by group, and
    ``exponents_from_``, what they were learnt from.

    >>> answers = [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]]
    >>> with warnings.catch_warnings(action="ignore"):
    ...     Panel(models=[0, 1, 2]).fit(answers).exponents_.round(2).tolist()
    [0.33, 0.33, 0.33, 1.0, 1.0]
    """

    models: Sequence[Any] | None = None
    """Ids of the annotators that are models: one group, unless ``groups`` names several. None: groups are found by
    who agrees more than skills explain."""
    groups: Mapping[Any, Any] | None = None
    """Group by annotator id, such as the model behind several prompts; annotators without one stand alone."""
    exponent: float | Literal["auto", "gold", "people", "kish"] = "auto"
    """β of every group: a number, or how it is learnt. ``"gold"`` and ``"people"``: foretells gold labels, or the consensus
    of people, best (cross-fitted); ``"kish"``: effective number of votes over number of members; ``"auto"``: gold from 50 labels
    on, else people, else kish, else one vote for the whole group."""

    streams = False

    def _infer(self, crowd: Crowd, rng: np.random.Generator) -> Floats:
        self.groups_ = self._codes(crowd)
        self._exponents = np.ones(crowd.n_annotators)
        self.effective_votes_: dict[int, float] = {}
        self.exponents_from_ = "nothing to learn: everybody stands alone"
        sizes = np.bincount(self.groups_[self.groups_ >= 0])
        if sizes.size and sizes.max() > 1:
            self._learn(crowd, sizes)
        self.exponents_ = self._exponents
        if self._few_people(crowd) and crowd.gold.size and self.exponents_from_ == "gold":
            return self._from_gold(crowd)
        posterior = super()._infer(crowd, rng)
        largest = float(self._exponents.max())
        if largest < 1.0:  # nobody stands alone: rounds run on full votes, or classes would fade into each other
            posterior = posterior**largest
            posterior /= posterior.sum(axis=1, keepdims=True)
        return posterior

    def _round(self, crowd: Crowd, state: Confusions, rng: np.random.Generator) -> Confusions:
        share = self._exponents / self._exponents.max()
        shared = np.maximum(state.emission, kernels.TINY) ** share[:, None, None]
        step = crowd.em_step(shared, state.class_prior)
        objective = step.log_likelihood + self._log_prior(crowd, state)
        return self._maximise(crowd, step.posterior, objective, step.counts, step.mass, state.pseudo)

    def _start(self, crowd: Crowd, rng: np.random.Generator) -> Confusions:
        """As Dawid-Skene, but the first votes are shared already."""
        posterior = crowd.initial() if crowd.earlier is not None else crowd.weighted_majority(self._exponents)
        counts = crowd.counts(posterior)
        pseudo = self._pseudo_counts(crowd, counts * self._exponents[:, None, None])
        return self._maximise(crowd, posterior, -np.inf, counts, crowd.mass(posterior), pseudo)

    # groups and exponents

    def _codes(self, crowd: Crowd) -> npt.NDArray[np.int64]:
        """Group of every annotator, (R,)."""
        codes = np.full(crowd.n_annotators, -1)
        if self.models is None and self.groups is None:
            return alike(crowd.layout)
        place = {value: code for code, value in enumerate(crowd.ids("annotators").tolist())}
        named = dict.fromkeys(self.models or (), "models") | dict(self.groups or {})
        unknown = [each for each in named if each not in place]
        if unknown and len(unknown) == len(named):
            raise ConfigError(f"none of the annotators named is in this crowd, such as {unknown[0]!r}")
        names = list(dict.fromkeys(named.values()))
        for annotator, group in named.items():
            if annotator in place:
                codes[place[annotator]] = names.index(group)
        return codes

    def _learn(self, crowd: Crowd, sizes: npt.NDArray[np.int64]) -> None:
        """Set the exponent of every group with more than one member."""
        people = self._people(crowd)
        reference, how = self._reference(crowd, people)
        wanted = self.exponent
        for group in np.flatnonzero(sizes > 1):
            members = np.flatnonzero(self.groups_ == group)
            share, seen = 1.0 / len(members), int(np.count_nonzero(reference.sum(axis=1) > 0))
            if seen >= FEW:
                correlations, _ = error_correlations(crowd.layout, reference, members)
                share = effective_votes(correlations) / len(members)
            elif not isinstance(wanted, float | int):
                warnings.warn(UNREAD.format(k=len(members)), CrowdwiseWarning, stacklevel=6)
            self.effective_votes_[int(group)] = share * len(members)
            self._exponents[members] = float(wanted) if isinstance(wanted, float | int) else share
        if isinstance(wanted, float | int):
            self.exponents_from_ = "the caller"
            return
        self.exponents_from_ = f"correlations of errors against {how}" if how else "nothing: one vote for a group"
        n_gold = int(np.count_nonzero(crowd.gold >= 0)) if crowd.gold.size else 0
        if wanted in ("auto", "gold") and n_gold >= (ENOUGH if wanted == "auto" else 1):
            self._choose(crowd, crowd.gold.astype(np.int64), "gold")
        elif wanted in ("auto", "people"):
            consensus = self._consensus(crowd, people)
            if np.count_nonzero(consensus >= 0) >= ENOUGH:
                self._choose(crowd, consensus, "the consensus of people")

    def _people(self, crowd: Crowd) -> npt.NDArray[np.bool_]:
        """Annotators who are in no group of several, (R,)."""
        sizes = np.bincount(self.groups_[self.groups_ >= 0], minlength=1)
        return (self.groups_ < 0) | (sizes[np.maximum(self.groups_, 0)] < 2)

    def _few_people(self, crowd: Crowd) -> bool:
        people = self._people(crowd)
        return float(crowd.labels_per_annotator[people].sum()) < 2.0 * crowd.n_labelled

    def _reference(self, crowd: Crowd, people: npt.NDArray[np.bool_]) -> tuple[Floats, str]:
        """What errors are measured against, (n, C), rows of zeros where there is nothing: gold, else people."""
        size = crowd.n_instances, crowd.n_classes
        if crowd.gold.size and np.count_nonzero(crowd.gold >= 0) >= FEW:
            return queries.clamp(crowd.layout, np.zeros(size)), "gold labels"
        if np.count_nonzero(people & (crowd.labels_per_annotator > 0)) < 2:
            return np.zeros(size), ""
        alone = _only(crowd.layout, people)
        votes = kernels.votes(alone)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = DawidSkene(calibration="none").fit_crowd(MemoryCrowd(alone)).raw_posterior_.copy()
        posterior[votes.sum(axis=1) < 2] = 0.0
        return posterior, "the consensus of people"

    def _consensus(self, crowd: Crowd, people: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Class on which most of three or more people agree, (n,); -1 where there is none."""
        votes = kernels.votes(_only(crowd.layout, people))
        clear = (votes.sum(axis=1) >= 3) & (
            np.partition(votes, -2, axis=1)[:, -1] > np.partition(votes, -2, axis=1)[:, -2]
        )
        return np.where(clear, votes.argmax(axis=1), -1)

    def _choose(self, crowd: Crowd, known: npt.NDArray[np.int64], how: str) -> None:
        """The exponents, a common multiple for all groups, with which matrices learnt on the other folds foretell best."""
        grouped = ~self._people(crowd)
        places = np.flatnonzero((known >= 0) & crowd.labelled)
        fold = np.random.default_rng(0).permutation(len(places)) % FOLDS
        used = crowd.layout if how == "gold" else _only(crowd.layout, grouped)
        bare = used._replace(gold=np.empty(0, np.int32))
        losses = np.zeros(len(EXPONENTS))
        for k in range(FOLDS):
            rest, held = places[fold != k], places[fold == k]
            reference = np.zeros((crowd.n_instances, crowd.n_classes))
            reference[rest, known[rest]] = 1.0
            emission, prior = _matrices(bare, reference)
            for number, exponent in enumerate(EXPONENTS):
                say = np.where(grouped, exponent, 1.0)[:, None, None]
                q = kernels.em_step(bare, emission**say, prior).posterior[held]
                losses[number] -= np.log(np.maximum(q[np.arange(len(held)), known[held]], 1e-6)).sum()
        self._exponents[grouped] = EXPONENTS[int(np.argmin(losses))]
        self.exponents_from_ = how

    def _from_gold(self, crowd: Crowd) -> Floats:
        """Matrices from gold labels alone: models that err alike would teach each other their errors."""
        emission, prior = _matrices(
            crowd.layout, queries.clamp(crowd.layout, np.zeros((crowd.n_instances, crowd.n_classes)))
        )
        step = kernels.em_step(crowd.layout, emission ** self._exponents[:, None, None], prior)
        self.objective_, self.n_iter_, self.converged_ = np.array([step.log_likelihood]), 1, True
        self.confusion_ = np.ascontiguousarray(emission.transpose(0, 2, 1))
        self.class_prior_, self.skill_ = prior, np.einsum("jcc,c->j", emission, prior)
        return step.posterior

    def _vote_weights(self) -> Floats | None:
        return self.exponents_

    def _groups(self) -> list[npt.NDArray[np.bool_]]:
        return [self.groups_ == group for group in np.unique(self.groups_[self.groups_ >= 0])]


def _only(layout: Layout, chosen: npt.NDArray[np.bool_]) -> Layout:
    """The labels of the ``chosen`` (R,) annotators, without gold."""
    kept = chosen[layout.cells // layout.shape[1]]
    indptr = np.append(0, np.cumsum(kept))[layout.indptr]
    weight = None if layout.weight is None else layout.weight[kept]
    return layout._replace(cells=layout.cells[kept], indptr=indptr, gold=np.empty(0, np.int32), weight=weight)


def _matrices(layout: Layout, reference: Floats) -> tuple[Floats, Floats]:
    """Matrices [annotator, label, class] and class prior from a reference (n, C), drawn to the crowd's mean matrix."""
    counts = kernels.confusion_counts(layout, reference)
    counts = counts + AUTO * crowd_matrix(counts.copy())
    mass = reference.sum(axis=0) + 1.0
    return np.maximum(counts / counts.sum(axis=1, keepdims=True), FLOOR), mass / mass.sum()
