"""What an aggregator is given: annotations in the order the kernels want, gold labels, annotators' histories."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import bayes_kernels, kernels
from crowdwise.aggregation.core.bayes_kernels import GladStep
from crowdwise.aggregation.core.kernels import Floats, Layout, Step
from crowdwise.annotations import Annotations
from crowdwise.errors import DataError

Tie = Literal["first", "random"]
TIE_TOLERANCE = 1e-9  # posteriors closer than this are a tie: rounding must not decide


class Crowd(Protocol):
    """What aggregators ask of annotations: n instances, R annotators, C classes, and sums over the annotations.

    `MemoryCrowd` answers from arrays, `crowdwise.streaming.crowd.StreamedCrowd` by passes over a table on disk. To an
    aggregator that streams, an array over instances (a posterior, labels) is opaque: it comes from one question to the
    crowd and goes into another.

    Tables about annotators have the layout of the kernels, [annotator, label, class], so that what one label says
    about all classes is contiguous; `confusion` turns them into T[annotator, class, label].
    """

    history: Floats | None
    """Earlier counts of known annotators, (R, C, C) as [annotator, label, class]."""
    earlier: Floats | None
    """Posterior of an earlier fit, of the first instances and classes, to start from."""

    # sizes and ids

    @property
    def n_annotations(self) -> int:
        """Number of annotations E."""
        ...

    @property
    def n_instances(self) -> int:
        """Number of instances n."""
        ...

    @property
    def n_annotators(self) -> int:
        """Number of annotators R."""
        ...

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        ...

    @property
    def annotators(self) -> npt.NDArray[Any]:
        """Ids of the annotators, (R,)."""
        ...

    @property
    def instances(self) -> npt.NDArray[Any]:
        """Ids of the instances, (n,)."""
        ...

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Ids of the classes, (C,)."""
        ...

    @property
    def labels_per_instance(self) -> npt.NDArray[np.int64]:
        """Number of annotations of every instance, (n,)."""
        ...

    @property
    def label_counts(self) -> npt.NDArray[np.int64]:
        """How often each annotator gave each label, (R, C)."""
        ...

    @cached_property
    def labels_per_annotator(self) -> npt.NDArray[np.int64]:
        """Number of annotations of every annotator, (R,)."""
        return np.asarray(self.label_counts.sum(axis=1))

    @cached_property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which instances have annotations, (n,)."""
        return self.labels_per_instance > 0

    @cached_property
    def n_labelled(self) -> int:
        """Number of instances with annotations."""
        return int(np.count_nonzero(self.labelled))

    # arrays over instances

    def majority(self) -> Floats:
        """Soft majority vote (n, C): shares of votes; uniform without votes; one-hot where gold is known."""
        ...

    def weighted_majority(self, weight: Floats) -> Floats:
        """Shares (n, C) of the votes weighted by annotator (R,); plain shares where no vote has any weight."""
        ...

    def initial(self) -> Floats:
        """Where to start: at an earlier posterior where there is one, else at the majority vote; (n, C)."""
        ...

    def choose(self, posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Code of the most probable class of every instance, (n,): see `choose`."""
        ...

    # sums over annotations

    def em_step(self, emission: Floats, prior: Floats, out: Floats | None = None) -> Step:
        """One pass of EM over all annotations: see `kernels.em_step`."""
        ...

    def vote_step(self, ratio: Floats, prior: Floats, out: Floats | None = None) -> Step:
        """One pass of EM where a label speaks for its own class only: see `kernels.vote_step`."""
        ...

    def vote_hits(self, ratio: Floats) -> tuple[Floats, Floats]:
        """`vote_step` for several models at once: see `bayes_kernels.vote_hits`."""
        ...

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        """One pass of GLAD over all annotations: see `bayes_kernels.glad_step`."""
        ...

    def counts(self, posterior: Floats) -> Floats:
        """Expected confusion counts [annotator, label, class] of a posterior (n, K): (R, C, K)."""
        ...

    def cell_counts(self, posterior: Floats) -> Floats:
        """`counts`, of whatever the cells of this crowd stand for."""
        ...

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        """The same annotations with ``number[cell]`` for cells, of which there are ``shape[0] * shape[1]``."""
        ...

    def hard_counts(self, posterior: Floats, tie: Tie, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
        """`counts` and `mass` of the most probable classes, and the sum of their log-probabilities."""
        ...

    def hits(self, posterior: Floats) -> Floats:
        """Expected number of right labels of every annotator, by label, under a posterior (n, C): (R, C)."""
        ...

    def mass(self, posterior: Floats) -> Floats:
        """Sum of the posteriors of labelled instances, (K,)."""
        ...

    def agreements(self, labels: npt.NDArray[Any]) -> Floats:
        """How many labels of every annotator agree with the labels (n,) of the instances: (R,)."""
        ...

    def differ(self, labels: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
        """Whether any instance has another label in ``others`` (n,)."""
        ...

    def distance(self, posterior: Floats, other: Floats) -> float:
        """Largest difference of two posteriors (n, C)."""
        ...

    def pairs(self) -> tuple[float, float]:
        """Ordered pairs of labels of an instance that agree, and all such pairs."""
        ...

    def agreement_beyond_chance(self) -> float:
        """How much likelier than by chance (1 / C) two labels of an instance agree: 0 by chance, 1 always.

        For annotators of equal accuracy a with even errors this is ((C a - 1) / (C - 1))².
        """
        (agreed, pairs), c = self.pairs(), self.n_classes
        share = agreed / pairs if pairs else 1.0 / max(c, 1)
        return (c * share - 1.0) / (c - 1.0) if c > 1 else 1.0

    def past_accuracy(self) -> tuple[Floats, Floats]:
        """Right labels and all labels in the annotators' histories, (R,) each."""
        if self.history is None:
            return np.zeros(self.n_annotators), np.zeros(self.n_annotators)
        return np.einsum("jcc->j", self.history), self.history.sum(axis=(1, 2))

    # what only a crowd in memory has

    layout: Layout
    """All annotations, as the kernels read them."""

    @property
    def gold(self) -> npt.NDArray[np.int32]:
        """Known class codes, (n,), -1 where unknown; empty when no gold labels were given."""
        return self.layout.gold

    def votes(self, weight: Floats | None = None) -> Floats:
        """Votes (n, C), each counted once, or with the weight (R,) of its annotator or (R, C) of its cell."""
        if weight is not None and weight.ndim == 1:
            weight = np.repeat(weight, self.n_classes)
        return kernels.votes(self.layout, weight)

    def clamp(self, posterior: Floats) -> Floats:
        """The same array, with the rows of gold instances made one-hot."""
        if self.gold.size:
            known = np.flatnonzero(self.gold >= 0)
            posterior[known] = 0.0
            posterior[known, self.gold[known]] = 1.0
        return posterior

    def labels_within(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        """How many of the chosen (n,) instances every annotator labelled, (R,)."""
        rows = np.repeat(chosen, self.labels_per_instance)
        return np.bincount(self.layout.cells[rows] // self.n_classes, minlength=self.n_annotators).astype(np.float64)

    # limits and interruptions

    def check_table(self, states: int) -> None:
        """Refuse confusion tables that cannot fit into memory, and say what does."""
        ...

    def check_vectors(self, number: int) -> None:
        """Refuse as many vectors (R + n,) where they exceed a bound on memory; there is none in memory."""
        return

    def recalled(self, model: Any) -> tuple[Any, list[float], bool] | None:
        """Where an interrupted fit of ``model`` stood: state, objectives, whether it had converged; None in memory."""
        return None

    def remember(self, model: Any, state: Any, trace: list[float], converged: bool) -> None:
        """Keep the state after a round where it survives the process; nothing in memory."""
        return


@dataclass(eq=False)
class MemoryCrowd(Crowd):
    """Annotations in memory, sorted for the kernels."""

    layout: Layout
    annotations: Annotations | None = None
    """Where they come from, with the ids."""
    history: Floats | None = None
    earlier: Floats | None = None

    @classmethod
    def of(
        cls,
        annotations: Annotations,
        gold: npt.NDArray[np.int32] | None = None,
        history: Floats | None = None,
        threads: int = 1,
        earlier: Floats | None = None,
    ) -> MemoryCrowd:
        """Prepare ``annotations``; ``gold`` (n,) holds class codes, -1 where the truth is unknown."""
        a = annotations
        cells, indptr = kernels.sort_by_instance(a.instance, a.annotator, a.label, a.n_instances, a.n_classes)
        known = np.empty(0, np.int32) if gold is None or not np.any(gold >= 0) else gold
        compiled = kernels.use_numba(len(a))
        layout = Layout(cells, indptr, known, (a.n_annotators, a.n_classes), threads if compiled else 1, compiled)
        return cls(layout, a, history, earlier)

    @property
    def n_annotations(self) -> int:
        return len(self.layout.cells)

    @property
    def n_instances(self) -> int:
        return len(self.layout.indptr) - 1

    @property
    def n_annotators(self) -> int:
        return self.layout.shape[0]

    @property
    def n_classes(self) -> int:
        return self.layout.shape[1]

    @property
    def annotators(self) -> npt.NDArray[Any]:
        return self._source.annotators

    @property
    def instances(self) -> npt.NDArray[Any]:
        return self._source.instances

    @property
    def classes(self) -> npt.NDArray[Any]:
        return self._source.classes

    @property
    def _source(self) -> Annotations:
        if self.annotations is None:
            raise DataError("this part of a crowd has codes only, no ids")
        return self.annotations

    @property
    def labels_per_instance(self) -> npt.NDArray[np.int64]:
        return np.diff(self.layout.indptr)

    @cached_property
    def label_counts(self) -> npt.NDArray[np.int64]:
        return kernels.label_counts(self.layout)

    def majority(self) -> Floats:
        return self.clamp(shares(self.votes()))

    def weighted_majority(self, weight: Floats) -> Floats:
        votes = self.votes(weight)
        weightless = votes.sum(axis=1) <= 0
        if np.any(weightless):
            votes[weightless] = self.votes()[weightless]
        return self.clamp(shares(votes))

    def initial(self) -> Floats:
        start = self.majority()
        if self.earlier is not None:
            n, c = self.earlier.shape
            start[:n] = 0.0
            start[:n, :c] = self.earlier
        return self.clamp(start)

    def choose(self, posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        return choose(posterior, tie, rng)

    def em_step(self, emission: Floats, prior: Floats, out: Floats | None = None, onto: Floats | None = None) -> Step:
        return kernels.em_step(self.layout, emission, prior, out, onto)

    def vote_step(self, ratio: Floats, prior: Floats, out: Floats | None = None, onto: Floats | None = None) -> Step:
        return kernels.vote_step(self.layout, ratio, prior, out, onto)

    def vote_hits(self, ratio: Floats) -> tuple[Floats, Floats]:
        return bayes_kernels.vote_hits(self.layout, ratio)

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        return bayes_kernels.glad_step(self.layout, ability, easiness)

    def counts(self, posterior: Floats) -> Floats:
        self.check_table(posterior.shape[1])
        return self.cell_counts(posterior)

    def cell_counts(self, posterior: Floats, onto: Floats | None = None) -> Floats:
        return kernels.confusion_counts(self.layout, posterior, onto)

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> MemoryCrowd:
        return MemoryCrowd(self.layout._replace(cells=number[self.layout.cells], shape=shape))

    def hard_counts(self, posterior: Floats, tie: Tie, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
        rows, chosen = np.arange(len(posterior)), self.choose(posterior, tie, rng)
        hard = np.zeros_like(posterior)
        hard[rows, chosen] = 1.0
        logs = float(np.log(posterior[rows, chosen])[self.labelled].sum())
        return self.counts(hard), self.mass(hard), logs

    def hits(self, posterior: Floats) -> Floats:
        return kernels.hits(self.layout, posterior)

    def mass(self, posterior: Floats) -> Floats:
        return np.asarray(self.labelled.astype(np.float64) @ posterior)

    def agreements(self, labels: npt.NDArray[Any]) -> Floats:
        agree = kernels.labels(self.layout) == np.repeat(labels, self.labels_per_instance)
        annotators = self.layout.cells[agree] // self.n_classes
        return np.bincount(annotators, minlength=self.n_annotators).astype(np.float64)

    def differ(self, labels: npt.NDArray[Any], others: npt.NDArray[Any]) -> bool:
        return not np.array_equal(labels, others)

    def distance(self, posterior: Floats, other: Floats) -> float:
        return float(np.abs(posterior - other).max())

    def pairs(self) -> tuple[float, float]:
        votes, number = self.votes(), self.labels_per_instance.astype(np.float64)
        return float(np.vdot(votes, votes - 1.0)), float(number @ (number - 1.0))

    def check_table(self, states: int) -> None:
        needed = 8 * self.n_annotators * self.n_classes * states
        try:
            available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):  # not on this platform
            return
        if needed > available // 2:
            raise DataError(
                f"confusion matrices of {self.n_annotators} annotators, {self.n_classes} labels by {states} states, "
                f"need {needed / 1e9:.1f} GB, this machine has {available / 1e9:.1f}; use a method without confusion "
                "matrices, such as OneCoinDawidSkene or Wawa"
            )


def choose(posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Code of the most probable class of every row, (n,); equals within 1e-9 are a tie.

    >>> choose(np.array([[0.5, 0.5], [0.2, 0.8]]), "first", np.random.default_rng(0))
    array([0, 1])
    """
    n, c = posterior.shape
    if c == 0:
        return np.zeros(n, np.int64)
    # numpy reduces short rows slowly, column by column is many times faster
    top = functools.reduce(np.maximum, posterior.T) if c <= 32 else posterior.max(axis=1)
    threshold = top - TIE_TOLERANCE
    if tie == "random":
        return np.asarray(np.where(posterior >= threshold[:, None], rng.random((n, c)), -1.0).argmax(axis=1))
    if c > 32:
        return np.asarray((posterior >= threshold[:, None]).argmax(axis=1))
    codes = np.full(n, c - 1)
    for k in range(c - 2, -1, -1):
        codes[posterior[:, k] >= threshold] = k
    return codes


def shares(votes: Floats) -> Floats:
    """Rows divided by their sums, uniform where a row is all zeros; in place."""
    total = votes @ np.ones(votes.shape[1])  # several times faster than a sum along short rows
    empty = total == 0
    if np.any(empty):
        votes[empty] = 1.0
        total[empty] = votes.shape[1]
    votes /= total[:, None]
    return votes


def confusion(table: Floats) -> Floats:
    """Confusion matrices T[annotator, class, label], rows summing to 1, from counts [annotator, label, class].

    A row without counts is uniform.
    """
    total = table.sum(axis=1, keepdims=True)
    filled = np.divide(table, total, out=np.full_like(table, 1.0 / max(table.shape[1], 1)), where=total > 0)
    return np.ascontiguousarray(filled.transpose(0, 2, 1))


def resolve_threads(n_jobs: int | None) -> int:
    """Number of threads for scikit-learn's ``n_jobs``: None is 1, -1 all cores, -2 all but one."""
    cores = os.cpu_count() or 1
    threads = 1 if n_jobs is None else int(n_jobs)
    return max(1, cores + 1 + threads) if threads < 0 else max(1, threads)
