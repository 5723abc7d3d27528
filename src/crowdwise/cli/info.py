"""The verb `info`."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdwise.cli._console import verb


@verb
def info(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|NAME",
            help="A run directory, a model, an annotation table, an array file or a preset file; or the name of a "
            "preset, a data set or a method.",
        ),
    ],
) -> None:
    """Say what a file or directory holds, or what a name stands for."""
    from crowdwise.cli._info import describe

    describe(path)
