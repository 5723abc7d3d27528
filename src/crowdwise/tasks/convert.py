"""Annotations from one format to another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.annotations import Duplicates
from crowdwise.readers import Export, write
from crowdwise.readers.write import output_format
from crowdwise.tasks.observer import SILENT, Observer
from crowdwise.tasks.parameters import check_outputs
from crowdwise.tasks.reading import Reading, about, read_annotations


@dataclass(frozen=True)
class Converted:
    """What was read, and what it was written as."""

    export: Export
    out: Path
    format: str

    def as_json(self) -> dict[str, Any]:
        return {"out": self.out, "written": self.format, "read": about(self.export)}


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
    policy = {} if duplicates is None else {"duplicates": duplicates}
    export = read_annotations(path, reading, observer, gold_column=gold_column, **policy)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(export, out, to)
    return Converted(export, out, to)
