"""The figures that the TAIDTM paper prints (S. Li et al., arXiv 2306.03116), under which conditions, and where they err.

``paper_tables.json`` holds them as printed, errors included; `NOTES` says which ones to distrust, and why.

>>> printed(1)["F-MNIST|AIDN-50%"]["TAIDTM"]
(89.62, 0.94)
>>> [note.text for note in notes(3, "Avg", "BLTM")]
['the mean of the three printed columns is 78.39, not 77.03; 78.39 is printed one line further down, at DL-MV']
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeAlias

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
    """How the paper trained the classifiers of a column (section 5.1, appendix for ImageNet100)."""

    epochs: int
    lr: float
    seeds: int | None
    """Number of runs; None: not stated."""


_CONDITIONS = {
    "F-MNIST": Conditions(60, 0.01, 3),
    "K-MNIST": Conditions(60, 0.01, 3),
    "CIFAR10": Conditions(60, 0.01, 3),
    "SVHN": Conditions(60, 0.01, 3),
    "CIFAR10-N": Conditions(60, 0.01, 3),
    "LabelMe": Conditions(50, 0.01, 50),
    "Music": Conditions(50, 0.01, 50),
    "ImageNet100": Conditions(20, 0.2, None),
}


@dataclass(frozen=True)
class Note:
    """Something to know about printed figures."""

    table: int
    text: str
    columns: tuple[str, ...] = ()
    """Empty: every column."""
    rows: tuple[str, ...] = ()
    """Empty: every row."""
    target: bool = False
    """Whether the figures are a target for a reproduction all the same."""

    def concerns(self, column: str, row: str) -> bool:
        return (not self.columns or column in self.columns) and (not self.rows or row in self.rows)


_REAL = ("LabelMe", "Music", "CIFAR10-N")
_KMNIST = tuple(f"K-MNIST|AIDN-{rate}%" for rate in (10, 20, 30, 40, 50))
NOTES = (
    Note(
        1,
        "AggNet and MBEM have the same figures in all columns of K-MNIST: one of the two rows is a copy",
        columns=(*_KMNIST, "K-MNIST|Avg"),
        rows=("AggNet", "MBEM"),
    ),
    Note(
        1,
        "the mean of the five printed columns is 94.63, not 94.30, and thus above UnionNet's 94.47",
        columns=("K-MNIST|Avg",),
        rows=("CrowdLayer",),
    ),
    Note(
        2,
        "a standard deviation of 10.18 over three runs: single runs tell nothing here",
        columns=("CIFAR10|AIDN-50%",),
        rows=("CrowdLayer",),
        target=True,
    ),
    Note(
        3,
        "the mean of the three printed columns is 78.39, not 77.03; 78.39 is printed one line further down, at DL-MV",
        columns=("Avg",),
        rows=("BLTM",),
    ),
    Note(
        3,
        "the mean of the three printed columns is 74.33, not 78.39, which is BLTM's",
        columns=("Avg",),
        rows=("DL-MV",),
    ),
    Note(
        3,
        "Table 4 prints other figures for BLTM on the same data",
        columns=_REAL,
        rows=("BLTM",),
        target=True,
    ),
    Note(
        4,
        "the same figures stand in Table 5 at 'TAIDTM w/ GAT', and Table 3 has others for BLTM: one table was filled "
        "from another",
        columns=_REAL,
        rows=("BLTM",),
    ),
    Note(
        4,
        "the same figures stand in Table 5 at 'TAIDTM w/ Deepwalk': one table was filled from the other",
        columns=_REAL,
        rows=("TAIDTM-FT",),
    ),
    Note(
        5,
        "the same figures stand in Table 4 at BLTM: one table was filled from the other",
        rows=("TAIDTM w/ GAT",),
    ),
    Note(
        5,
        "the same figures stand in Table 4 at TAIDTM-FT: one table was filled from the other",
        rows=("TAIDTM w/ Deepwalk",),
    ),
    Note(7, "printed without a standard deviation and without the number of runs", target=True),
)


def printed(table: int) -> dict[str, dict[str, Printed]]:
    """The figures of a table (1 to 8) as {column: {row: (mean, standard deviation)}}, in the paper's order."""
    if table not in TITLES:
        raise ConfigError(f"the paper has tables 1 to {len(TITLES)}, not {table}")
    columns = next(content for name, content in _file().items() if name.startswith(f"table{table}_"))
    return {
        column: {row: (figure["mean"], figure["std"]) for row, figure in rows.items()}
        for column, rows in columns.items()
    }


def table_of(experiment: str) -> int | None:
    """The number of the table that an experiment repeats: 3 for "table3", None for experiments of one's own."""
    return next((table for table in TITLES if experiment == f"table{table}"), None)


def notes(table: int, column: str, row: str) -> list[Note]:
    """What to know about one printed figure."""
    return [note for note in NOTES if note.table == table and note.concerns(column, row)]


def conditions(column: str) -> Conditions | None:
    """The paper's conditions for a column; None where it says nothing of such data."""
    return _CONDITIONS.get(column.split("|")[0])


def is_average(column: str) -> bool:
    """Whether a column is the mean of others: "Avg" of all, "F-MNIST|Avg" of those that begin with F-MNIST."""
    return column.split("|")[-1] == "Avg"


def averaged(average: str, columns: Mapping[str, object]) -> list[str]:
    """The columns that an average is taken over.

    >>> averaged("Avg", printed(3))
    ['LabelMe', 'Music', 'CIFAR10-N']
    """
    begin = average.removesuffix("Avg")
    return [column for column in columns if column.startswith(begin) and not is_average(column)]


@cache
def _file() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    text = resources.files("crowdwise.bench").joinpath("paper_tables.json").read_text(encoding="utf-8")
    content: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(text)
    return content
