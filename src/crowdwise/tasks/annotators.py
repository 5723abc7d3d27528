"""How good every annotator is, and how each one errs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crowdwise.agreement import ChanceTest, Ordered, Scale, chance_test, scale_of
from crowdwise.quality import ungraded
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
    chance: ChanceTest
    """Whether annotators agree more than by chance. If not, and no gold informs the method, nobody is graded."""
    scale: Scale | None
    """The order of the classes, if they are ordered."""
    graded: bool = True


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
    with observer.step("inferring labels"):
        fitted = fit(method, export.annotations, export.gold if asked else None, seed, models=export.models)
        times = {"timestamps": export.timestamps, "durations": export.durations}
        scale = scale_of(export.annotations, ordered)
        table = annotator_table(export.annotations, fitted.model, **times, gold=export.gold, ordered=ordered)
        chance = chance_test(export.annotations, ordered=ordered, random_state=seed)
        graded = not chance.within_chance or bool(asked and export.gold)
        table = table if graded else ungraded(table)
    if out is not None:
        write_together({out: table})
    return Judged(fitted.name, fitted.reason, table, out, chance, scale, graded)
