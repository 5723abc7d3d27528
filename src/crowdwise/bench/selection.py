"""Records of benchmark runs: which metric to read, and which records count.

>>> metric_of("seconds").larger_is_better
False
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from crowdwise.errors import ConfigError, DataError, suggest

Record: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[str, str]
"""Column (setting) and row (method)."""


@dataclass(frozen=True)
class Metric:
    """A number in a record, with its label, direction and decimals."""

    name: str
    label: str
    larger_is_better: bool = True
    digits: int = 4
    cost: bool = False
    """Whether it depends on the machine rather than on the method alone."""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("test_accuracy", "test accuracy, %", digits=2),
        Metric("test_accuracy_at_best_agreement", "test accuracy at the best agreement, %", digits=2),
        Metric("heldout_log_likelihood", "log-likelihood of held-out labels"),
        Metric("heldout_agreement", "agreement with held-out labels"),
        Metric("validation_agreement", "agreement with validation labels"),
        Metric("labels_right", "training instances labelled right, %", digits=2),
        Metric("claimed", "mean confidence in these labels, %", digits=2),
        Metric("calibration_error", "calibration error of these labels", larger_is_better=False),
        Metric("transition_error", "mean absolute error of T(x)", larger_is_better=False),
        Metric("transition_row_error", "mean absolute error of the true class's row of T(x)", larger_is_better=False),
        Metric("edge_precision_before", "edges inside a group, before purifying"),
        Metric("edge_precision_after", "edges inside a group, after purifying"),
        Metric("edge_recall_before", "group mates among the neighbours, before purifying"),
        Metric("edge_recall_after", "group mates among the neighbours, after purifying"),
        Metric("seconds", "seconds", larger_is_better=False, digits=1, cost=True),
        Metric("peak_gpu_gb", "GPU memory, GB", larger_is_better=False, digits=2, cost=True),
        Metric("peak_memory_mb", "memory, MB", larger_is_better=False, digits=0, cost=True),
    )
}
HELD_OUT = ("heldout_log_likelihood", "heldout_agreement", "validation_agreement")
"""Metrics to rank data without true labels by, the most informative first."""


@dataclass(frozen=True)
class Runs:
    """The runs of one experiment by place and seed; a failed run that later succeeded has not failed."""

    experiment: str
    finished: Mapping[Place, Mapping[int, Record]]
    failed: Mapping[Place, Mapping[int, str]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for column, _ in (*self.finished, *self.failed)))

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for _, row in (*self.finished, *self.failed)))

    @property
    def records(self) -> list[Record]:
        return [record for seeds in self.finished.values() for record in seeds.values()]

    def of_row(self, row: str) -> list[Record]:
        return [record for (_, found), seeds in self.finished.items() if found == row for record in seeds.values()]

    def seeds(self, column: str) -> list[int]:
        """Every seed of any row of the column."""
        places = [*self.finished.items(), *self.failed.items()]
        return sorted({seed for (found, _), seeds in places if found == column for seed in seeds})


def metric_of(name: str) -> Metric:
    """A metric by the name of its field."""
    if name not in METRICS:
        raise ConfigError(f"unknown metric {name!r}{suggest(name, METRICS)}")
    return METRICS[name]


def select(records: Iterable[Record], experiment: str | None = None) -> Runs:
    """The runs of one experiment, each place and seed once.

    A repeated run (the same ``cell``) counts with its last success. Runs with different settings at the same place and
    seed are an error: their mean would be meaningless.
    """
    found: dict[tuple[str, str, int], list[Record]] = {}
    experiments: dict[str, None] = {}
    for number, record in enumerate(records, start=1):
        for name, kind in (("experiment", str), ("column", str), ("row", str), ("seed", int)):
            if not isinstance(record.get(name), kind):
                raise DataError(f"record {number} has no {name}, so it is not the record of a benchmark run")
        if experiment is None or record["experiment"] == experiment:
            experiments[record["experiment"]] = None
            found.setdefault((record["column"], record["row"], record["seed"]), []).append(record)
    if not experiments:
        raise DataError("there are no records" + (f" of experiment {experiment!r}" if experiment is not None else ""))
    if len(experiments) > 1:
        raise DataError(f"the records are of several experiments ({', '.join(experiments)}): choose one")
    finished: dict[Place, dict[int, Record]] = {}
    failed: dict[Place, dict[int, str]] = {}
    for (column, row, seed), repeated in found.items():
        good = [record for record in repeated if not record.get("error")]
        if len({_identity(record) for record in good}) > 1:
            raise DataError(
                f"{column}, {row}: seed {seed} was run with different settings; keep the records of one of them"
            )
        if good:
            finished.setdefault((column, row), {})[seed] = good[-1]
        else:
            failed.setdefault((column, row), {})[seed] = str(repeated[-1]["error"])
    return Runs(next(iter(experiments)), finished, failed)


def _identity(record: Record) -> str:
    """Identifies the settings of a record."""
    settings = [record.get(name) for name in ("method", "dataset", "data", "simulate", "parameters")]
    return str(record["cell"]) if "cell" in record else json.dumps(settings, sort_keys=True, default=str)


def value_of(record: Record, metric: str) -> float | None:
    value = record.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    number = float(value) if abs(value) < 1e300 else math.inf  # an integer may be larger than any float
    return number if math.isfinite(number) else None
