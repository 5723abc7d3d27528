"""Reading a file of annotations, for the tasks that start from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdwise.data.label_rules import LabelRules
from crowdwise.errors import DataError, renaming, spelled
from crowdwise.readers import Export, read_together
from crowdwise.system import total_memory
from crowdwise.tasks.observer import Observer

Reading = Mapping[str, Any]
"""How a file is read: arguments of `crowdwise.read`."""


def label_rules(reading: Reading | None) -> LabelRules:
    """How labels are spelled, for gold labels that are read apart from the annotations."""
    given = reading or {}
    return LabelRules.of(given.get("clean", False), given.get("classes"), given.get("missing") or (), given.get("map"))


Paths = str | Path | Sequence[str | Path]
"""One file, or several about the same instances."""


def paths_of(path: Paths) -> list[Path]:
    """The files of a task."""
    return [Path(path)] if isinstance(path, str | Path) else [Path(each) for each in path]


def read_annotations(path: Paths, reading: Reading | None, observer: Observer, **more: Any) -> Export:
    """`crowdwise.read`, whose message the observer gets; what no memory holds is refused.

    ``more`` says more of how to read. ``gold`` is a table of true classes or a column of the file,
    ``gold_column`` a column of that table, or of the file.
    """
    given = {**(reading or {}), **{name: value for name, value in more.items() if value is not None}}
    if given.get("gold") is not None:
        given["gold"] = str(given["gold"])
    paths = paths_of(path)
    names = ", ".join(each.name for each in paths)
    named = given.get("gold_column") is not None and given.get("gold") is None
    with observer.step(f"reading {names}"), renaming(**({"gold": "gold_column"} if named else {})):
        export = read_together(paths, **given)
    _check_size(paths[0], export)
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
    available = total_memory()
    if available is not None and needed > available:
        raise DataError(
            f"{path}: {n:,} instances by {classes:,} classes need {needed / 1e9:.0f} GB, this machine has "
            f"{available / 1e9:.0f}; is {export.columns.get('label', 'this')!r} the column of labels? "
            f"({spelled('label', 'COLUMN')})",
            parameter="label",
        )
