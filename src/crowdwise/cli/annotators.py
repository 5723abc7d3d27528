"""The verb `annotators`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli.aggregate import Annotator, File, Format, Instance, Label, Method, Models, Question, Seed, Several


@verb
def annotators(
    file: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT", help="Write the whole table, by its suffix.")
    ] = None,
    method: Method = "auto",
    instance: Instance = None,
    annotator: Annotator = None,
    label: Label = None,
    format: Format = "auto",
    question: Question = None,
    several: Several = "error",
    models: Models = True,
    seed: Seed = 0,
) -> None:
    """Say how good every annotator is, and how each one errs; worst first."""
    from crowdwise.cli._aggregation import annotators as work

    columns = {"instance": instance, "annotator": annotator, "label": label}
    reading = {"format": format, "question": question, "several": several, "models": models}
    work(file, out, method, columns | reading, seed=seed)
