"""A crowd on disk: what aggregators ask of a `Crowd`, as sums over partitions.

A method in `crowdwise.aggregation` is a start, a round and an end that see the annotations only through a crowd. Here
every question is a pass (`crowdwise.streaming.passes`). So the parameters of a model and the sums they are computed from
are in memory, and annotations and posteriors are not. What would be an array over instances is a `Recipe` instead, which
says how to make it for one partition from parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.bayes_kernels import GladStep
from crowdwise.aggregation.core.crowd import Crowd, Tie
from crowdwise.aggregation.core.kernels import Floats, Step
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.passes import Function, Pass, Sums, Workers, added, larger
from crowdwise.streaming.store import Part, Store

TABLES = 5  # confusion tables of one size that a round holds, beside those of the workers


class Recipe:
    """An array over instances that is made for one partition at a time."""

    def of(self, part: Part) -> Any:
        """Its rows for the instances of a part."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Majority(Recipe):
    """Shares of votes, (n, C); weighted by annotator (R,) where there are weights."""

    weight: Floats | None = None

    def of(self, part: Part) -> Floats:
        return part.majority() if self.weight is None else part.weighted_majority(self.weight)


@dataclass(frozen=True, eq=False)
class Emission(Recipe):
    """The E step of `Crowd.em_step`, (n, K); cells are numbered anew where there are numbers."""

    emission: Floats
    prior: Floats
    number: npt.NDArray[np.uint32] | None = None

    def step(self, part: Part, onto: Floats | None) -> Step:
        layout = renumbered(part, self.number, self.emission.shape[:2]).layout
        return kernels.em_step(layout, self.emission, self.prior, onto=onto)

    def of(self, part: Part) -> Floats:
        return self.step(part, None).posterior


@dataclass(frozen=True, eq=False)
class Ratio(Recipe):
    """The E step of `Crowd.vote_step`, (n, C)."""

    ratio: Floats
    prior: Floats

    def step(self, part: Part, onto: Floats | None) -> Step:
        return kernels.vote_step(part.layout, self.ratio, self.prior, onto=onto)

    def of(self, part: Part) -> Floats:
        return self.step(part, None).posterior


@dataclass(frozen=True, eq=False)
class Glad(Recipe):
    """The E step of GLAD, (n, C)."""

    ability: Floats  # (R,)
    easiness: Floats  # (n,)

    def of(self, part: Part) -> Floats:
        return part.glad_step(self.ability, self.easiness[part.start : part.stop]).posterior


@dataclass(frozen=True, eq=False)
class Chosen(Recipe):
    """Codes of the most probable classes, (n,); the first of equals."""

    posterior: Recipe

    def of(self, part: Part) -> Any:
        return part.choose(self.posterior.of(part), "first", np.random.default_rng(0))


class StreamedCrowd(Crowd):
    """A `Store` as the crowd of an aggregator."""

    store: Store
    workers: Workers
    memory: int  # bytes that tables about annotators may take
    progress: Progress
    checkpoint: Any  # what keeps states after rounds, or None
    title: str  # of what is going on
    _number: npt.NDArray[np.uint32] | None  # of cells, where they are numbered anew
    _shape: tuple[int, int]  # (R, C), or that of the new numbers

    def __init__(self, store: Store, workers: Workers, memory: int, progress: Progress, checkpoint: Any = None) -> None:
        sizes: Any = store
        for name, value in {
            "annotations": sizes,
            "history": None,
            "earlier": None,
            "store": store,
            "workers": workers,
            "memory": memory,
            "progress": progress,
            "checkpoint": checkpoint,
            "title": "inferring labels",
            "_number": None,
            "_shape": (store.n_annotators, store.n_classes),
        }.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"StreamedCrowd({self.store.folder}, {len(self.store):,} annotations)"

    # passes

    def sums(self, function: Function, *arguments: Any, combine: Callable[..., Sums] | None = None) -> Sums:
        """Map a function over all partitions, and add up."""
        task = Pass(self.store, function, arguments, combine or added)
        self.progress.step(self.title, len(task))
        return self.workers.sums(task, self.progress.advance)

    def pieces(self, function: Function, *arguments: Any, take: Callable[[Any], None]) -> Sums:
        """Map a function that returns a piece and sums; pieces are taken in the order of the partitions."""
        task = Pass(self.store, function, arguments, added)
        self.progress.step(self.title, len(task))
        return self.workers.pieces(task, take, self.progress.advance)

    def titled(self, title: str) -> None:
        """What the progress bar calls the next passes."""
        object.__setattr__(self, "title", title)

    # what has no place in memory

    @property
    def layout(self) -> Any:  # type: ignore[override]
        """Not in memory."""
        raise ConfigError("this method reads all annotations at once, which a crowd on disk does not allow")

    @property
    def gold(self) -> npt.NDArray[np.int32]:
        """No gold labels."""
        return np.empty(0, np.int32)

    # sizes

    @property
    def n_labelled(self) -> int:  # type: ignore[override]
        """Every instance of a long table has a label."""
        return self.store.n_instances

    @cached_property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """All of them, (n,)."""
        return np.ones(self.store.n_instances, bool)

    @cached_property
    def labels_per_instance(self) -> npt.NDArray[np.int64]:  # type: ignore[override]
        """Number of annotations of every instance, (n,)."""
        found = np.empty(self.store.n_instances, np.int64)
        for number, part in enumerate(self.store.partitions):
            found[part.start : part.stop] = np.diff(self.store.indptr(number))
        return found

    @property
    def label_counts(self) -> npt.NDArray[np.int64]:  # type: ignore[override]
        """How often each annotator gave each label, (R, C)."""
        return self.store.label_counts

    # posteriors

    def majority(self) -> Any:
        """Recipe of the soft majority vote, (n, C)."""
        return Majority()

    def weighted_majority(self, weight: Floats) -> Any:
        """Recipe of the vote weighted by annotator, (n, C)."""
        return Majority(weight)

    def initial(self) -> Any:
        """Recipe of where to start, (n, C)."""
        return Majority()

    def choose(self, posterior: Any, tie: Tie, rng: np.random.Generator) -> Any:
        """Recipe of the most probable classes, (n,)."""
        return Chosen(posterior)

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        """The same annotations with other cells."""
        other = StreamedCrowd(self.store, self.workers, self.memory, self.progress, self.checkpoint)
        object.__setattr__(other, "_number", number)
        object.__setattr__(other, "_shape", shape)
        return other

    # sums

    def em_step(self, emission: Floats, prior: Floats, out: Any = None) -> Step:
        """One pass of EM over all partitions; the posterior is a recipe."""
        recipe: Any = Emission(emission, prior, self._number)
        return Step(recipe, *self.sums(_step, recipe))

    def vote_step(self, ratio: Floats, prior: Floats, out: Any = None) -> Step:
        """One pass of EM on votes; the posterior is a recipe."""
        recipe: Any = Ratio(ratio, prior)
        return Step(recipe, *self.sums(_step, recipe))

    def vote_hits(self, ratio: Floats) -> tuple[Floats, Floats]:
        """`vote_step` for several models at once."""
        hits, log_likelihoods = self.sums(_vote_hits, ratio)
        return hits, log_likelihoods

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        """One pass of GLAD; the posterior is a recipe."""
        by_ability, log_likelihood, by_easiness = self.sums(_glad, ability, easiness)
        recipe: Any = Glad(ability, easiness)
        return GladStep(recipe, log_likelihood, by_ability, np.concatenate(by_easiness))

    def counts(self, posterior: Any) -> Floats:
        """Expected confusion counts, (R, C, C)."""
        self.check_table(self.n_classes)
        return self.cell_counts(posterior)

    def cell_counts(self, posterior: Any) -> Floats:
        """`counts`, of whatever the cells of this crowd stand for."""
        (counts,) = self.sums(_counts, posterior, self._number, self._shape)
        return np.asarray(counts)

    def hard_counts(self, posterior: Any, tie: Tie, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
        """Counts and mass of the most probable classes, and the sum of their log-probabilities."""
        counts, mass, logs = self.sums(_hard_counts, posterior)
        return counts, mass, logs

    def hits(self, posterior: Any) -> Floats:
        """Expected number of right labels by annotator and label, (R, C)."""
        (hits,) = self.sums(_hits, posterior)
        return np.asarray(hits)

    def mass(self, posterior: Any) -> Floats:
        """Sum of a posterior over instances, (K,)."""
        (mass,) = self.sums(_mass, posterior)
        return np.asarray(mass)

    def agreements(self, labels: Any) -> Floats:
        """How many labels of every annotator agree with those of the instances, (R,)."""
        (agreements,) = self.sums(_agreements, labels)
        return np.asarray(agreements)

    def differ(self, labels: Any, others: Any) -> bool:
        """Whether any instance has another label."""
        (number,) = self.sums(_differences, labels, others)
        return bool(number)

    def distance(self, posterior: Any, other: Any) -> float:
        """Largest difference of two posteriors."""
        (largest,) = self.sums(_distance, posterior, other, combine=larger)
        return float(largest)

    def agreement_beyond_chance(self) -> float:
        """How much likelier than by chance two labels of an instance agree."""
        agreed, pairs = self.sums(_pairs)
        c = self.n_classes
        share = agreed / pairs if pairs else 1.0 / max(c, 1)
        return float((c * share - 1.0) / (c - 1.0)) if c > 1 else 1.0

    def check_table(self, states: int) -> None:
        """Refuse confusion tables that exceed the bound on memory."""
        needed = 8 * self.n_annotators * self.n_classes * states
        number = TABLES + self.workers.tables
        if number * needed > self.memory:
            raise DataError(
                f"confusion matrices of {self.n_annotators:,} annotators by {self.n_classes:,} classes take "
                f"{needed / 1e9:.2f} GB, {number} times, and the bound on memory is "
                f"{self.memory / 1e9:.2f} GB; allow more ({spelled('memory')}), or use a method without them, such as one-coin",
                parameter="memory",
            )

    # rounds

    def recalled(self, model: Any) -> tuple[Any, list[float], bool] | None:
        """Where an earlier process stood."""
        found: tuple[Any, list[float], bool] | None = None if self.checkpoint is None else self.checkpoint.load(self)
        self.titled(f"round {len(found[1]) + 1 if found else 1}")
        return found

    def remember(self, model: Any, state: Any, trace: list[float], converged: bool) -> None:
        """Keep the state for another process to go on with."""
        if self.checkpoint is not None:
            self.checkpoint.save(model, state, trace, converged)
        self.titled("last pass" if converged else f"round {len(trace) + 1}, objective {trace[-1]:.6g}")


def renumbered(part: Part, number: npt.NDArray[np.uint32] | None, shape: Any) -> Crowd:
    """A part whose cells are numbered anew where there are numbers."""
    return part if number is None else part.renumbered(number, tuple(shape))


def _first(total: Sums | None) -> Any:
    return None if total is None else total[0]


def _step(part: Part, total: Sums | None, recipe: Emission | Ratio) -> Sums:
    step = recipe.step(part, _first(total))
    return step.counts if total is None else total[0], step.mass, step.log_likelihood


def _counts(part: Part, total: Sums | None, posterior: Recipe, number: Any, shape: Any) -> Sums:
    layout = renumbered(part, number, shape).layout
    counts = kernels.confusion_counts(layout, posterior.of(part), _first(total))
    return (counts if total is None else total[0],)


def _hard_counts(part: Part, total: Sums | None, posterior: Recipe) -> Sums:
    return part.hard_counts(posterior.of(part), "first", np.random.default_rng(0))


def _hits(part: Part, total: Sums | None, posterior: Recipe) -> Sums:
    return (part.hits(posterior.of(part)),)


def _mass(part: Part, total: Sums | None, posterior: Recipe) -> Sums:
    return (part.mass(posterior.of(part)),)


def _agreements(part: Part, total: Sums | None, labels: Recipe) -> Sums:
    return (part.agreements(labels.of(part)),)


def _differences(part: Part, total: Sums | None, labels: Recipe, others: Recipe) -> Sums:
    return (int(np.count_nonzero(labels.of(part) != others.of(part))),)


def _distance(part: Part, total: Sums | None, posterior: Recipe, other: Recipe) -> Sums:
    return (part.distance(posterior.of(part), other.of(part)),)


def _pairs(part: Part, total: Sums | None) -> Sums:
    votes, number = part.votes(), part.labels_per_instance.astype(np.float64)
    return float(np.vdot(votes, votes - 1.0)), float(number @ (number - 1.0))


def _vote_hits(part: Part, total: Sums | None, ratio: Floats) -> Sums:
    return part.vote_hits(ratio)


def _glad(part: Part, total: Sums | None, ability: Floats, easiness: Floats) -> Sums:
    step = part.glad_step(ability, easiness[part.start : part.stop])
    return step.by_ability, step.log_likelihood, [step.by_easiness]
