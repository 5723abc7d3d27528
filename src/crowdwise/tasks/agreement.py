"""How far annotators agree, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import agreement as measures
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.tasks.aggregate import write_together
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Reading, read_annotations


@dataclass(frozen=True)
class Agreement:
    """Every measure with its interval, and how many instances there are to compare."""

    report: measures.Report
    n_instances: int
    gold: float | None = None
    """Share of the labels that are those of gold, where there is gold; of ``gold_labels`` labels."""
    gold_labels: int = 0
    out: Path | None = None


def measure_agreement(
    path: str | Path,
    out: str | Path | None = None,
    *,
    levels: Sequence[Any] = ("nominal",),
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    seed: int = 0,
    gold_column: str | None = None,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Agreement:
    """Measure the agreement in a file of annotations, and write the table where ``out`` is given.

    ``levels`` say what differences between labels mean.
    """
    path, out = Path(path), None if out is None else Path(out)
    if out is not None:
        check_outputs([out], [path])
    export = read_annotations(path, reading, observer, gold_column=gold_column, details=False)
    with observer.step("resampling instances"):
        report = measures.report(
            export.annotations, levels=levels, confidence=confidence, n_bootstrap=n_bootstrap, random_state=seed
        )
    if out is not None:
        write_together({out: report.to_table()})
    crowd = export.annotations
    truth = gold_codes(crowd, export.gold) if export.gold else None
    said = np.empty(0, bool) if truth is None else (crowd.label == truth[crowd.instance])[truth[crowd.instance] >= 0]
    return Agreement(report, crowd.n_instances, float(said.mean()) if said.size else None, said.size, out)
