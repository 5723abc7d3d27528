"""`crowdwise aggregate`, `agreement` and `annotators`: labels, and an opinion on who gave them, from one table."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise import agreement as measures
from crowdwise import quality
from crowdwise.aggregation import recommend
from crowdwise.aggregation.core.base import Aggregator, choose
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.cli._console import complain, say, show_facts, show_table
from crowdwise.cli._gold import read_gold
from crowdwise.errors import AnnotationError, ConfigError, DataError, suggest
from crowdwise.readers import Export, TableRead, bare_suffix, format_of, read, write_labels, write_table
from crowdwise.readers.write import LABEL_STUDIO, output_format
from crowdwise.registry import AGGREGATORS
from crowdwise.streaming.output import Figures

AUTO = "auto"
SHOWN = 30  # annotators on the screen
TABLES = 1e9  # bytes of confusion matrices above which the annotators' table is made from the posterior alone

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class Fit:
    """A method, fitted to a crowd."""

    name: str
    reason: str | None  # why it was chosen, where nobody chose it
    model: Aggregator

    @property
    def labels(self) -> Codes:
        """Code of the most probable class of every instance, (n,); the first of equals."""
        return choose(self.model.posterior_, "first", np.random.default_rng(0))


def aggregate(
    path: Path,
    out: Path,
    annotators_out: Path | None,
    method: str,
    reading: Mapping[str, Any],
    *,
    to: str,
    gold: Path | None,
    gold_column: str | None,
    proba: bool,
    seed: int,
) -> None:
    """Write the labels of all instances and the annotators' table, and print a summary."""
    to = output_format(out, to)
    annotators_out = beside(out) if annotators_out is None else annotators_out
    check_outputs([out, annotators_out], [path, gold])
    check_method(method)
    with _working(f"reading {path.name}"):
        read = read_export(path, reading, gold=gold_column, details=to == LABEL_STUDIO)
        crowd, known, remark = read.annotations, read.gold, ""
        if gold is not None:
            found = read_gold(gold, crowd, reading["instance"], reading["label"])
            crowd, known, remark = found.annotations, found.gold, found.message
    say(as_options(read.message))
    if remark:
        say(remark)
    informed = gold is not None or gold_column is not None  # a column that merely looks like gold only measures
    with _working("inferring labels"), short_warnings():
        fitted = _fit(method, crowd, known if informed else None, seed)
        votes = crowd.votes()
        majority = votes.argmax(axis=1)
        labels = fitted.labels
        accuracy = _accuracy(fitted, crowd, known, majority, seed, informed=informed) if known else None
        tables = {out: label_table(crowd, fitted, proba=proba), annotators_out: annotator_table(crowd, fitted.model)}
        alpha = measures.krippendorff_alpha(crowd, n_bootstrap=0).value
        raw = measures.raw_agreement(crowd, n_bootstrap=0).value
    _write(tables, {out: partial(write_labels, to=to, export=read, model=fitted.name)})
    tied = int(np.count_nonzero((votes == votes.max(axis=1)[:, None]).sum(axis=1) > 1))
    changed = int(np.count_nonzero(labels != majority))
    sizes = len(crowd), crowd.n_instances, crowd.n_annotators
    facts = {"method": fitted.name, "why": fitted.reason, "gold": accuracy, "labels": out, "annotators": annotators_out}
    show_summary(sizes, Figures(tied, changed, alpha, raw), facts)


def show_summary(sizes: tuple[int, int, int], figures: Figures, facts: Mapping[str, Any]) -> None:
    """Counts of annotations, instances and annotators, agreement, ties, changes, and what else there is to say."""
    labels, n, annotators = sizes
    show_facts(
        "Summary",
        {
            "annotations": f"{labels:,}: {labels / n:.1f} per instance, {labels / annotators:.1f} per annotator",
            "agreement": f"Krippendorff's alpha {_number(figures.alpha)}, "
            f"raw agreement {_number(figures.raw_agreement)}",
            "ties": f"{_share(figures.ties, n)} have two or more classes with most votes",
            "method": facts["method"],
            "why": facts["why"],
            "changed": f"{_share(figures.changed, n)} have another label than by majority vote",
            **facts,
        },
    )


def agreement(
    path: Path,
    reading: Mapping[str, Any],
    levels: Sequence[Any],
    *,
    confidence: float,
    n_bootstrap: int,
    seed: int,
) -> None:
    """Print every measure of agreement with its interval."""
    with _working(f"reading {path.name}"):
        read = read_export(path, reading, details=False)
    say(as_options(read.message))
    with _working("resampling instances"), short_warnings():
        report = measures.report(
            read.annotations, levels=levels, confidence=confidence, n_bootstrap=n_bootstrap, random_state=seed
        )
    low, high = f"{confidence:.0%} from", "to"
    rows = [[row.measure, *map(_number, (row.value, *row.interval))] for row in report.rows]
    say(f"two labels or more: {_share(report.n, read.annotations.n_instances)}")
    show_table("Agreement", ("measure", "value", low, high), rows, right=("value", low, high))


def annotators(path: Path, out: Path | None, method: str, reading: Mapping[str, Any], *, seed: int) -> None:
    """Print the annotators, worst first, and write the whole table where ``out`` is given."""
    if out is not None:
        check_outputs([out], [path])
    check_method(method)
    with _working(f"reading {path.name}"):
        read = read_export(path, reading, details=False)
    say(as_options(read.message))
    with _working("inferring labels"), short_warnings():
        fitted = _fit(method, read.annotations, None, seed)
        table = annotator_table(read.annotations, fitted.model)
    if out is not None:
        _write({out: table})
    say(f"method: {fitted.name}{f'. {fitted.reason}' if fitted.reason else ''}")
    numbers = ("labels", "quality", "95% from", "to", "agreement", "spammer")
    show_table(
        "Annotators, worst first",
        ("annotator", *numbers, "worst class", "confuses"),
        [_annotator_row(row) for row in table.slice(0, SHOWN).to_pylist()],
        right=numbers,
    )
    if table.num_rows > SHOWN:
        rest = f"all of them are in {out}" if out is not None else "--out FILE writes all of them"
        say(f"The {SHOWN} worst of {table.num_rows:,} annotators are shown; {rest}.")
    elif out is not None:
        say(f"{out}: {table.num_rows:,} annotators")


def beside(out: Path) -> Path:
    """Where the annotators' table goes by default.

    >>> beside(Path("labels.csv.gz")).name, beside(Path("predictions.json")).name
    ('labels-annotators.csv.gz', 'predictions-annotators.csv')
    """
    suffix = re.search(r"\.[^.]+(\.gz|\.zst)?$", out.name, re.IGNORECASE)
    end = suffix.start() if suffix else len(out.name)
    document = bare_suffix(out) == "json"  # of labels for a tool; of annotators there is only the table
    return out.with_name(f"{out.name[:end]}-annotators{'.csv' if document else out.name[end:]}")


def label_table(crowd: Annotations, fitted: Fit, *, proba: bool) -> pa.Table:
    """One row per instance: instance, label, confidence, n_annotations; with ``proba`` also p_CLASS for each class."""
    posterior, labels = fitted.model.posterior_, fitted.labels
    columns: dict[str, Any] = {
        "instance": crowd.instance_vocabulary.arrow,
        "label": crowd.class_vocabulary.take(labels),
        "confidence": posterior[np.arange(len(labels)), labels],
        "n_annotations": crowd.labels_per_instance,
    }
    if proba:
        names = crowd.class_vocabulary.arrow.to_pylist()
        columns |= {f"p_{name}": np.ascontiguousarray(posterior[:, code]) for code, name in enumerate(names)}
    return pa.table(columns)


def annotator_table(crowd: Annotations, model: Aggregator) -> pa.Table:
    """`quality.annotators`, worst first."""
    small = 8.0 * crowd.n_annotators * crowd.n_classes**2 <= TABLES
    table = quality.annotators(crowd, model if small else model.posterior_)
    return table.sort_by([("annotator_quality", "ascending"), ("num_examples_labeled", "descending")])


@contextmanager
def options_named() -> Iterator[None]:
    """The library names arguments, here they are options."""
    try:
        yield
    except (AnnotationError, ConfigError) as error:
        message = re.sub(r"name it with (\w+)=\.\.\. .*$", r"name it with --\1 COLUMN", str(error))
        raise type(error)(as_options(message)) from error


def as_options(message: str) -> str:
    """A message in which arguments of the library become options of the command line.

    >>> as_options("take the first with several=first")
    'take the first with --several first'
    """
    return re.sub(r"\b(format|question|several|instance|annotator|label|gold)=(?:([\w-]+)|(?=\s))", _option, message)


def _option(match: re.Match[str]) -> str:
    name = {"gold": "gold-column"}.get(match[1], match[1])
    return f"--{name}" + (f" {match[2]}" if match[2] else "")


def read_export(path: Path, reading: Mapping[str, Any], *, details: bool, **more: Any) -> Export:
    """`readers.read`, with errors that name options."""
    with options_named():
        export = read(path, **reading, details=details, **more)
    _check_size(path, export)
    return export


def _check_size(path: Path, read: TableRead) -> None:
    """Refuse a table of n by C numbers that no memory holds: most often free text was taken for labels."""
    n, classes = read.annotations.n_instances, read.annotations.n_classes
    needed = 3 * 8 * n * classes  # votes, posterior, and one more while they are made
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this platform
        return
    if needed > available:
        raise DataError(
            f"{path}: {n:,} instances by {classes:,} classes need {needed / 1e9:.0f} GB, this machine has "
            f"{available / 1e9:.0f}; is {read.columns.get('label', 'this')!r} the column of labels? (--label COLUMN)"
        )


def check_method(method: str) -> None:
    if method != AUTO and method not in AGGREGATORS:
        raise ConfigError(f"unknown method {method!r}{suggest(method, [AUTO, *AGGREGATORS])}")


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path | None]) -> None:
    """Refuse what cannot be written before anything is computed."""
    for out in outputs:
        if bare_suffix(out) != "json":
            format_of(out)
        if out.is_dir():
            raise DataError(f"{out} is a folder; name a file")
        if any(path is not None and out.resolve() == path.resolve() for path in inputs):
            raise DataError(f"{out} would overwrite what is read; choose another name")
    if len({out.resolve() for out in outputs}) < len(outputs):
        raise DataError(f"{outputs[0]}: labels and annotators cannot go to one file")


def _write(tables: Mapping[Path, pa.Table], writers: Mapping[Path, Callable[[pa.Table, Path], None]] = {}) -> None:
    """Write all of the tables, or none; those that have a writer of their own, with it."""
    staged = {path: path.with_name(f".{os.getpid()}-{path.name}") for path in tables}
    try:
        for path, table in tables.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            writers.get(path, write_table)(table, staged[path])
        for path, ready in staged.items():
            os.replace(ready, path)
    finally:
        for ready in staged.values():
            ready.unlink(missing_ok=True)


def _fit(method: str, crowd: Annotations, gold: Mapping[Any, Any] | None, seed: int) -> Fit:
    if method == AUTO:
        chosen = recommend(crowd, gold, random_state=seed)
        return Fit(chosen.name, chosen.reason, chosen.estimator)
    return Fit(method, None, AGGREGATORS[method](random_state=seed).fit(crowd, gold))


def _accuracy(
    fitted: Fit, crowd: Annotations, gold: Mapping[Any, Any], majority: Codes, seed: int, *, informed: bool
) -> str | None:
    """Accuracy on gold labels that the method did not see: where it is told gold, on each half when told the other."""
    truth = gold_codes(crowd, gold)
    known = np.flatnonzero(truth >= 0) if truth is not None else np.empty(0, np.int64)
    if truth is None or not known.size:
        return None
    labels, how = fitted.labels, "not used otherwise"
    if informed:
        pairs = list(gold.items())
        for half, other in ((pairs[::2], pairs[1::2]), (pairs[1::2], pairs[::2])):
            held = np.flatnonzero(gold_codes(crowd, dict(half)) >= 0)  # type: ignore[operator]
            labels[held] = _fit(fitted.name, crowd, dict(other), seed).labels[held]
        how = "each half measured with the other half given"
    own, vote = (float(np.mean(codes[known] == truth[known])) for codes in (labels, majority))
    return f"accuracy {own:.1%} on {known.size:,} instances ({how}); majority vote {vote:.1%}"


def _annotator_row(row: Mapping[str, Any]) -> list[str]:
    numbers = ("annotator_quality", "annotator_quality_low", "annotator_quality_high")
    confuses = "-" if row["confused_class"] is None else f"{row['confused_class']} as {row['confused_with']}"
    return [
        str(row["annotator"]),
        f"{row['num_examples_labeled']:,}",
        *(_number(row[name]) for name in (*numbers, "agreement_with_consensus", "spammer_score")),
        "-" if row["worst_class"] is None else str(row["worst_class"]),
        confuses,
    ]


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} instances ({count / total:.1%})"


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A spinner on stderr where that is a terminal, else nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def short_warnings() -> Iterator[None]:
    """What methods warn about, each once and as one line, also where scikit-learn's classes carry it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        complain("warning", message)
