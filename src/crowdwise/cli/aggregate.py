"""The verb `aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, a table with a "
        "row per label, or a matrix; aggregate also takes a folder of parquet files.",
    ),
]
Format = Annotated[
    str, typer.Option("--format", "-f", metavar="NAME|auto", help="Format of FILE; auto tells it by the content.")
]
Question = Annotated[
    str | None, typer.Option(metavar="NAME", help="The question to read, where FILE has answers to several.")
]
Several = Annotated[
    str,
    typer.Option(metavar="error|first|skip", help="What to do with annotations that hold more than one choice."),
]
Models = Annotated[bool, typer.Option("--models/--no-models", help="Whether models count as annotators.")]
Method = Annotated[
    str,
    typer.Option(
        "--method", "-m", metavar="NAME|auto", help="An aggregator such as dawid-skene; auto chooses and says why."
    ),
]
Instance = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the instance; found by its usual names by default.")
]
Annotator = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the annotator.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="local|HOST:PORT",
        help="Spread the work over a Ray: one that is started here, or a running cluster.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Workers of the Ray to use; by default one for each CPU.", show_default=False)
]


@verb
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
    instance: Instance = None,
    annotator: Annotator = None,
    label: Label = None,
    format: Format = "auto",
    question: Question = None,
    several: Several = "error",
    models: Models = True,
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
    columns = {"instance": instance, "annotator": annotator, "label": label}
    reading = {"format": format, "question": question, "several": several, "models": models}
    plain = format in ("auto", "table", "crowd-kit") and question is None and models and to in ("auto", "table")
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
            streamed(file, out, annotators_out, method, columns, reason, **options)  # type: ignore[arg-type]
            return
    from crowdwise.cli._aggregation import aggregate as in_memory

    rest = {"gold": gold, "gold_column": gold_column, "proba": proba, "seed": seed}
    in_memory(file, out, annotators_out, method, columns | reading, to=to, **rest)  # type: ignore[arg-type]
