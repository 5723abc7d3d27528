"""The verb `aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli._console import verb
from crowdwise.cli._reading import File, Method, Ray, Seed, Workers, reads


@verb
@reads
def aggregate(
    file: File,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="Table of labels with confidence to write, by its suffix."),
    ],
    method: Method = "auto",
    gold: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table of true classes of some instances: they inform the method, and measure it."
        ),
    ] = None,
    gold_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of FILE with true classes, used like --gold.")
    ] = None,
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
    reading: dict[str, Any],
) -> None:
    """Infer the label of every instance from the labels of many annotators."""
    if gold is not None and gold_column is not None:
        raise typer.BadParameter("--gold and --gold-column do not go together")
    informed = gold is not None or gold_column is not None
    if stream and informed:
        raise typer.BadParameter("--stream knows no gold labels; leave out --gold and --gold-column")
    if workers is not None and ray is None:
        raise typer.BadParameter("--workers are those of a Ray: say which with --ray")
    streaming = {"memory": memory, "work": work, "ray": ray}
    given = any(value is not None for value in streaming.values())
    if stream is False and given:
        raise typer.BadParameter("--memory, --work and --ray are for streaming; leave out --no-stream")
    if ray is not None and informed:
        raise typer.BadParameter(
            "--ray is for streaming, which knows no gold labels; leave out --gold and --gold-column"
        )
    table = reading["format"] in ("auto", "table", "crowd-kit") and reading["question"] is None and reading["models"]
    plain = table and to in ("auto", "table")
    if not plain and (stream or given):
        raise typer.BadParameter(
            "only tables can be streamed, to tables: leave out --stream, --memory, --work and --ray"
        )
    if stream is not False and not informed and plain:
        from crowdwise.cli._streaming import stream as streamed
        from crowdwise.cli._streaming import why_stream

        reason = why_stream(file, out, method, stream or given)
        if reason is not None:
            options = {**streaming, "workers": workers, "proba": proba, "seed": seed}
            columns = {role: reading[role] for role in ("instance", "annotator", "label")}
            streamed(file, out, annotators_out, method, columns, reason, **options)  # type: ignore[arg-type]
            return
    from crowdwise.cli._aggregation import aggregate as in_memory

    rest = {"gold": gold, "gold_column": gold_column, "proba": proba, "seed": seed}
    in_memory(file, out, annotators_out, method, reading, to=to, **rest)  # type: ignore[arg-type]
