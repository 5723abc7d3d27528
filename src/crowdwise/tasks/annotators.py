"""How good every annotator is, and how each one errs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crowdwise.agreement import Ordered, Scale, scale_of
from crowdwise.figures import Evidence, Person, evidence, people, verdicts
from crowdwise.tasks.aggregate import annotator_table, fit, write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import AUTO, check_aggregator, check_outputs
from crowdwise.tasks.reading import Reading, read_annotations


@dataclass(frozen=True)
class Judged:
    """The annotators, judged by a method."""

    method: str
    reason: str | None
    """Why the method was chosen, where nobody chose it."""
    table: pa.Table
    """`crowdwise.quality.annotators`, worst first."""
    out: Path | None
    evidence: Evidence
    """Whether skills can be estimated: if not, why, and nobody is graded."""
    people: list[Person]
    """Skills and verdicts, in the order of the table; empty if nobody is graded."""
    scale: Scale | None
    """The order of the classes, if they are ordered."""


def judge_annotators(
    path: str | Path,
    out: str | Path | None = None,
    *,
    method: str = AUTO,
    gold: str | Path | None = None,
    gold_column: str | None = None,
    ordered: Ordered = "auto",
    seed: int = 0,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Judged:
    """Judge the annotators in a file of annotations, and write the table where ``out`` is given.

    ``gold``, a table of true classes of some instances or a column of the file, informs the method. ``ordered`` says
    whether the classes are ordered, and how.
    """
    path, out = Path(path), None if out is None else Path(out)
    if out is not None:
        check_outputs([out], [path])
    check_aggregator(method)
    export = read_annotations(path, reading, observer, gold=gold, gold_column=gold_column)
    asked = gold is not None or gold_column is not None or bool((reading or {}).get("gold"))
    crowd, known = export.annotations, export.gold if asked and export.gold else {}
    with observer.step("inferring labels"):
        fitted = fit(method, crowd, known or None, seed, models=export.models)
        times = {"timestamps": export.timestamps, "durations": export.durations}
        given = evidence(crowd, gold=len(known), ordered=ordered, models=export.models)
        table = annotator_table(crowd, fitted.model, given, **times, gold=export.gold, ordered=ordered)
    if out is not None:
        write_together({out: table})
    judged = verdicts(people(table.to_pylist(), {str(name) for name in export.models}), crowd.n_classes)
    return Judged(fitted.name, fitted.reason, table, out, given, judged, scale_of(crowd, ordered))
