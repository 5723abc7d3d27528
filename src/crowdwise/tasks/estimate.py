"""Estimate class shares, accuracies, confusions or means from few gold labels and many others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crowdwise import judges
from crowdwise.errors import UsageError, spelled
from crowdwise.judges import Estimate
from crowdwise.tasks.aggregate import write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Paths, Reading, paths_of, read_annotations


def estimate(
    path: Paths,
    out: str | Path | None = None,
    *,
    gold: str | Path | None = None,
    gold_column: str | None = None,
    what: Any = "shares",
    of: str | None = None,
    assume: Any = "random",
    level: float = 0.95,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Estimate:
    """`crowdwise.judges.estimate` for a file of annotations; ``of`` is the id of an annotator or the name of an aggregator."""
    out = None if out is None else Path(out)
    if out is not None:
        check_outputs([out], [*paths_of(path), None if gold is None else Path(gold)])
    export = read_annotations(path, reading, observer, gold=gold, gold_column=gold_column, details=False)
    crowd, known = export.annotations, export.gold
    if not known:
        raise UsageError(f"gold labels of some instances are needed: {spelled('gold', 'FILE')}", parameter="gold")
    ids = {str(one): one for one in crowd.annotator_vocabulary.arrow.to_pylist()}
    with observer.step("estimating"):
        chosen = ids.get(of, of) if of is not None else None
        result = judges.estimate(crowd, known, what, chosen, assume=assume, level=level)
    if out is not None:
        write_together({out: result.to_table()})
    return result
