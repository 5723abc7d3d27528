"""What an aggregator is given: annotations in the order the kernels want, gold labels, annotators' histories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import bayes_kernels, compiled, correlation, kernels, patterns, queries, weights
from crowdwise.aggregation.core.bayes_kernels import GladStep
from crowdwise.aggregation.core.kernels import Floats, Layout, Step
from crowdwise.aggregation.core.queries import Tie as Tie
from crowdwise.aggregation.core.queries import choose as choose
from crowdwise.annotations import Annotations
from crowdwise.data.codes import totals
from crowdwise.errors import DataError
from crowdwise.system import n_cores, total_memory

Query = Callable[..., Any]  # (layout, *arguments) -> an array over instances, or sums; at the top level of a module
Role = Literal["instances", "annotators", "classes"]
_NONE = np.empty(0, np.int32)


class Crowd(ABC):
    """What aggregators ask of annotations: n instances, R annotators, C classes, and sums over the annotations.

    `MemoryCrowd` answers from arrays, `crowdwise.streaming.crowd.StreamedCrowd` by passes over a table on disk: each says
    how it puts a query to the annotations (`rows`, `total`, `step`), and what the queries are is written here. To an
    aggregator that streams, an array over instances (a posterior, labels) is opaque: it comes from one query and goes
    into another.

    Tables about annotators have the layout of the kernels, [annotator, label, class], so that what one label says
    about all classes is contiguous; `confusion` turns them into T[annotator, class, label].
    """

    n_annotations: int
    n_instances: int
    n_annotators: int
    n_classes: int
    layout: Layout
    """All annotations, as the kernels read them; on disk there is none."""
    history: Floats | None = None
    """Earlier counts of known annotators, (R, C, C) as [annotator, label, class]."""
    earlier: Floats | None = None
    """Posterior of an earlier fit, of the first instances and classes, to start from."""
    scale: float = 1.0
    """What the weights of the annotations were multiplied by: see `weights`."""

    # how queries are put

    @abstractmethod
    def rows(self, query: Query, *arguments: Any) -> Any:
        """An array over instances."""

    @abstractmethod
    def total(self, query: Query, *arguments: Any, largest: bool = False) -> Any:
        """The sum, or the largest, of what the annotations answer."""

    @abstractmethod
    def step(self, query: Query, *arguments: Any, out: Floats | None = None) -> Step:
        """A pass of EM; ``out`` (n, K) may be overwritten with the posterior."""

    @abstractmethod
    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        """One pass of GLAD over all annotations: see `bayes_kernels.glad_step`."""

    def drawn_for_instances(self, draws: Floats) -> Floats:
        """Random numbers (n, ...), by id, so that the order in which instances appeared changes nothing."""
        return draws

    def drawn_for_annotators(self, draws: Floats, annotator: npt.NDArray[Any]) -> Floats:
        """Random numbers, a row for each of some annotators (codes), by id."""
        return draws

    @abstractmethod
    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        """The same annotations with ``number[cell]`` for cells, of which there are ``shape[0] * shape[1]``."""

    @abstractmethod
    def check_table(self, states: int) -> None:
        """Refuse confusion tables that cannot fit into memory, and say what does."""

    def check_vectors(self, number: int) -> None:
        """Refuse as many vectors (R + n,) where they exceed a bound on memory; without a bound all are taken."""
        return

    def for_member(self, model: Any) -> Crowd:
        """The same annotations for a ``model`` that is fitted as a part of another; on disk, with a checkpoint of its own."""
        return self

    def recalled(self, model: Any) -> tuple[Any, list[float], bool] | None:
        """Where an interrupted fit of ``model`` stood: state, objectives, whether it had converged; None in memory."""
        return None

    def remember(self, model: Any, state: Any, trace: list[float], converged: bool) -> None:
        """Keep the state after a round where it survives the process; nothing in memory."""
        return

    # sizes and ids

    @abstractmethod
    def ids(self, of: Role) -> npt.NDArray[Any]:
        """Ids in the order of their codes."""

    @property
    @abstractmethod
    def labels_per_instance(self) -> npt.NDArray[Any]:
        """Number of labels of every instance, (n,): annotations, or the sum of their weights."""

    @property
    @abstractmethod
    def annotators_per_instance(self) -> npt.NDArray[np.int64]:
        """Number of annotators of every instance, (n,)."""

    @cached_property
    def label_counts(self) -> npt.NDArray[Any]:
        """How often each annotator gave each label, (R, C)."""
        return np.asarray(self.total(kernels.label_counts))

    @cached_property
    def used_labels(self) -> Floats:
        """1 where an annotator ever gave a label, here or in a history, else 0; all of those who gave none; (R, C, 1)."""
        given = self.label_counts + (0.0 if self.history is None else self.history.sum(axis=2))
        given[given.sum(axis=1) == 0] = 1.0
        return np.where(given > 0, 1.0, 0.0)[:, :, None]

    @cached_property
    def patterns(self) -> patterns.Shown:
        """What the instances with two or three labels show about the dependence of labels."""
        number, c = self.labels_per_instance.astype(np.float64), self.n_classes
        every = correlation.stride(self.n_annotations, self.n_instances, c)
        counts = np.asarray(self.total(patterns.count, every)) * every
        return patterns.shown(counts, c, float(number @ np.maximum(number - 1.0, 0.0)) / 2.0)

    @cached_property
    def labels_per_annotator(self) -> npt.NDArray[Any]:
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

    @property
    def gold(self) -> npt.NDArray[np.int32]:
        """Known class codes, (n,), -1 where unknown; empty when no gold labels were given."""
        return self.layout.gold

    # arrays over instances

    def votes(self, weight: Floats | None = None) -> Floats:
        """Votes (n, C), each counted once, or with the weight (R,) of its annotator."""
        return np.asarray(kernels.votes(self.layout, None if weight is None else np.repeat(weight, self.n_classes)))

    def majority(self) -> Floats:
        """Soft majority vote, (n, C)."""
        return self.rows(queries.majority)  # type: ignore[no-any-return]

    def weighted_majority(self, weight: Floats) -> Floats:
        """Majority vote weighted by annotator (R,), (n, C)."""
        return self.rows(queries.weighted_majority, weight)  # type: ignore[no-any-return]

    def initial(self) -> Floats:
        """Where to start: at an earlier posterior where there is one, else at the majority vote; (n, C)."""
        start = self.majority()
        if self.earlier is None:
            return start
        n, c = self.earlier.shape
        start[:n] = 0.0
        start[:n, :c] = self.earlier
        return self.clamp(start)

    def clamp(self, posterior: Floats) -> Floats:
        """The same array, with the rows of gold instances made one-hot."""
        return queries.clamp(self.layout, posterior)

    def choose(self, posterior: Floats, tie: Tie, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Code of the most probable class of every instance, (n,): see `choose`."""
        return self.rows(queries.labels, posterior, tie, rng)  # type: ignore[no-any-return]

    # sums over annotations

    def em_step(self, emission: Floats, prior: Floats, out: Floats | None = None) -> Step:
        """One pass of EM over all annotations: see `kernels.em_step`."""
        return self.step(kernels.em_step, emission, prior, out=out)

    def vote_step(self, ratio: Floats, prior: Floats, out: Floats | None = None) -> Step:
        """One pass of EM where a label speaks for its own class only: see `kernels.vote_step`."""
        return self.step(kernels.vote_step, ratio, prior, out=out)

    def vote_hits(self, ratio: Floats) -> tuple[Floats, Floats]:
        """`vote_step` for several models at once: see `bayes_kernels.vote_hits`."""
        hits, log_likelihoods = self.total(bayes_kernels.vote_hits, ratio)
        return hits, log_likelihoods

    def counts(self, posterior: Floats) -> Floats:
        """Expected confusion counts [annotator, label, class] of a posterior (n, C): (R, C, C)."""
        self.check_table(self.n_classes)
        return self.cell_counts(posterior)

    def cell_counts(self, posterior: Floats) -> Floats:
        """`counts` of a posterior (n, K), of whatever the cells of this crowd stand for."""
        return np.asarray(self.total(kernels.confusion_counts, posterior))

    def hard_counts(self, posterior: Floats) -> tuple[Floats, Floats, float]:
        """`counts` and `mass` of the most probable classes, and the sum of their log-probabilities."""
        counts, mass, logs = self.total(queries.hard_counts, posterior)
        return counts, mass, logs

    def hits(self, posterior: Floats) -> Floats:
        """Expected number of right labels of every annotator, by label, under a posterior (n, C): (R, C)."""
        return np.asarray(self.total(kernels.hits, posterior))

    def mass(self, posterior: Floats) -> Floats:
        """Sum of the posteriors of labelled instances, (K,)."""
        return np.asarray(self.total(queries.mass, posterior))

    def agreements(self, labels: npt.NDArray[Any]) -> Floats:
        """How many labels of every annotator agree with the labels (n,) of the instances: (R,)."""
        return np.asarray(self.total(queries.agreements, labels))

    def top_hits(self, posterior: Floats) -> Floats:
        """How many labels of every annotator are the most probable class of their instance; ties count by share: (R,)."""
        return np.asarray(self.total(queries.top_hits, posterior))

    def differ(self, posterior: Floats, other: Floats) -> bool:
        """Whether any instance has other most probable classes in ``other`` (n, C)."""
        return bool(self.total(queries.top_differences, posterior, other))

    def distance(self, posterior: Floats, other: Floats) -> float:
        """Largest difference of two posteriors (n, C)."""
        return float(self.total(queries.distance, posterior, other, largest=True))

    def agreement_beyond_chance(self) -> float:
        """How much likelier than by chance (1 / C) two labels of an instance agree: 0 by chance, 1 always.

        For annotators of equal accuracy a with even errors this is ((C a - 1) / (C - 1))².
        """
        (agreed, pairs), c = self.total(queries.pairs), self.n_classes
        share = agreed / pairs if pairs else 1.0 / max(c, 1)
        return float((c * share - 1.0) / (c - 1.0)) if c > 1 else 1.0

    def past_accuracy(self) -> tuple[Floats, Floats]:
        """Right labels and all labels in the annotators' histories, (R,) each."""
        if self.history is None:
            return np.zeros(self.n_annotators), np.zeros(self.n_annotators)
        return np.einsum("jcc->j", self.history), self.history.sum(axis=(1, 2))


class MemoryCrowd(Crowd):
    """Annotations in memory, sorted for the kernels; ids are those of ``annotations`` where they are given."""

    def __init__(
        self,
        layout: Layout,
        annotations: Annotations | None = None,
        history: Floats | None = None,
        earlier: Floats | None = None,
    ) -> None:
        self.layout, self.annotations, self.history, self.earlier = layout, annotations, history, earlier
        self.n_annotations, self.n_instances = len(layout.cells), len(layout.indptr) - 1
        self.n_annotators, self.n_classes = layout.shape

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
        fast, shape = kernels.use_numba(len(a)), (a.n_annotators, a.n_classes)
        threads = threads if fast else 1
        cells, indptr = kernels.sort_by_instance(
            a.instance, a.annotator, a.label, a.n_instances, a.n_classes, threads if fast else None
        )
        weight, scale = None, 1.0
        if a.weight is not None and not np.all(a.weight == 1):
            order = np.lexsort((a.weight, a.label, a.annotator, a.instance))
            weight = weights.as_written(a.weight[order])
            scale = weights.scale_of(
                weights.median(weights.voice_weights(Layout(cells, indptr, _NONE, shape, weight=weight)))
            )
            weight *= scale
        known = _NONE if gold is None or not np.any(gold >= 0) else gold
        layout = Layout(cells, indptr, known, shape, threads, fast, weight)
        made = MemoryCrowd(layout, a, history, earlier)
        made.scale = scale
        return made

    def drawn_for_instances(self, draws: Floats) -> Floats:
        rank = None if self.annotations is None else self.annotations.instance_vocabulary.in_order_of_ids()
        return draws if rank is None else draws[rank]

    def drawn_for_annotators(self, draws: Floats, annotator: npt.NDArray[Any]) -> Floats:
        rank = None if self.annotations is None else self.annotations.annotator_vocabulary.in_order_of_ids()
        return draws if rank is None else draws[np.argsort(np.argsort(rank[annotator]))]

    def rows(self, query: Query, *arguments: Any) -> Any:
        with compiled.threaded(self.layout.threads):
            return query(self.layout, *arguments)

    def total(self, query: Query, *arguments: Any, largest: bool = False) -> Any:
        return self.rows(query, *arguments)

    def step(self, query: Query, *arguments: Any, out: Floats | None = None) -> Step:
        return query(self.layout, *arguments, out)  # type: ignore[no-any-return]

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        return bayes_kernels.glad_step(self.layout, ability, easiness)

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        return MemoryCrowd(kernels.renumbered(self.layout, number, shape))

    def ids(self, of: Role) -> npt.NDArray[Any]:
        return np.asarray(getattr(self.annotations, of))

    @property
    def labels_per_instance(self) -> npt.NDArray[Any]:
        if self.layout.weight is None:
            return np.diff(self.layout.indptr)
        return np.asarray(totals(kernels.instances(self.layout), self.layout.weight, self.n_instances))

    @property
    def annotators_per_instance(self) -> npt.NDArray[np.int64]:
        return weights.voices(self.layout.cells, self.layout.indptr, self.n_classes)

    def check_table(self, states: int) -> None:
        needed = 8 * self.n_annotators * self.n_classes * states
        available = total_memory()
        if available is not None and needed > available // 2:
            raise DataError(
                f"confusion matrices of {self.n_annotators} annotators, {self.n_classes} labels by {states} states, "
                f"need {needed / 1e9:.1f} GB, this machine has {available / 1e9:.1f}; use a method without confusion "
                "matrices, such as OneCoinDawidSkene or Wawa"
            )


def confusion(table: Floats) -> Floats:
    """Confusion matrices T[annotator, class, label], rows summing to 1, from counts [annotator, label, class].

    A row without counts is uniform.
    """
    total = table.sum(axis=1, keepdims=True)
    filled = np.divide(table, total, out=np.full_like(table, 1.0 / max(table.shape[1], 1)), where=total > 0)
    return np.ascontiguousarray(filled.transpose(0, 2, 1))


def resolve_threads(n_jobs: int | None) -> int:
    """Number of threads for scikit-learn's ``n_jobs``: None is 1, -1 all cores, -2 all but one."""
    threads = 1 if n_jobs is None else int(n_jobs)
    return max(1, n_cores() + 1 + threads) if threads < 0 else max(1, threads)
