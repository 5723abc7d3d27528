"""A crowd on disk: what aggregators ask of a `Crowd`, as sums over partitions.

Every query is put to the partitions one by one (`crowdwise.streaming.passes`), and the answers are added up. So the
parameters of a model and the sums they are computed from are in memory, and annotations and posteriors are not. What would be
an array over instances is a `Question` instead, put again to each partition when its rows are needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.bayes_kernels import GladStep, glad_step
from crowdwise.aggregation.core.crowd import Crowd, Query, Role
from crowdwise.aggregation.core.kernels import Floats, Layout, Step
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.streaming.checkpoint import Checkpoint
from crowdwise.streaming.passes import Cells, Pass, Progress, Question, Sums, Workers, added, larger
from crowdwise.streaming.store import Store

TABLES = 5  # confusion tables of one size that a round holds, beside those of the workers


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
        self.scale = store.scale

    def for_member(self, model: Any) -> StreamedCrowd:
        part = copy.copy(self)
        part.checkpoint = None if self.checkpoint is None else self.checkpoint.of(model)
        return part

    # passes

    def sums(self, question: Question, combine: Callable[..., Sums] = added) -> Sums:
        """Put a question to all partitions, and add up."""
        self.progress.step(self.progress.title, len(self.store))
        return self.workers.sums(Pass(self.store, question, combine), self.progress.advance)

    def pieces(self, query: Query, *arguments: Any, take: Callable[[Any], None]) -> Sums:
        """As `total`, of a query that returns a piece and sums; pieces are taken in the order of the partitions."""
        self.progress.step(self.progress.title, len(self.store))
        task = Pass(self.store, Question(query, arguments), added)
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

    @cached_property
    def annotators_per_instance(self) -> npt.NDArray[np.int64]:
        return np.concatenate([self.store.load(number).annotators_per_instance for number in range(len(self.store))])

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
