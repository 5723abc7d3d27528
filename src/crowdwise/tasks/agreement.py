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
    chance: measures.ChanceTest
    """Whether annotators agree more than by chance; on the scale of the classes if they are ordered."""
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
    ordered: measures.Ordered = "auto",
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Agreement:
    """Measure the agreement in a file of annotations, and write the table where ``out`` is given.

    ``levels`` say what differences between labels mean; ``ordered``, whether the classes are ordered, and how.
    """
    path, out = Path(path), None if out is None else Path(out)
    if out is not None:
        check_outputs([out], [path])
    export = read_annotations(path, reading, observer, gold_column=gold_column, details=False)
    crowd = export.annotations
    with observer.step("resampling instances"):
        resampling: dict[str, Any] = {"confidence": confidence, "n_bootstrap": n_bootstrap, "random_state": seed}
        report = measures.report(crowd, levels=levels, ordered=ordered, **resampling)
        chance = measures.chance_test(crowd, ordered=ordered, random_state=seed)
    if out is not None:
        write_together({out: report.to_table()})
    truth = gold_codes(crowd, export.gold) if export.gold else None
    right = np.empty(0, bool)
    if truth is not None:
        known = truth[crowd.instance] >= 0
        right = (crowd.label == truth[crowd.instance])[known]
    share = float(right.mean()) if right.size else None
    return Agreement(report, crowd.n_instances, chance, share, right.size, out)
