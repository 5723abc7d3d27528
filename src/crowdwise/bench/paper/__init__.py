"""The TAIDTM paper (S. Li et al., arXiv 2306.03116): its printed tables, beside its experiments and its theory.

``tables.json`` holds the figures as printed, errors included; ``notes.toml`` says which ones to distrust, and why.

>>> printed(1)["F-MNIST|AIDN-50%"]["TAIDTM"]
(89.62, 0.94)
>>> [note.text for note in notes(3, "Avg", "BLTM")]
['the mean of the three printed columns is 78.39, not 77.03; 78.39 is printed one line further down, at DL-MV']
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from crowdwise.errors import ConfigError

Printed: TypeAlias = tuple[float, float | None]
"""Mean and standard deviation in %; averages and Table 7 have no standard deviation."""

TITLES = {
    1: "Simulated crowds on F-MNIST and K-MNIST",
    2: "Simulated crowds on CIFAR10 and SVHN",
    3: "Real crowds: LabelMe, Music, CIFAR10-N",
    4: "Without the first, without the second transfer",
    5: "Functions from the annotator graph to the heads",
    6: "Similarities of annotators",
    7: "Number of neighbours k, with and without purifying",
    8: "A simulated crowd on ImageNet100",
}


@dataclass(frozen=True)
class Conditions:
    """How the paper trained the classifiers of a column (sections 5.1 and 5.2; appendix for ImageNet100)."""

    epochs: int
    lr: float
    seeds: int | None
    """Number of runs; None where the paper does not say."""
    optimiser: str = "sgd"
    batch_size: int = 128
    weight_decay: float | None = None
    """None where the paper does not say."""
    drops: tuple[int, ...] = ()
    """Epochs after which the rate is lowered; none: a constant rate."""
    dropout: float = 0.0
    classifier_start: str = "random"
    """Of the methods that start it in several ways."""


_SIMULATED = Conditions(60, 0.01, 3, weight_decay=1e-4, drops=(40, 55))
_CONDITIONS = {
    **dict.fromkeys(("F-MNIST", "K-MNIST", "CIFAR10", "SVHN", "CIFAR10-N"), _SIMULATED),
    **dict.fromkeys(("LabelMe", "Music"), Conditions(50, 0.01, 50)),
    "ImageNet100": Conditions(20, 0.2, None, weight_decay=1e-4, drops=(10, 15)),
}


@dataclass(frozen=True)
class Note:
    """A caveat about printed figures."""

    table: int
    text: str
    columns: Sequence[str] = ()
    """Empty: every column."""
    rows: Sequence[str] = ()
    """Empty: every row."""
    target: bool = False
    """Whether the figures remain a target for a reproduction."""

    def concerns(self, column: str, row: str) -> bool:
        return (not self.columns or column in self.columns) and (not self.rows or row in self.rows)


def printed(table: int) -> dict[str, dict[str, Printed]]:
    """The figures of a table (1 to 8) as {column: {row: (mean, standard deviation)}}, in the paper's order."""
    if table not in TITLES:
        raise ConfigError(f"the paper has tables 1 to {len(TITLES)}, not {table}")
    columns = next(content for name, content in _figures().items() if name.startswith(f"table{table}_"))
    return {
        column: {row: (figure["mean"], figure["std"]) for row, figure in rows.items()}
        for column, rows in columns.items()
    }


def table_of(experiment: str) -> int | None:
    """The number of the table that an experiment reproduces: 3 for "table3", None for other experiments."""
    return next((table for table in TITLES if experiment == f"table{table}"), None)


@cache
def all_notes() -> tuple[Note, ...]:
    """Every note on the paper's tables."""
    return tuple(Note(**note) for note in tomllib.loads(_read("notes.toml"))["notes"])


def notes(table: int, column: str, row: str) -> list[Note]:
    """The notes on one printed figure."""
    return [note for note in all_notes() if note.table == table and note.concerns(column, row)]


def conditions(column: str) -> Conditions | None:
    """The paper's conditions for a column; None for data that it does not use."""
    return _CONDITIONS.get(column.split("|")[0])


def is_average(column: str) -> bool:
    """Whether a column is the mean of others: "Avg" of all, "F-MNIST|Avg" of those that begin with F-MNIST."""
    return column.split("|")[-1] == "Avg"


def averaged(average: str, columns: Mapping[str, object]) -> list[str]:
    """The columns that an average is taken over.

    >>> averaged("Avg", printed(3))
    ['LabelMe', 'Music', 'CIFAR10-N']
    """
    prefix = average.removesuffix("Avg")
    return [column for column in columns if column.startswith(prefix) and not is_average(column)]


@cache
def _figures() -> dict[str, dict[str, dict[str, Any]]]:
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(_read("tables.json"))
    return content


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
