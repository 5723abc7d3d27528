"""Everything that a page shows, as plain data."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import crowdwise
from crowdwise.data.codes import count
from crowdwise.errors import ConfigError, suggest
from crowdwise.figures import Worth
from crowdwise.registry import AGGREGATORS
from crowdwise.report.analysis import analyse
from crowdwise.report.annotators import profiles, profiles_of_model
from crowdwise.report.headline import headline, sentence
from crowdwise.report.items import items, next_labels
from crowdwise.report.limits import PAGE_BYTES, RESERVED, number, size
from crowdwise.report.models import models
from crowdwise.report.overview import overview
from crowdwise.report.source import Source

if TYPE_CHECKING:
    from crowdwise.comparison import Comparison
    from crowdwise.methods.core.base import CrowdClassifier

BUDGET = 200  # labels to suggest
TRUE = "test_accuracy"
METRICS = {  # of a benchmark's records, the most telling first -> in words
    TRUE: "test accuracy, %",
    "heldout_log_likelihood": "log-likelihood of held-out labels",
    "heldout_agreement": "agreement with held-out labels",
    "validation_agreement": "agreement with validation labels",
}


@dataclass
class Content:
    """The parts of a page; empty parts are left out."""

    title: str
    made: str
    classes: list[str] = field(default_factory=list)
    worth: Worth | None = None
    """How many labels are right, which figure to believe, and why."""
    overview: dict[str, Any] = field(default_factory=dict)
    annotators: dict[str, Any] = field(default_factory=dict)
    map: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    items: dict[str, Any] = field(default_factory=dict)
    next: list[dict[str, Any]] = field(default_factory=list)
    training: list[dict[str, Any]] = field(default_factory=list)
    comparison: list[dict[str, Any]] = field(default_factory=list)
    compared: str = ""
    """What was compared, in words."""
    ranking: dict[str, Any] = field(default_factory=dict)
    """What `crowdwise compare` found."""
    state: str = ""
    """The progress of a run, in words."""
    note: str = ""
    """Why something is missing, and how to get it."""


def empty(title: str) -> Content:
    """A page without a crowd, for benchmarks and for runs whose labels are missing."""
    return Content(title, f"{datetime.date.today().isoformat()}, crowdwise {crowdwise.__version__}")


def gather(
    source: Source, *, method: str = "auto", budget: int = BUDGET, seed: int = 0, cost: float | None = None
) -> Content:
    """Everything the page says about a crowd; ``cost`` is the price of a label."""
    if method != "auto" and method not in AGGREGATORS:
        raise ConfigError(f"unknown method {method!r}{suggest(method, ['auto', *AGGREGATORS])}")
    if budget < 0:
        raise ConfigError(f"budget must be 0 or more, got {budget}")
    analysis = analyse(source, method, seed=seed)
    shown = profiles(analysis)
    page = empty(source.title)
    page.classes = [str(name) for name in source.annotations.classes.tolist()]
    page.worth = analysis.worth
    page.overview = overview(analysis, shown.rows, seed=seed)
    if shown.rows:
        why = "" if analysis.comparable else analysis.evidence.sentence
        page.annotators = {"rows": shown.rows, "total": shown.total, "comparable": analysis.comparable, "why": why}
    page.map = shown.chart or {}
    page.models = models(analysis, seed=seed)
    page.next = next_labels(analysis, budget) if budget and analysis.comparable else []
    page.overview["headline"] = headline(analysis, shown.people, page.next, cost)
    page.items = items(analysis, shown.shown, PAGE_BYTES - RESERVED - size(dataclasses.asdict(page)))
    return page


def about_model(model: CrowdClassifier, title: str) -> Content:
    """What a trained model alone knows about its annotators, for runs whose labels are missing."""
    page, shown = empty(title), profiles_of_model(model)
    page.classes = [str(name) for name in model.classes_.tolist()]
    page.annotators = {"rows": shown.rows, "total": shown.total, "comparable": True, "why": ""}
    page.map = shown.chart or {}
    return page


def about_comparison(found: Comparison, title: str) -> Content:
    """The ranking of `crowdwise compare`, what it recommends and why, and what to expect of it."""
    page, (columns, rows) = empty(title), found.table()
    metric = "accuracy on items of known truth, %" if found.gold else "agreement with held-out labels, %"
    page.ranking = {
        "columns": [sentence(metric if name in ("accuracy", "agreement") else name) for name in columns[:-1]],
        "rows": rows,
        "chart": [
            _compared(entry.title, metric, 100 * entry.score, 100 * entry.error, entry.folds) for entry in found.entries
        ],
        "judged": found.judged_by,
        "warning": ""
        if found.gold
        else "There is no truth to compare with: methods are judged by labels of the crowd that they were not shown. That "
        "ranks them, but it is not the share of right predictions.",
        "reason": found.reason,
        "expected": found.expectation,
        "next": found.next_step,
        "remarks": found.remarks(),
    }
    return page


def training(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The epochs of a run, numbered through all of its stages."""
    return [
        {
            "step": step,
            "stage": str(record["stage"]),
            "epoch": int(record["epoch"]) + 1,
            "loss": number(record.get("loss"), 4),
            "agreement": number(record.get("agreement"), 4),
            "seconds": number(record.get("seconds"), 4),
        }
        for step, record in enumerate(history, start=1)
    ]


def comparison(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and spread of each ``row`` (method) in each ``column`` (setting), by the first of `METRICS` that the column has.

    >>> comparison([{"column": "digits", "row": "CE", "test_accuracy": value} for value in (80.0, 82.0)])[0]["mean"]
    81.0
    """

    def place(record: Mapping[str, Any]) -> tuple[str, str]:
        return str(record["column"]), str(record["row"])

    rows = []
    for column, group in groupby(sorted(records, key=place), lambda record: str(record["column"])):
        own = list(group)
        metric = next((name for name in METRICS if any(record.get(name) is not None for record in own)), TRUE)
        known = [record for record in own if record.get(metric) is not None]
        for row, runs in groupby(known, lambda record: str(record["row"])):
            values = [float(record[metric]) for record in runs]
            spread = stdev(values) if len(values) > 1 else None
            digits = 2 if metric == TRUE else 4
            bar = _compared(row, METRICS[metric], fmean(values), spread, len(values), digits)
            rows.append({"column": column, **bar, "digits": digits, "spread": number(spread, 4)})
    return rows


def _compared(row: str, metric: str, mean: float, spread: float | None, runs: int, digits: int = 2) -> dict[str, Any]:
    """A method in the chart of several: its mean, and that less or more its spread."""
    ends = {"low": number(mean - (spread or 0), digits), "high": number(mean + (spread or 0), digits)}
    about = {"row": row, "metric": metric, "runs": runs}
    return about | {"mean": number(mean, digits), "spread": number(spread, digits)} | ends


def compared(records: Sequence[Mapping[str, Any]]) -> str:
    """What was compared, in a sentence or two.

    >>> compared([{"test_accuracy": 80.0}, {"error": "out of memory"}])
    'From 1 run; 1 failed.'
    """
    known = sum(any(record.get(name) is not None for name in METRICS) for record in records)
    runs = f"From {count(known, 'runs')}" + (f"; {len(records) - known:,} failed." if len(records) > known else ".")
    if known and not any(record.get(TRUE) is not None for record in records):
        runs += (
            " There is no truth to compare with: methods are judged by how well they foretell labels of the crowd that they "
            "were not shown. That ranks them, but it is not the share of right predictions."
        )
    return runs
