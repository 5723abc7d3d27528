"""`crowdwise convert`: annotations from one format to another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crowdwise.cli._aggregation import as_options, check_outputs, options_named
from crowdwise.cli._console import say
from crowdwise.readers import read, write
from crowdwise.readers.write import output_format


def convert(path: Path, out: Path, to: str, reading: Mapping[str, Any]) -> None:
    """Read, write, and say what was found and written."""
    to = output_format(out, to)
    check_outputs([out], [path])
    with options_named():
        export = read(path, **reading)
    say(as_options(export.message))
    out.parent.mkdir(parents=True, exist_ok=True)
    write(export, out, to)
    say(f"{out}: written as {to}")
