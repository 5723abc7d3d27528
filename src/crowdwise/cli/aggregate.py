"""The verb `aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import number, share, show_facts, verb
from crowdwise.cli.options import FilesOrFolder, GoldColumn, Method, Ray, Seed, Workers, reads

if TYPE_CHECKING:
    from crowdwise.figures import Worth
    from crowdwise.streaming import Figures
    from crowdwise.tasks.aggregate import GoldAccuracy, Promise


@verb
@reads
def aggregate(
    path: FilesOrFolder,
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
    n, total, figures, found = result.n_instances, result.n_annotations, result.figures, result.worth
    show_facts(
        "Summary",
        {
            "annotations": f"{total:,}: {total / n:.1f} per instance, {total / result.n_annotators:.1f} per annotator",
            "classes": None if found.scale is None else f"{found.scale} ({found.scale.reason})",
            "agreement": _agreement(figures, result.ordinal_alpha),
            "ties": f"{share(figures.ties, n)} have two or more classes with most votes",
            "method": result.method,
            "why": result.reason,
            "changed": f"{share(figures.changed, n)} differ from majority vote (a label that shares a tie does not)",
            "right": found.sentence,
            "estimate": None if result.promise is None else _estimate(result.promise, found),
            "gold": None if result.gold is None else _gold(result.gold),
            "yardstick": None if found.yardstick is None else f"{found.yardstick}, without looking at the items",
            "labels": result.out,
            "annotators": result.annotators_out,
            "parts": result.work,
        },
    )
    return result


def _agreement(figures: Figures, ordinal: float | None) -> str:
    """Alpha of names, and of steps on a scale if the classes are ordered."""
    alpha = f"Krippendorff's alpha {number(figures.alpha)}"
    if ordinal is not None:
        alpha = f"Krippendorff's alpha {number(ordinal)} as a scale, {number(figures.alpha)} as names"
    return f"{alpha}, raw agreement {number(figures.raw_agreement)}"


def _estimate(promise: Promise, found: Worth) -> str | None:
    """What an estimate rests on; nothing if there is a measured share to believe."""
    if found.right is not found.estimated:
        return None
    higher = promise.independent > promise.confidence + 0.005
    return f"{promise.reason}; independent errors would promise {promise.independent:.1%}" if higher else promise.reason


def _gold(gold: GoldAccuracy) -> str:
    how = "each half measured with the other half given" if gold.crossed else "not used otherwise"
    return f"{gold.accuracy:.1%} right on {gold.instances:,} instances ({how}); majority vote {gold.majority:.1%}, ties shared"
