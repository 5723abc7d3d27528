"""The verb `simulate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import say, verb
from crowdwise.cli.options import parse_settings


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
) -> Any:
    from crowdwise.tasks.simulate import simulate as task

    result = task(
        dataset,
        out,
        process=process.value,
        annotators=annotators,
        groups=groups,
        labels_per_instance=labels_per_instance,
        noise_rate=noise_rate,
        seed=seed,
        truth=truth,
        settings=parse_settings(settings or []),
        download=download,
    )
    made = result.annotations
    say(
        f"{result.out}: {len(made):,} labels of {made.n_instances:,} instances by {made.n_annotators:,} annotators, "
        f"{100 * result.wrong:.1f} % of them wrong"
    )
    if result.truth is not None:
        say(f"{result.truth}: the true class of each instance, the group of each annotator")
    return result
