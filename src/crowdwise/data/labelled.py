"""Instances from the very file that their labels are in: a column of texts, a column of pictures' paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crowdwise.data.frames import known_column
from crowdwise.data.inputs import InputRows, describe, values_of
from crowdwise.data.located import located
from crowdwise.encoders.rows import object_array
from crowdwise.errors import DataError, spelled
from crowdwise.readers import Export, load_columns


def rows_of_export(
    path: Path, export: Export, *, text: str | None = None, image: str | None = None, root: str | Path | None = None
) -> InputRows:
    """The instances of a file of labels, in the order of ``export.annotations``: their texts or their pictures.

    ``text`` and ``image`` name a column, or a field of the export; without them texts, or else pictures, are found by the
    usual names. Pictures lie below ``root``, by default the file's folder.
    """
    if text is not None and image is not None:
        raise DataError(f"{spelled('text')} and {spelled('image')} both say what is learnt from; pass one of them")
    column, what = (text, "text") if text is not None else (image, "image")
    if column is not None:
        values = _column(path, export, column, what)
        source = f"column {column!r}"
    elif root is None and export.texts is not None:
        values, what = export.texts.to_pylist(), "text"
        source = _source(export, "text")
    elif export.pictures is not None:
        values, what = export.pictures.to_pylist(), "image"
        source = _source(export, "picture")
    else:
        raise DataError(
            f"{path}: there is nothing to learn from beside the labels: name the column of texts ({spelled('text', 'COLUMN')}) "
            f"or of pictures ({spelled('image', 'COLUMN')}), or a file of instances ({spelled('inputs', 'FILE')})",
            parameter="text",
        )
    ids = export.annotations.instances
    if what == "text":
        X: Any = object_array(["" if value is None else value for value in values])
        if not any(X.tolist()):
            raise DataError(f"{path}: all texts of {source} are empty", parameter="text")
    else:
        X = located(values, [str(one) for one in ids.tolist()], Path(root) if root is not None else path.parent)
    return InputRows(path, X, ids, f"{path.name}: {describe(X)} from {source}")


def _source(export: Export, role: str) -> str:
    return f"column {export.columns[role]!r}" if role in export.columns else "the export"


def _column(path: Path, export: Export, column: str, what: str) -> Sequence[str | None]:
    """A column's value for every instance, which must be the same in all rows of the instance."""
    if export.items is not None:
        known = dict.fromkeys(name for item in export.items for name in item)
        column = known_column(column, what, list(known))
        return [None if item.get(column) is None else str(item[column]) for item in export.items]
    instance = export.columns.get("instance")
    if instance is None:
        raise DataError(
            f"{path}: only tables have columns; this is {export.format or 'of another format'}", parameter=what
        )

    def choose(names: Sequence[str]) -> Sequence[str]:
        return list(dict.fromkeys([instance, known_column(column, what, names)]))

    loaded = {name: values_of(column) for name, column in load_columns(path, choose, export.layout).items()}
    column = next((name for name in loaded if name != instance), instance)  # as the file spells it
    found: dict[str, tuple[str, int]] = {}
    for row, (one, value) in enumerate(zip(loaded[instance], loaded[column], strict=True), start=1):
        if one is None or value is None or value == "":
            continue
        first, where = found.setdefault(str(one), (str(value), row))
        if first != str(value):
            raise DataError(
                f"{path}: instance {str(one)!r} has two different values of {column!r}: {first[:40]!r} in record {where} "
                f"and {str(value)[:40]!r} in record {row}; one {what} per instance is needed",
                parameter=what,
            )
    return [found.get(str(one), (None, 0))[0] for one in export.annotations.instances.tolist()]
