"""The verb `agreement`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from crowdwise.cli._console import verb
from crowdwise.cli._reading import File, Seed, reads


class Level(StrEnum):
    """What differences between labels mean."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"
    ratio = "ratio"


@verb
@reads
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
    seed: Seed = 0,
    *,
    reading: dict[str, Any],
) -> None:
    """Say how far annotators agree, beyond chance, with confidence intervals."""
    from crowdwise.cli._aggregation import agreement as work

    levels = [one.value for one in level or [Level.nominal]]
    work(file, reading, levels, confidence=confidence, n_bootstrap=bootstrap, seed=seed)
