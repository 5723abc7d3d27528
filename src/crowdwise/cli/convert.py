"""The verb `convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import say, verb
from crowdwise.cli.options import File, GoldColumn, reads


@verb
@reads
def convert(
    path: File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: csv, tsv, jsonl, parquet, arrow or json.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="table|crowd-kit|label-studio|auto",
            help="What to write; auto: label-studio to .json, else a table.",
        ),
    ] = "auto",
    gold_column: GoldColumn = None,
    *,
    given: dict[str, Any],
) -> Any:
    from crowdwise.tasks.convert import convert as task

    result = task(**given)
    say(f"{result.out}: written as {result.format}")
    return result
