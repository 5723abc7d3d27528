"""The verb `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb


@verb
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures, results and the model.")] = Path(
        "crowdwise-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of the crowd and of the methods.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few epochs only: to see that it runs, not how well.")
    ] = False,
) -> None:
    """Show what crowdwise does: digits, labelled by 60 simulated annotators, four methods compared."""
    from crowdwise.cli._demo import run_demo

    run_demo(out, seed, quick)
