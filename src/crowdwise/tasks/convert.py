"""Annotations from one format to another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crowdwise.annotations import Duplicates
from crowdwise.errors import renaming
from crowdwise.readers import Export, read, write
from crowdwise.readers.write import output_format
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Reading


@dataclass(frozen=True)
class Converted:
    """What was read, and what it was written as."""

    export: Export
    out: Path
    format: str


def convert(
    path: str | Path,
    out: str | Path,
    *,
    to: str = "auto",
    gold_column: str | None = None,
    duplicates: Duplicates | None = None,
    reading: Reading | None = None,
    observer: Observer = SILENT,
) -> Converted:
    """Read a file of annotations and write it as ``to``: a table, or what another tool reads."""
    path, out = Path(path), Path(out)
    to = output_format(out, to)
    check_outputs([out], [path])
    with renaming(gold="gold_column"):
        policy = {} if duplicates is None else {"duplicates": duplicates}
        export = read(path, **{**(reading or {}), "gold": gold_column, **policy})
    observer.note(export.message)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(export, out, to)
    return Converted(export, out, to)
