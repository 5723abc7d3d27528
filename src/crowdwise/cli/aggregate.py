"""The verb `aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import number, share, show_facts, verb
from crowdwise.cli.options import Files, GoldColumn, Method, Ray, Seed, Workers, reads

if TYPE_CHECKING:
    from crowdwise.tasks.aggregate import GoldAccuracy, Promise


@verb
@reads
def aggregate(
    path: Files,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="Table of labels with confidence to write, by its suffix."),
    ],
    method: Method = "auto",
    gold_column: GoldColumn = None,
    annotators_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of annotators to write; by default beside OUT.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="table|crowd-kit|label-studio|auto",
            help="What to write labels as; auto: predictions for Label Studio to .json, else a table.",
        ),
    ] = "auto",
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probability of every class.")] = False,
    seed: Seed = 0,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Work on parts of a parquet table on disk; by default with more rows than memory is fit for.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory to use when streaming, such as 4GB (the default).")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the parts when streaming, which is kept; by default one beside OUT."
        ),
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.aggregate import aggregate as task

    result = task(**given)
    n, total, figures = result.n_instances, result.n_annotations, result.figures
    show_facts(
        "Summary",
        {
            "annotations": f"{total:,}: {total / n:.1f} per instance, {total / result.n_annotators:.1f} per annotator",
            "agreement": f"Krippendorff's alpha {number(figures.alpha)}, raw agreement {number(figures.raw_agreement)}",
            "ties": f"{share(figures.ties, n)} have two or more classes with most votes",
            "method": result.method,
            "why": result.reason,
            "changed": f"{share(figures.changed, n)} have another label than by majority vote",
            "expect": None if result.promise is None else _promise(result.promise),
            "gold": None if result.gold is None else _accuracy(result.gold),
            "labels": result.out,
            "annotators": result.annotators_out,
            "parts": result.work,
        },
    )
    return result


def _promise(promise: Promise) -> str:
    said = f"{promise.confidence:.1%} of the labels right ({promise.reason}"
    higher = promise.independent > promise.confidence + 0.005
    return f"{said}; independent errors would promise {promise.independent:.1%})" if higher else f"{said})"


def _accuracy(gold: GoldAccuracy) -> str:
    how = "each half measured with the other half given" if gold.crossed else "not used otherwise"
    off = 100 * (gold.claimed - gold.accuracy)
    said = f"; {gold.claimed:.1%} were promised, {abs(off):.1f} points too {'many' if off > 0 else 'few'}"
    return (
        f"accuracy {gold.accuracy:.1%} on {gold.instances:,} instances ({how}){said}; majority vote {gold.majority:.1%}"
    )
