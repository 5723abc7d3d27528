"""A crowd on disk: what aggregators ask of a `Crowd`, as sums over partitions.

Every question is put to the partitions one by one (`crowdwise.streaming.passes`), each of which is a crowd in memory, and
the answers are added up. So the parameters of a model and the sums they are computed from are in memory, and annotations
and posteriors are not. What would be an array over instances is a `Question` instead, put again to each partition when its
rows are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.bayes_kernels import GladStep
from crowdwise.aggregation.core.crowd import Crowd, Tie
from crowdwise.aggregation.core.kernels import Floats, Layout, Step
from crowdwise.errors import ConfigError, DataError
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.passes import Function, Pass, Sums, Workers, added, larger
from crowdwise.streaming.store import Part, Store

if TYPE_CHECKING:
    from crowdwise.streaming.checkpoint import Checkpoint

TABLES = 5  # confusion tables of one size that a round holds, beside those of the workers
IN_PLACE = ("em_step", "vote_step", "cell_counts")  # questions whose first sum is added to the one so far


@dataclass(frozen=True, eq=False)
class Question:
    """A method of `MemoryCrowd` and its arguments: the rows of an array over instances, for one partition at a time."""

    name: str
    arguments: tuple[Any, ...] = ()  # of which questions are answered first
    by_instance: tuple[npt.NDArray[Any], ...] = ()  # further arguments (n,), of which a partition gets its own rows
    cells: tuple[npt.NDArray[np.uint32], tuple[int, int]] | None = None  # numbers for the cells, see `Crowd.renumbered`

    def ask(self, part: Part, **options: Any) -> Any:
        """The answer of a part."""
        crowd = part if self.cells is None else part.renumbered(*self.cells)
        values = [value.of(part) if isinstance(value, Question) else value for value in self.arguments]
        rows = [values[part.start : part.stop] for values in self.by_instance]
        found = getattr(crowd, self.name)
        return found(*values, *rows, **options) if callable(found) else found

    def of(self, part: Part) -> Any:
        """The rows of a part; those of a step are its posterior."""
        answer = self.ask(part)
        return answer.posterior if isinstance(answer, Step | GladStep) else answer


@dataclass(eq=False, repr=False)
class StreamedCrowd(Crowd):
    """A `Store` as the crowd of an aggregator."""

    store: Store
    workers: Workers
    memory: int  # bytes that tables about annotators may take
    progress: Progress
    checkpoint: Checkpoint | None = None  # keeps states after rounds
    cells: tuple[npt.NDArray[np.uint32], tuple[int, int]] | None = None  # numbers for the cells, and their shape
    history: Floats | None = None
    earlier: Floats | None = None

    # passes

    def sums(self, function: Function, *arguments: Any, combine: Callable[..., Sums] = added) -> Sums:
        """Map a function over all partitions, and add up."""
        task = Pass(self.store, function, arguments, combine)
        self.progress.step(self.progress.title, len(task))
        return self.workers.sums(task, self.progress.advance)

    def pieces(self, function: Function, *arguments: Any, take: Callable[[Any], None]) -> Sums:
        """Map a function that returns a piece and sums; pieces are taken in the order of the partitions."""
        task = Pass(self.store, function, arguments, added)
        self.progress.step(self.progress.title, len(task))
        return self.workers.pieces(task, take, self.progress.advance)

    def _sum(self, name: str, *arguments: Any) -> Any:
        """The sum of the partitions' answers, of one number or array."""
        (total,) = self.sums(_answer, Question(name, arguments, (), self.cells))
        return total

    # sizes and ids

    @property
    def n_annotations(self) -> int:
        return self.store.n_annotations

    @property
    def n_instances(self) -> int:
        return self.store.n_instances

    @property
    def n_annotators(self) -> int:
        return self.store.n_annotators

    @property
    def n_classes(self) -> int:
        return self.store.n_classes

    @property
    def annotators(self) -> npt.NDArray[Any]:
        return self.store.vocabulary("annotators").values

    @property
    def instances(self) -> npt.NDArray[Any]:
        return self.store.vocabulary("instances").values

    @property
    def classes(self) -> npt.NDArray[Any]:
        return self.store.vocabulary("classes").values

    @cached_property
    def labels_per_instance(self) -> npt.NDArray[np.int64]:
        return np.concatenate([self.store.load(k).labels_per_instance for k in range(len(self.store))])

    @cached_property
    def label_counts(self) -> npt.NDArray[np.int64]:
        return np.asarray(self._sum("label_counts"))

    # arrays over instances

    def majority(self) -> Any:
        return Question("majority")

    def weighted_majority(self, weight: Floats) -> Any:
        return Question("weighted_majority", (weight,))

    def initial(self) -> Any:
        return Question("majority")

    def choose(self, posterior: Any, tie: Tie, rng: np.random.Generator) -> Any:
        return Question("choose", (posterior, tie, None))

    # sums over annotations

    def em_step(self, emission: Floats, prior: Floats, out: Any = None) -> Step:
        asked: Any = Question("em_step", (emission, prior), (), self.cells)
        return Step(asked, *self.sums(_answer, asked))

    def vote_step(self, ratio: Floats, prior: Floats, out: Any = None) -> Step:
        asked: Any = Question("vote_step", (ratio, prior))
        return Step(asked, *self.sums(_answer, asked))

    def vote_hits(self, ratio: Floats) -> tuple[Floats, Floats]:
        hits, log_likelihoods = self.sums(_answer, Question("vote_hits", (ratio,)))
        return hits, log_likelihoods

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        asked: Any = Question("glad_step", (ability,), (easiness,))
        log_likelihood, by_ability, by_easiness = self.sums(_answer, asked)
        return GladStep(asked, log_likelihood, by_ability, np.concatenate(by_easiness))

    def counts(self, posterior: Any) -> Floats:
        self.check_table(self.n_classes)
        return self.cell_counts(posterior)

    def cell_counts(self, posterior: Any) -> Floats:
        return np.asarray(self._sum("cell_counts", posterior))

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        return replace(self, cells=(number, shape))

    def hard_counts(self, posterior: Any, tie: Tie, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
        counts, mass, logs = self.sums(_answer, Question("hard_counts", (posterior, tie, None)))
        return counts, mass, logs

    def hits(self, posterior: Any) -> Floats:
        return np.asarray(self._sum("hits", posterior))

    def mass(self, posterior: Any) -> Floats:
        return np.asarray(self._sum("mass", posterior))

    def agreements(self, labels: Any) -> Floats:
        return np.asarray(self._sum("agreements", labels))

    def differ(self, labels: Any, others: Any) -> bool:
        return bool(self._sum("differ", labels, others))

    def distance(self, posterior: Any, other: Any) -> float:
        (largest,) = self.sums(_answer, Question("distance", (posterior, other)), combine=larger)
        return float(largest)

    def pairs(self) -> tuple[float, float]:
        agreed, pairs = self.sums(_answer, Question("pairs"))
        return agreed, pairs

    # what has no place in memory

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        raise ConfigError("this method reads all annotations at once, which a crowd on disk does not allow")

    @property
    def gold(self) -> npt.NDArray[np.int32]:
        return np.empty(0, np.int32)  # a streamed table has none

    def check_table(self, states: int) -> None:
        needed = 8 * self.n_annotators * self.n_classes * states
        number = TABLES + self.workers.tables
        if number * needed > self.memory:
            raise DataError(
                f"confusion matrices of {self.n_annotators:,} annotators by {self.n_classes:,} classes take "
                f"{needed / 1e9:.2f} GB, {number} times, and the bound on memory is {self.memory / 1e9:.2f} GB; "
                "raise the bound, or use a method without confusion matrices, such as one-coin"
            )

    def check_vectors(self, number: int) -> None:
        needed = 8 * (self.n_annotators + self.n_instances) * number
        if needed > self.memory:
            raise DataError(
                f"parameters of each of the {self.n_instances:,} instances take {needed / 1e9:.1f} GB, and the bound on "
                f"memory is {self.memory / 1e9:.1f} GB; raise the bound, or use a method that learns about annotators "
                "only, such as one-coin"
            )

    # rounds

    def recalled(self, model: Any) -> tuple[Any, list[float], bool] | None:
        found = None if self.checkpoint is None else self.checkpoint.load(self)
        self.progress.title = f"round {len(found[1]) + 1 if found else 1}"
        return found

    def remember(self, model: Any, state: Any, trace: list[float], converged: bool) -> None:
        if self.checkpoint is not None:
            self.checkpoint.save(state, trace, converged)
        self.progress.title = "last pass" if converged else f"round {len(trace) + 1}, objective {trace[-1]:.6g}"


def _answer(part: Part, total: Sums | None, question: Question) -> Sums:
    """What a part has to add to the sums so far; a large table is added in place."""
    if question.name not in IN_PLACE:
        return _summands(question.ask(part))
    found = _summands(question.ask(part, onto=None if total is None else total[0]))
    return found if total is None else (total[0], *found[1:])


def _summands(answer: Any) -> Sums:
    """The sums in an answer: all of it but rows of instances, of which lists are strung together."""
    match answer:
        case Step():
            return answer.counts, answer.mass, answer.log_likelihood
        case GladStep():
            return answer.log_likelihood, answer.by_ability, [answer.by_easiness]
        case tuple():
            return answer
    return (answer,)
