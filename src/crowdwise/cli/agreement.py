"""The verb `agreement`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli.aggregate import Annotator, File, Format, Instance, Label, Models, Question, Seed, Several


class Level(StrEnum):
    """What differences between labels mean."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"
    ratio = "ratio"


@verb
def agreement(
    file: File,
    level: Annotated[
        list[Level] | None,
        typer.Option(help="What labels are, for Krippendorff's alpha; nominal by default. May be repeated."),
    ] = None,
    confidence: Annotated[float, typer.Option(min=0.01, max=0.999, help="Confidence of the intervals.")] = 0.95,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="How often instances are resampled for the intervals; 0: no intervals.")
    ] = 1000,
    instance: Instance = None,
    annotator: Annotator = None,
    label: Label = None,
    format: Format = "auto",
    question: Question = None,
    several: Several = "error",
    models: Models = True,
    seed: Seed = 0,
) -> None:
    """Say how far annotators agree, beyond chance, with confidence intervals."""
    from crowdwise.cli._aggregation import agreement as work

    columns = {"instance": instance, "annotator": annotator, "label": label}
    reading = {"format": format, "question": question, "several": several, "models": models}
    levels = [one.value for one in level or [Level.nominal]]
    work(file, columns | reading, levels, confidence=confidence, n_bootstrap=bootstrap, seed=seed)
