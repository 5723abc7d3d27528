"""What a table of results holds; `crowdwise.bench.tables` fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from crowdwise.bench import paper
from crowdwise.bench.selection import Metric, Place

Mark: TypeAlias = Literal["", "best", "like best"]


@dataclass(frozen=True)
class TableColumn:
    """One setting, measured by one metric. Columns of a group, such as the noise rates of a data set, stand together."""

    name: str
    metric: Metric
    group: str = ""
    label: str = ""
    average: bool = False


@dataclass(frozen=True)
class TableCell:
    """One row in one column."""

    values: Mapping[int, float] = field(default_factory=dict)
    """By seed; for an average, over the seeds that all its columns have."""
    mean: float | None = None
    sd: float | None = None
    """Standard deviation (n - 1); None with one seed, and for averages."""
    status: Literal["", "failed", "not run", "not measured"] = ""
    mark: Mark = ""
    p: float | None = None
    """Of the paired t-test against the best of the column."""
    p_holm: float | None = None
    """The same after Holm's correction for the rows of the column."""
    rank: int | None = None
    departures: tuple[str, ...] = ()
    """Where the conditions differ from the paper's."""
    printed: paper.Printed | None = None
    notes: tuple[paper.Note, ...] = ()
    """On the printed figure."""

    @property
    def difference(self) -> float | None:
        """Ours minus the printed one."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed[0]

    @property
    def near(self) -> bool | None:
        """Whether ours lies within 2 max(printed sd, 0.5) of the printed figure; None if that is no target."""
        if self.difference is None or self.printed is None or not all(note.target for note in self.notes):
            return None
        return abs(self.difference) <= 2 * max(self.printed[1] or 0.0, 0.5)


@dataclass(frozen=True)
class ResultTable:
    """Rows and columns of results; `crowdwise.bench.rendering` writes it as text, Markdown, LaTeX or CSV."""

    title: str
    experiment: str
    columns: tuple[TableColumn, ...]
    rows: tuple[str, ...]
    cells: Mapping[Place, TableCell]
    """By name of the column and row."""
    notes: tuple[str, ...] = ()
    """Lines below the table."""
    not_run: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
