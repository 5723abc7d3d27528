"""Frames of any library, and dense matrices, as columns of ids."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.data.factorise import Column, is_missing
from crowdwise.data.types import Array, Ints
from crowdwise.errors import AnnotationError, CrowdwiseWarning, shorten, spelled, suggest

ALIASES: dict[str, tuple[str, ...]] = {
    "instance": (
        *(
            "instance",
            "item",
            "task",
            "example",
            "sample",
            "question",
            "unit",
            "document",
            "doc",
            "ticket",
            "case",
            "hit",
        ),
    ),
    "annotator": (
        *("annotator", "worker", "rater", "performer", "user", "coder", "labeler", "labeller", "judge", "assessor"),
    ),
    "label": ("label", "answer", "value", "response", "vote", "judgment", "judgement", "rating", "verdict"),
}
ROW_ID = "id"
"""A name of the instance where its values repeat; where they do not, it numbers the rows."""
_TELLING = 100  # cells from which their values are looked at
MISSING: tuple[Any, ...] = (-1, "")  # beside None and NaN, which are always missing


def is_frame(data: Any) -> bool:
    """Whether ``data`` has named columns: a pandas, polars or arrow frame, or a mapping of columns."""
    import narwhals.stable.v1 as nw

    return isinstance(data, Mapping) or isinstance(nw.from_native(data, pass_through=True), nw.DataFrame | nw.LazyFrame)


def collected(data: Any) -> Any:
    """The rows of a lazy frame, read now; any other data as they are."""
    import narwhals.stable.v1 as nw

    frame = nw.from_native(data, pass_through=True)
    return frame.collect().to_native() if isinstance(frame, nw.LazyFrame) else data


def find_column(aliases: Iterable[str], columns: Sequence[Any]) -> Any:
    """The column of the first alias found, ignoring case, punctuation and a final "id"; None if there is none.

    Of several that differ only so, the one that is spelled like the alias.

    >>> find_column(ALIASES["annotator"], ["HITId", "WorkerId"])
    'WorkerId'
    """
    simple = [simple_name(str(column)) for column in columns]
    for names in (simple, [name.removesuffix("id") for name in simple]):
        for alias in aliases:
            if alias in names:
                found = [column for column, name in zip(columns, names, strict=True) if name == alias]
                return alias if alias in found else found[0]
    return None


def namesakes(taken: Any, columns: Sequence[Any]) -> list[Any]:
    """Other columns whose names differ from that of a column by case and punctuation alone.

    >>> namesakes("label", ["Label", "label", "labels"])
    ['Label']
    """
    simple = simple_name(str(taken))
    return [column for column in columns if column != taken and simple_name(str(column)) == simple]


def simple_name(name: str) -> str:
    """A name without case and punctuation."""
    return "".join(filter(str.isalnum, name.lower()))


def named_columns(columns: Sequence[Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Role -> column, as chosen by the user, else found by its usual names; without roles that have none."""
    free = [column for column in columns if column not in chosen.values()]
    found = {
        role: find_column(aliases, free) if chosen.get(role) is None else known_column(chosen[role], role, columns)
        for role, aliases in ALIASES.items()
    }
    return {role: column for role, column in found.items() if column is not None}


def choose_columns(columns: Sequence[Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Role -> column, as `named_columns` finds them; each role must have one of its own."""
    taken = named_columns(columns, chosen)
    for role, aliases in ALIASES.items():
        if role not in taken:
            raise AnnotationError(
                f"no column for the {role}: looked for {', '.join(aliases)}; columns: {listing(columns)}; "
                f"name it with {spelled(role, 'COLUMN')}",
                parameter=role,
            )
    for role, other in combinations(ALIASES, 2):
        if taken[role] == taken[other]:
            raise AnnotationError(f"column {taken[role]!r} cannot be both the {role} and the {other}")
    return taken


def repeated_id(frame: Any, chosen: Mapping[str, Any]) -> Any:
    """The column called ``id`` of a long table whose instance neither the user nor another name tells; None if there is none.

    Only an id that repeats is an instance: an id that differs in every row numbers the rows.
    """
    names = frame_columns(frame)
    if chosen.get("instance") is not None or "instance" in named_columns(names, chosen):
        return None
    column = find_column([ROW_ID], [name for name in names if name not in chosen.values()])
    if column is None:
        return None
    (ids,) = take_columns(frame, [column])
    given = ids.data.drop_null()
    return column if len(given.unique()) < len(given) else None


def known_column(name: Any, role: str, columns: Sequence[Any]) -> Any:
    """``name`` if it is a column, or the one column that differs from it by case and blanks alone, else an error."""
    found = same_column(name, columns)
    if found is not None:
        return found
    raise AnnotationError(f"no column {name!r} for the {role}{close_to(name, columns)}; columns: {listing(columns)}")


def close_to(name: Any, known: Iterable[Any]) -> str:
    """A hint for a misspelt name, where something like it is known; a message goes on with the list of all."""
    hint = suggest(str(name), map(str, known))
    return hint if "did you mean" in hint else ""


def same_column(name: Any, columns: Sequence[Any]) -> Any:
    """The column of this name, or the only one that differs from it by case and blanks alone; None if there is none.

    >>> same_column("comment", ["id", "Comment "])
    'Comment '
    """
    if name in columns:
        return name
    alike = [column for column in columns if _plain(column) == _plain(name)]
    return alike[0] if len(alike) == 1 else None


def _plain(name: Any) -> str:
    return " ".join(str(name).casefold().split())


def listing(columns: Sequence[Any]) -> str:
    """Column names for a message."""
    return shorten(columns, 40) or "none"


def frame_columns(frame: Any) -> list[Any]:
    """Column names of a frame."""
    return list(frame) if isinstance(frame, Mapping) else list(_narwhals(frame).columns)


def take_columns(frame: Any, names: Iterable[Any]) -> list[Column]:
    """Columns of a frame of any library as arrow, without copying if possible."""
    if isinstance(frame, Mapping):
        columns = [Column.of(frame[name], f"column {name!r}") for name in names]
        lengths = {column.name: len(column.data) for column in columns}
        if len(set(lengths.values())) > 1:
            raise AnnotationError(
                "columns differ in length: " + ", ".join(f"{name} has {length}" for name, length in lengths.items())
            )
        return columns
    wrapped = _narwhals(frame)
    return [Column.of(_arrow(wrapped.get_column(name)), f"column {name!r}") for name in names]


def drop_column(frame: Any, name: Any) -> Any:
    """A frame of any library without one of its columns."""
    if isinstance(frame, Mapping):
        return {key: values for key, values in frame.items() if key != name}
    return _narwhals(frame).drop(name).to_native()


def dense_columns(matrix: Any, missing: Collection[Any] | None) -> tuple[Ints, Ints, Column, tuple[int, int]]:
    """Row, column and value of every cell that is not missing, by rows, and the shape (n, R)."""
    cells = _matrix(matrix)
    width = cells.shape[1]
    kind = cells.dtype.kind
    if missing is None:
        missing, dropped = usual_missing(cells)
        if dropped and _looks_like_a_class(cells, dropped):
            warnings.warn(
                f"-1 is taken for a missing label in {dropped:,} of {cells.size:,} cells, beside the labels 0 and 1: pass "
                "Annotations.from_dense(matrix, missing=[-1]) to say so, or missing=[] if it is a class",
                CrowdwiseWarning,
                stacklevel=4,
            )
    if kind in "iufbU":
        absent = [m for m in missing if isinstance(m, str if kind == "U" else int | float | np.number)]
        keep = ~np.isin(cells, absent)
        if kind == "f":
            keep &= ~np.isnan(cells)
        rows, columns = np.nonzero(keep)
        values = cells[rows, columns]
        if kind == "f" and np.array_equal(values, np.trunc(values)) and np.isfinite(values).all():
            values = values.astype(np.int64)  # integers that became floats because of NaN
        data = Column.of(values, "matrix").data
    else:
        absent_set = set(missing)
        flat = [None if is_missing(cell) or cell in absent_set else cell for cell in cells.ravel().tolist()]
        cell_column = Column.of(flat, "matrix", lambda k: f"row {k // width}, column {k % width}")
        rows, columns = np.divmod(np.flatnonzero(cell_column.data.is_valid().to_numpy()), max(width, 1))
        data = cell_column.data.drop_null()
    where = Column(data, "matrix", lambda k: f"row {rows[k]}, column {columns[k]}")
    return rows, columns, where, (len(cells), width)


def usual_missing(cells: Array) -> tuple[tuple[Any, ...], int]:
    """What stands for no label: an empty text, and -1 unless it is a class; and how many cells are -1 and missing."""
    if cells.dtype.kind == "O":
        flat = [cell for cell in cells.ravel().tolist() if isinstance(cell, int | float) and not is_missing(cell)]
        found, times = set(flat), flat.count(-1)
    elif cells.dtype.kind in "if":
        found, times = set(np.unique(cells[~np.isnan(cells)]).tolist()), int(np.count_nonzero(cells == -1))
    else:
        return MISSING, 0
    if minus_one_is_a_class(found):
        return tuple(value for value in MISSING if value != -1), 0
    return MISSING, times


def minus_one_is_a_class(labels: Collection[float]) -> bool:
    """Whether -1, among these numbers, is a label: where another is negative, or the only other one is 1.

    >>> minus_one_is_a_class({-2, -1, 0}), minus_one_is_a_class({-1, 1}), minus_one_is_a_class({-1, 0, 1})
    (True, True, False)
    """
    others = {label for label in labels if label != -1}
    return others == {1} or any(label < 0 for label in others)


def _looks_like_a_class(cells: Array, dropped: int) -> bool:
    """Whether -1 may be a third class beside 0 and 1: where most of a matrix would be filled in without it."""
    if cells.dtype.kind not in "ifO" or cells.size < _TELLING or 2 * dropped >= cells.size:
        return False
    return {cell for cell in cells.ravel().tolist() if not is_missing(cell) and not isinstance(cell, str | bytes)} == {
        -1,
        0,
        1,
    }


def row_ids(frame: Any) -> Any:
    """Ids of the rows of a frame or series, i.e. the pandas index; None if there is none, or it is 0, 1, ..."""
    index = getattr(frame, "index", None) if hasattr(frame, "iloc") else None
    if index is None or type(index).__name__ == "MultiIndex" or np.array_equal(index, np.arange(len(index))):
        return None
    return index.to_numpy()


def _arrow(series: Any) -> Any:
    native = series.to_native()
    if isinstance(native, pa.ChunkedArray):
        return native  # narwhals would copy it into one chunk
    try:
        return series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # mixed types: the caller says which
        return series.to_list()


def _narwhals(frame: Any) -> Any:
    import narwhals.stable.v1 as nw

    try:
        wrapped: Any = nw.from_native(frame, pass_through=True)
    except nw.exceptions.NarwhalsError as error:  # a repeated column name
        raise AnnotationError(f"cannot read this {type(frame).__name__}: {error}") from error
    if isinstance(wrapped, nw.LazyFrame):
        return wrapped.collect()
    if isinstance(wrapped, nw.DataFrame):
        return wrapped
    raise AnnotationError(f"expected a table (pandas, polars, arrow, a mapping of columns), got {type(frame).__name__}")


def _matrix(matrix: Any) -> Array:
    cells: Array
    if is_frame(matrix):
        cells = _narwhals(pa.table(matrix) if isinstance(matrix, Mapping) else matrix).to_numpy()
    elif isinstance(matrix, np.ma.MaskedArray) and np.ma.getmaskarray(matrix).any():
        cells = np.asarray(matrix.data).astype(object)
        cells[np.ma.getmaskarray(matrix)] = None
    elif hasattr(matrix, "__array__"):
        cells = np.asarray(matrix)
    else:
        cells = _from_rows(list(matrix))
    if cells.dtype.kind == "c":
        raise AnnotationError("Complex data not supported: labels are numbers, texts or booleans")
    if cells.ndim != 2:
        raise AnnotationError(f"a dense matrix has two axes (instances, annotators), got shape {cells.shape}")
    return cells


def _from_rows(rows: list[Any]) -> Array:
    width = len(rows[0]) if rows and isinstance(rows[0], Sequence | np.ndarray) else 0
    cells = np.empty((len(rows), width), dtype=object)  # object: numpy would turn -1 among strings into "-1"
    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray):
            raise AnnotationError(f"matrix, row {i}: expected one label per annotator, got {row!r}")
        if len(row) != width:
            raise AnnotationError(f"matrix, row {i}: {len(row)} cells, but row 0 has {width}")
        cells[i] = row
    return cells
