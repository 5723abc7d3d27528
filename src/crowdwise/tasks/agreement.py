"""How far annotators agree, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise import agreement as measures
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.reading import Reading, read_annotations


@dataclass(frozen=True)
class Agreement:
    """Every measure with its interval, and how many instances there are to compare."""

    report: measures.Report
    n_instances: int


def measure_agreement(
    path: str | Path,
    *,
    levels: Sequence[Any] = ("nominal",),
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    seed: int = 0,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Agreement:
    """Measure the agreement in a file of annotations; ``levels`` say what differences between labels mean."""
    export = read_annotations(Path(path), reading, observer, details=False)
    with observer.step("resampling instances"):
        report = measures.report(
            export.annotations, levels=levels, confidence=confidence, n_bootstrap=n_bootstrap, random_state=seed
        )
    return Agreement(report, export.annotations.n_instances)
