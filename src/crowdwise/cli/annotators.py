"""The verb `annotators`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli._console import verb
from crowdwise.cli._reading import File, Method, Seed, reads


@verb
@reads
def annotators(
    file: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT", help="Write the whole table, by its suffix.")
    ] = None,
    method: Method = "auto",
    seed: Seed = 0,
    *,
    reading: dict[str, Any],
) -> None:
    """Say how good every annotator is, and how each one errs; worst first."""
    from crowdwise.cli._aggregation import annotators as work

    work(file, out, method, reading, seed=seed)
