"""Reading a file of annotations, for the tasks that start from one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crowdwise.errors import DataError, UsageError, renaming, spelled
from crowdwise.readers import Export, read
from crowdwise.tasks.observer import Observer

Reading = Mapping[str, Any]
"""How a file is read: arguments of `crowdwise.read`."""


def read_annotations(
    path: Path,
    reading: Reading | None,
    observer: Observer,
    *,
    gold: str | Path | None = None,
    gold_column: str | None = None,
    **more: Any,
) -> Export:
    """`crowdwise.read`, whose message the observer gets; what no memory holds is refused.

    ``gold`` is a table of true classes or a column of the file, ``gold_column`` a column.
    """
    given = {**(reading or {}), **more}
    gold = gold if gold is not None else given.pop("gold", None)
    if gold is not None and gold_column is not None:
        raise UsageError(f"{spelled('gold')} and {spelled('gold_column')} do not go together", parameter="gold")
    given["gold"] = gold_column if gold is None else str(gold)
    with observer.step(f"reading {path.name}"), renaming(**({"gold": "gold_column"} if gold_column else {})):
        export = read(path, **given)
    _check_size(path, export)
    observer.note(export.message)
    return export


def about(export: Export) -> dict[str, Any]:
    """What was read, for programs."""
    crowd = export.annotations
    return {
        "format": export.format,
        "question": export.question,
        "columns": export.columns,
        "other_columns": [] if export.extra is None else export.extra.column_names,
        "annotations": len(crowd),
        "instances": crowd.n_instances,
        "annotators": crowd.n_annotators,
        "classes": crowd.classes,
        "repeats": crowd.n_duplicates,
        "gold": 0 if export.gold is None else len(export.gold),
        "message": export.message,
    }


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
