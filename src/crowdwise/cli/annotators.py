"""The verb `annotators`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli.aggregate import Annotator, File, Instance, Label, Method, Seed


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
    seed: Seed = 0,
) -> None:
    """Say how good every annotator is, and how each one errs; worst first."""
    from crowdwise.cli._aggregation import annotators as work

    work(file, out, method, {"instance": instance, "annotator": annotator, "label": label}, seed=seed)
