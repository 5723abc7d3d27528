"""The verb `simulate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb


class Process(StrEnum):
    """How simulated annotators err."""

    aidn = "aidn"
    hammer_spammer = "hammer-spammer"
    one_coin = "one-coin"
    adversarial = "adversarial"
    correlated = "correlated"


@verb
def simulate(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A data set with true classes, e.g. digits.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Annotation table to write: csv, tsv, jsonl, parquet or arrow.")
    ] = Path("annotations.csv"),
    process: Annotated[
        Process,
        typer.Option(
            metavar="PROCESS",
            help="aidn: errors depend on annotator and instance (TAIDTM paper); hammer-spammer: some guess; one-coin: "
            "all err at one rate; adversarial: some mislead; correlated: some copy.",
        ),
    ] = Process.aidn,
    annotators: Annotated[int, typer.Option(min=1, help="Number of annotators.")] = 60,
    groups: Annotated[int | None, typer.Option(min=1, help="Groups that err alike (aidn only; 3 by default).")] = None,
    labels_per_instance: Annotated[float, typer.Option(min=1, help="Mean number of labels of an instance.")] = 3.0,
    noise_rate: Annotated[
        float, typer.Option(min=0, max=1, help="Rate of wrong labels (of those who neither guess nor mislead).")
    ] = 0.4,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    truth: Annotated[
        Path | None, typer.Option(help="Also write the true class of each instance and the group of each annotator.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Further arguments of the process, e.g. spammer_share=0.5."),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is not here.")] = False,
) -> None:
    """Make annotations with known truth for the training instances of a data set."""
    from crowdwise.cli._settings import parse
    from crowdwise.cli._simulation import write_crowd

    write_crowd(
        dataset,
        process.value,
        out,
        truth,
        {
            "n_annotators": annotators,
            "n_groups": groups,
            "labels_per_instance": labels_per_instance,
            "noise_rate": noise_rate,
            "random_state": seed,
        },
        parse(settings or []),
        download=download,
    )
