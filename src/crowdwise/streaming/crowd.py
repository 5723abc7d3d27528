"""A crowd on disk: what aggregators ask of a `Crowd`, as sums over partitions.

Every query is put to the partitions one by one (`crowdwise.streaming.passes`), and the answers are added up. So the
parameters of a model and the sums they are computed from are in memory, and annotations and posteriors are not. What would be
an array over instances is a `Question` instead, put again to each partition when its rows are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.bayes_kernels import GladStep, glad_step
from crowdwise.aggregation.core.crowd import Crowd, Query, Role
from crowdwise.aggregation.core.kernels import Floats, Layout, Step
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.streaming.passes import Pass, Progress, Sums, Workers, added, larger
from crowdwise.streaming.store import Part, Store

if TYPE_CHECKING:
    from crowdwise.streaming.checkpoint import Checkpoint

TABLES = 5  # confusion tables of one size that a round holds, beside those of the workers
IN_PLACE = kernels.em_step, kernels.vote_step, kernels.confusion_counts  # can add to the first of the sums so far

Cells = tuple[npt.NDArray[np.uint32], tuple[int, int]]  # numbers in place of cells, and the shape of a table of them


@dataclass(frozen=True, eq=False)
class Question:
    """A query and its arguments: the rows of an array over instances, for one partition at a time."""

    query: Query
    arguments: tuple[Any, ...] = ()  # of which questions are answered first
    by_instance: tuple[npt.NDArray[Any], ...] = ()  # further arguments (n,), of which a partition gets its own rows
    cells: Cells | None = None

    def ask(self, part: Part, **options: Any) -> Any:
        """The answer of a part."""
        layout = part.layout if self.cells is None else kernels.renumbered(part.layout, *self.cells)
        values = [value.of(part) if isinstance(value, Question) else value for value in self.arguments]
        return self.query(layout, *values, *(rows[part.start : part.stop] for rows in self.by_instance), **options)

    def of(self, part: Part) -> Any:
        """The rows of a part; those of a step are its posterior."""
        answer = self.ask(part)
        return answer.posterior if isinstance(answer, Step | GladStep) else answer


class StreamedCrowd(Crowd):
    """A `Store` as the crowd of an aggregator."""

    def __init__(
        self,
        store: Store,
        workers: Workers,
        memory: int,  # bytes that tables about annotators may take
        progress: Progress,
        checkpoint: Checkpoint | None = None,  # keeps states after rounds
        cells: Cells | None = None,
    ) -> None:
        self.store, self.workers, self.memory, self.progress = store, workers, memory, progress
        self.checkpoint, self.cells = checkpoint, cells
        self.n_annotations, self.n_instances = store.n_annotations, store.n_instances
        self.n_annotators, self.n_classes = store.n_annotators, store.n_classes

    # passes

    def sums(self, question: Question, combine: Callable[..., Sums] = added) -> Sums:
        """Put a question to all partitions, and add up."""
        self.progress.step(self.progress.title, len(self.store))
        return self.workers.sums(Pass(self.store, _answer, question, combine), self.progress.advance)

    def pieces(self, query: Query, *arguments: Any, take: Callable[[Any], None]) -> Sums:
        """As `total`, of a query that returns a piece and sums; pieces are taken in the order of the partitions."""
        self.progress.step(self.progress.title, len(self.store))
        task = Pass(self.store, _piece, Question(query, arguments), added)
        return self.workers.pieces(task, take, self.progress.advance)

    # queries

    def rows(self, query: Query, *arguments: Any) -> Any:
        return Question(query, tuple(None if isinstance(a, np.random.Generator) else a for a in arguments))

    def total(self, query: Query, *arguments: Any, largest: bool = False) -> Any:
        found = self.sums(Question(query, arguments, (), self.cells), larger if largest else added)
        return found if len(found) > 1 else found[0]

    def step(self, query: Query, *arguments: Any, out: Any = None) -> Step:
        asked: Any = Question(query, arguments, (), self.cells)
        return Step(asked, *self.sums(asked))

    def glad_step(self, ability: Floats, easiness: Floats) -> GladStep:
        asked: Any = Question(glad_step, (ability,), (easiness,))
        log_likelihood, by_ability, by_easiness = self.sums(asked)
        return GladStep(asked, log_likelihood, by_ability, np.concatenate(by_easiness))

    def renumbered(self, number: npt.NDArray[np.uint32], shape: tuple[int, int]) -> Crowd:
        cells = number, shape
        return StreamedCrowd(self.store, self.workers, self.memory, self.progress, self.checkpoint, cells)

    def ids(self, of: Role) -> npt.NDArray[Any]:
        return self.store.vocabulary(of).values

    @cached_property
    def labels_per_instance(self) -> npt.NDArray[np.int64]:
        return np.concatenate([self.store.load(number).labels_per_instance for number in range(len(self.store))])

    # limits

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
                f"raise the bound ({spelled('memory')}), or use a method without confusion matrices, such as one-coin",
                parameter="memory",
            )

    def check_vectors(self, number: int) -> None:
        needed = 8 * (self.n_annotators + self.n_instances) * number
        if needed > self.memory:
            raise DataError(
                f"parameters of each of the {self.n_instances:,} instances take {needed / 1e9:.1f} GB, and the bound on "
                f"memory is {self.memory / 1e9:.1f} GB; raise the bound ({spelled('memory')}), or use a method that learns "
                "about annotators only, such as one-coin",
                parameter="memory",
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
    if question.query not in IN_PLACE:
        return _summands(question.ask(part))
    found = _summands(question.ask(part, onto=None if total is None else total[0]))
    return found if total is None else (total[0], *found[1:])


def _piece(part: Part, _: None, question: Question) -> Any:
    return question.ask(part)


def _summands(answer: Any) -> Sums:
    """The sums in an answer: all of it but arrays over instances, which are left out or, in lists, strung together."""
    if isinstance(answer, GladStep):
        return answer.log_likelihood, answer.by_ability, [answer.by_easiness]
    if isinstance(answer, Step):
        return answer[1:]
    return answer if isinstance(answer, tuple) else (answer,)
