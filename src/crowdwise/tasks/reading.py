"""Reading a file of annotations, for the tasks that start from one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdwise.annotations import Annotations
from crowdwise.errors import DataError, renaming, spelled
from crowdwise.readers import Export, read_together
from crowdwise.tasks.observer import Observer

Reading = Mapping[str, Any]
"""How a file is read: arguments of `crowdwise.read`."""
Paths = str | Path | Sequence[str | Path]
"""One file, or several about the same instances."""


def paths_of(path: Paths) -> list[Path]:
    """The files of a task."""
    return [Path(path)] if isinstance(path, str | Path) else [Path(each) for each in path]


def read_annotations(
    path: Paths, reading: Reading | None, observer: Observer, *, gold_column: str | None = None, **more: Any
) -> Export:
    """`crowdwise.read`, whose message the observer gets; what no memory holds is refused."""
    paths = paths_of(path)
    with observer.step(f"reading {', '.join(each.name for each in paths)}"), renaming(gold="gold_column"):
        export = read_together(paths, **{**(reading or {}), "gold": gold_column, **more})
    _check_size(paths[0], export)
    observer.note(export.message)
    return export


def gold_of(
    export: Export, gold: str | Path | None, reading: Reading | None, observer: Observer
) -> tuple[Annotations, Mapping[Any, Any] | None]:
    """The annotations, and the gold labels of a table of their own, or else of the export."""
    from crowdwise.data.gold import read_gold

    if gold is None:
        return export.annotations, export.gold
    reading = reading or {}
    found = read_gold(Path(gold), export.annotations, reading.get("instance"), reading.get("label"))
    observer.note(found.message)
    return found.annotations, found.gold


def _check_size(path: Path, export: Export) -> None:
    """Refuse a table of n by C numbers that no memory holds: most often free text was taken for labels."""
    n, classes = export.annotations.n_instances, export.annotations.n_classes
    needed = 3 * 8 * n * classes  # votes, posterior, and one more while they are made
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this platform
        return
    if needed > available:
        raise DataError(
            f"{path}: {n:,} instances by {classes:,} classes need {needed / 1e9:.0f} GB, this machine has "
            f"{available / 1e9:.0f}; is {export.columns.get('label', 'this')!r} the column of labels? "
            f"({spelled('label', 'COLUMN')})",
            parameter="label",
        )
