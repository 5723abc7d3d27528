"""The verb `convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli.aggregate import Annotator, File, Format, Instance, Label, Models, Question, Several


@verb
def convert(
    file: File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: csv, tsv, jsonl, parquet, arrow or json.")],
    format: Format = "auto",
    to: Annotated[
        str,
        typer.Option(
            metavar="table|crowd-kit|label-studio|auto",
            help="What to write; auto: label-studio to .json, else a table.",
        ),
    ] = "auto",
    question: Question = None,
    instance: Instance = None,
    annotator: Annotator = None,
    label: Label = None,
    gold_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of true classes; found by its usual names by default.")
    ] = None,
    duplicates: Annotated[
        str,
        typer.Option(metavar="keep|first|last|error", help="What to do with repeated labels by the same annotator."),
    ] = "keep",
    several: Several = "error",
    models: Models = True,
) -> None:
    """Turn a file of annotations into one of another format."""
    from crowdwise.cli._conversion import convert as work

    columns = {"instance": instance, "annotator": annotator, "label": label, "gold": gold_column}
    reading = {"format": format, "question": question, "duplicates": duplicates, "several": several, "models": models}
    work(file, out, to, columns | reading)
