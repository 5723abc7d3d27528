"""The verb `cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdwise.cli.console import say, verb


@verb
def cache(clear: Annotated[bool, typer.Option("--clear", help="Remove what is kept.")] = False) -> None:
    from crowdwise.encoders import cache as kept

    files, size = kept.clear() if clear else kept.size()
    say(f"{kept.folder()}: {files:,} files, {size / 1e6:,.1f} MB{' removed' if clear else ''}")
