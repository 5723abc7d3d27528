"""Columns of a long table whose names do not explain all of it: what a column called ``id`` identifies, then content."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.factorise import decoded
from crowdwise.data.frames import ROW_ID, find_column
from crowdwise.errors import AnnotationError, spelled
from crowdwise.readers._guess import guess_columns


def columns_by_content(
    columns: Mapping[str, Any], known: Mapping[str, str], gold: Collection[str | None] = (), *, text: bool
) -> tuple[dict[str, str], str]:
    """Role -> column, and a remark; ``known`` roles stand.

    A column called ``id`` is the instance if its values repeat. If they are all different, it numbers the rows of a
    long table, and another column is the instance; if no other column can be, every item has one label.
    """
    taken = (*known.values(), *gold)
    ids = find_column([ROW_ID], [name for name in columns if name not in taken])
    if "instance" in known or ids is None:
        return guess_columns(columns, known, gold, text=text)
    if _repeats(columns[ids]):
        found = {**known, "instance": ids}
        if {"annotator", "label"} <= known.keys():
            return found, ""
        return guess_columns(columns, found, gold, text=text)

    numbered = f"column {ids!r} has another value in every row"
    others = {name: column for name, column in columns.items() if name != ids}
    try:
        found, said = guess_columns(others, known, gold, text=text)
        return found, f"{numbered}, so it numbers the rows; {said}"
    except AnnotationError as error:
        if not {"annotator", "label"} <= known.keys():
            raise
        rivals = [
            name for name in others if name not in taken and _may_be_items(others[name], columns[known["annotator"]])
        ]
        if rivals:
            raise AnnotationError(
                f"no column for the instance: {numbered}, and {', '.join(map(repr, rivals))} may identify the items; "
                f"name the column with {spelled('instance', 'COLUMN')}",
                parameter="instance",
            ) from error
        instance = spelled("instance", "COLUMN")
        return {**known, "instance": ids}, f"{numbered}, so every item has one label; to correct it: {instance}"


def _repeats(column: Any) -> bool:
    """Whether a value occurs twice."""
    values = _values(column).drop_null()
    return len(pc.unique(values)) < len(values)


def _may_be_items(column: Any, annotator: Any) -> bool:
    """Whether a column repeats and holds more values than there are annotators, as items labelled several times do."""
    values = _values(column).drop_null()
    if pa.types.is_nested(values.type) or pa.types.is_floating(values.type):
        return False
    different = len(pc.unique(values))
    return len(pc.unique(_values(annotator))) < different < len(values)


def _values(column: Any) -> pa.ChunkedArray:
    values = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])
    return decoded(values)
