"""X matched with annotations: which row of X every instance is. By id wherever there are ids, never by luck.

Matching looks at rows only, before they become numbers, so it works for arrays, frames, texts and data sets alike.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations
from crowdwise.data.factorise import Ids, Vocabulary, decoded, is_plain, plain
from crowdwise.data.frames import ALIASES, drop_column, find_column, frame_columns, is_frame, row_ids, take_columns
from crowdwise.data.types import Ints
from crowdwise.errors import CrowdwiseWarning, DataError, shorten, spelled

POSITION = "position"
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows and their annotations: instance k is row k."""

    X: Any
    """The rows, without what named them: the values of a mapping, a frame without its column of ids."""
    annotations: Annotations
    order: Ints | None = None
    """The rows by ascending id (n,), an order that does not depend on that of X; None: that of X."""
    id_column: Any = None
    """The column of X that held the ids."""


def match(X: Any, annotations: Any, ids: Ids | str | None = None) -> Matched:
    """The rows of ``X`` and what a crowd said of each.

    ``ids`` are the ids of the rows: a sequence, the name of a column of X, ``"1.."`` (rows are numbered from 1, or any other
    number), or ``"position"``: the annotations list the rows of X in their order (a long table: by first appearance).

    Without ``ids``, a pandas index is taken for them (unless it is 0, 1, ...), the keys of a mapping from ids to rows, or a
    frame's column ``id``, ``item``, ``task`` and the like if it has all annotated instances.

    Where X has no ids, a matrix and codes of instances mean rows by their number, and so do integer ids of a long table.
    Other ids are an error. Rows without annotations are kept.

    >>> table = {"item": ["b", "a", "b"], "worker": ["ann", "ann", "bob"], "label": [1, 0, 1]}
    >>> match([[0.1], [0.2], [0.3]], table, ids=["a", "b", "c"]).annotations.votes()
    array([[1, 0],
           [0, 2],
           [0, 0]])
    """
    raw = not isinstance(annotations, Annotations)
    crowd = as_annotations(annotations, None if _is_mapping(X) else count_rows(X))
    if raw:
        crowd = with_sorted_annotators(crowd)
    if isinstance(ids, str) and ids == POSITION:
        rows = rows_in_order(crowd, count_rows(X))
        return Matched(X, crowd.recoded(instances=(rows, replace(crowd.instance_vocabulary, ordered=True))))
    X, known, id_column = _rows_and_ids(X, ids, crowd)
    n = count_rows(X)
    if _is_codes(annotations):  # row numbers, or ids where there are some
        crowd = _codes_as_ids(crowd)
    if known is None:
        return Matched(X, _by_row(crowd, n))
    vocabulary = Vocabulary.of(known, "ids of X")
    if vocabulary.size != n:
        raise DataError(
            f"X has {n:,} rows, but there are {vocabulary.size:,} ids: one per row is needed", parameter="ids"
        )
    order = vocabulary.sorted_codes()
    found = _by_id(crowd, vocabulary)
    return Matched(X, found, None if np.array_equal(order, np.arange(n)) else order, id_column)


def as_annotations(data: Any, n: int | None = None) -> Annotations:
    """Any accepted form of annotations; labels (n,) become a crowd of one, a frame with n rows may be a matrix."""
    if hasattr(data, "__array__") and not hasattr(data, "shape"):
        data = np.asarray(data)
    if n is not None and not isinstance(data, Annotations) and _is_table(data) and _is_wide(data, n):
        return Annotations.from_dense(data)
    if isinstance(data, Annotations | tuple) or hasattr(data, "columns") or (data is not None and np.ndim(data) != 1):
        return Annotations.coerce(data)
    if data is None:
        raise DataError(
            "fit requires y to be passed, but the target y is None: what did the crowd say of the instances?"
        )
    values = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise DataError("y has infinite labels (Input y contains infinity): labels are numbers, texts or booleans")
    if values.dtype.kind == "f" and not np.array_equal(values, np.trunc(values), equal_nan=True):
        example = values[np.isfinite(values) & (values != np.trunc(values))][:1].tolist()
        raise DataError(f"Unknown label type: y holds continuous values{f' such as {example[0]:g}' if example else ''}")
    crowd = Annotations.from_dense(values.reshape(-1, 1), missing=[""])
    index = row_ids(data)
    if index is None or len(set(index.tolist())) < len(index):
        return crowd
    return crowd.recoded(instances=(np.arange(len(index)), Vocabulary.of(index, "index")))


def check_labels(crowd: Annotations) -> None:
    """Refuse classes and annotators that a model could not be saved with, before anything is trained; warn of a single class."""
    crowd.check_size()
    for what, vocabulary in (("classes", crowd.class_vocabulary), ("annotators", crowd.annotator_vocabulary)):
        kind = vocabulary.arrow.type
        if vocabulary.size and not is_plain(kind):
            example = vocabulary.arrow[0].as_py()
            raise DataError(f"{what} such as {example!r} ({kind}) cannot be saved: use texts, numbers or booleans")
        if pa.types.is_floating(kind) and not pc.all(pc.is_finite(vocabulary.arrow)).as_py():
            raise DataError(f"{what} must be finite numbers, got {shorten(vocabulary.arrow.to_pylist(), 4)}")
    used = np.flatnonzero(np.bincount(crowd.label, minlength=crowd.n_classes))
    if len(used) == 1:
        (name,) = crowd.class_vocabulary.take(used).to_pylist()
        warnings.warn(f"all labels are {name!r}: there is nothing to tell apart", CrowdwiseWarning, stacklevel=3)


def with_sorted_annotators(crowd: Annotations) -> Annotations:
    """With annotators numbered by id, where they were numbered as they appeared, which depends on the order of rows."""
    rank = crowd.annotator_vocabulary.in_order_of_ids()
    if rank is None or np.array_equal(rank, np.arange(len(rank))):
        return crowd
    return crowd.recoded(annotators=(rank, crowd.annotator_vocabulary.subset(np.argsort(rank))))


def rows_by_id(crowd: Annotations, known: Vocabulary, what: str = "the annotations", where: str = "X") -> Ints:
    """The row of every instance (n,), by id; -1 for instances without labels that ``known`` does not have."""
    mine, theirs = _of_one_type(known.arrow, crowd.instance_vocabulary.arrow)
    rows: Ints = pc.fill_null(pc.index_in(theirs, value_set=mine), -1).to_numpy().astype(np.int64)
    missing = np.flatnonzero((rows < 0) & (crowd.labels_per_instance > 0))
    if missing.size:
        some = crowd.instance_vocabulary.take(missing[:_SHOWN]).to_pylist()
        raise DataError(
            f"{what}: {missing.size:,} of {crowd.n_instances:,} instances are not among the {known.size:,} ids of {where}: "
            f"{_listed(some, missing.size)}; its ids are {_listed(known.arrow[:_SHOWN].to_pylist(), known.size)}",
            parameter="ids",
        )
    return rows


def rows_by_number(
    crowd: Annotations, n: int, what: str = "the annotations", where: str = "X", *, certain: bool = False
) -> Ints:
    """The row of every instance, whose ids are row numbers 0..n-1; ids that start at 1 are refused, unless it is ``certain``."""
    ids = crowd.instances
    if not np.issubdtype(ids.dtype, np.integer):
        raise DataError(
            f"{what}: the instances have ids ({_listed(ids[:_SHOWN].tolist(), len(ids))}), the rows of {where} have none: "
            f"say with {spelled('ids')} the id of every row ({spelled('ids', repr(POSITION))}: rows are the "
            f"{crowd.n_instances:,} instances in the order of the annotations)",
            parameter="ids",
        )
    used = crowd.labels_per_instance > 0
    wrong = np.flatnonzero(used & ((ids < 0) | (ids >= n)))
    smallest = int(ids[used].min(initial=np.iinfo(np.int64).max))
    if smallest == 1 and not certain:
        raise DataError(
            f"{what}: the ids of instances start at 1, rows of {where} are numbered 0..{n - 1}: pass "
            f"{spelled('ids', repr('1..'))} if 1 is the first row, {spelled('ids', repr('0..'))} if it is the second",
            parameter="ids",
        )
    if wrong.size:
        raise DataError(
            f"{what}: {wrong.size:,} of {len(ids):,} instances are no rows of {where}, which are numbered 0..{n - 1}: "
            f"{_listed(ids[wrong[:_SHOWN]].tolist(), wrong.size)}; if these are ids, say with {spelled('ids')} the id of "
            "every row",
            parameter="ids",
        )
    return np.where((ids >= 0) & (ids < n), ids, -1).astype(np.int64)


def rows_in_order(crowd: Annotations, n: int) -> Ints:
    """Rows of instances that are the rows of X in their order: as many, that is."""
    if crowd.n_instances != n:
        raise DataError(
            f"X has {n} instances, the annotations cover {crowd.n_instances}: pass the ids of the rows "
            f"({spelled('ids')}), or annotations of all rows in their order (Annotations.from_frame(..., instances=ids))",
            parameter="ids",
        )
    return np.arange(n)


def numbered_from(text: str, n: int) -> Ints | None:
    """Ids of n rows from a text such as ``"1.."``; None where it is something else.

    >>> numbered_from("1..", 3), numbered_from("item", 3)
    (array([1, 2, 3]), None)
    """
    number = re.fullmatch(r"(\d{1,15})\.\.", text)
    return None if number is None else np.arange(n) + int(number[1])


def labels_by_row(X: Any, y: Any) -> Any:
    """True labels ``y`` (n,) in the order of the rows of ``X``: by index, where both have one of pandas."""
    own, theirs = (row_ids(data) for data in (X, y))
    if own is None or theirs is None or np.array_equal(own, theirs):
        return np.asarray(y)
    if set(own.tolist()) != set(theirs.tolist()) or len(set(own.tolist())) < len(own):
        raise DataError("X and y have indexes that differ: pass rows and labels of the same instances, or arrays")
    return y.loc[own].to_numpy()


def count_rows(X: Any) -> int:
    """The number of instances."""
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    if isinstance(X, Mapping):
        return len(next(iter(X.values()), ()))
    rows = X if hasattr(X, "__len__") else np.asarray(X)
    if isinstance(rows, np.ndarray) and not rows.ndim:
        raise DataError(f"X has no rows: it is a {type(X).__name__}; pass an array, a table, a list or a folder")
    return len(rows)


def rows_only(X: Any, columns: Any, id_column: Any) -> Any:
    """X as a fitted model takes it: without the column of ids that it was trained with, and of a mapping the rows."""
    if _is_mapping(X) and columns is None:
        return _values(X)
    if id_column is not None and id_column not in (columns or ()) and _is_table(X) and id_column in frame_columns(X):
        return drop_column(X, id_column)
    return X


def _by_row(crowd: Annotations, n: int) -> Annotations:
    """Annotations of rows that have no ids."""
    vocabulary = crowd.instance_vocabulary
    if vocabulary.ids is None or vocabulary.ordered:
        rows_in_order(crowd, n)
        return crowd
    return crowd.recoded(instances=(rows_by_number(crowd, n), Vocabulary(n)))


def _by_id(crowd: Annotations, known: Vocabulary) -> Annotations:
    """Annotations of rows that have ids."""
    if crowd.instance_vocabulary.ids is None:
        whole = pa.types.is_integer(known.arrow.type)
        used = np.flatnonzero(crowd.labels_per_instance)
        if whole and np.isin(used, known.values).all():
            if not np.array_equal(known.values, np.arange(known.size)) and crowd.n_instances == known.size:
                raise DataError(
                    "the annotations have no ids, and their row numbers are also ids of X, in another order: pass "
                    f"{spelled('ids', repr(POSITION))} if row k of the annotations is row k of X, or annotations with ids",
                    parameter="ids",
                )
            crowd = _codes_as_ids(crowd)
        else:
            return crowd.recoded(instances=(rows_in_order(crowd, known.size), known))
    return crowd.recoded(instances=(rows_by_id(crowd, known), known))


def _rows_and_ids(X: Any, ids: Ids | str | None, crowd: Annotations) -> tuple[Any, Any, Any]:
    """The rows, their ids or None, and the column of X that these come from."""
    if isinstance(ids, str) and (numbered := numbered_from(ids, count_rows(X))) is not None:
        return X, numbered, None
    if isinstance(ids, str):
        if not _is_table(X) or ids not in frame_columns(X):
            known = f"a column of X, {POSITION!r}, or a number as in '1..'"
            raise DataError(f"{spelled('ids', repr(ids))} must be {known}", parameter="ids")
        return drop_column(X, ids), take_columns(X, [ids])[0].data, ids
    if ids is not None:
        return (_values(X) if _is_mapping_of_rows(X, crowd) else X), ids, None
    if _is_mapping_of_rows(X, crowd):
        return _values(X), list(X), None
    if hasattr(X, "names_for") and crowd.instance_vocabulary.ids is not None:  # pictures of a folder
        return X, X.names_for(crowd.instances.tolist()), None
    index = row_ids(X)
    if index is not None and crowd.instance_vocabulary.ids is None and len(set(index.tolist())) < len(index):
        index = None  # rows drawn with repetition, in the order of the annotations
    if index is not None or crowd.instance_vocabulary.ids is None or not _is_table(X):
        return X, index, None
    column = find_column((*ALIASES["instance"], "id"), frame_columns(X))
    if column is None:
        return X, None, None
    values = take_columns(X, [column])[0].data.combine_chunks()
    if pa.types.is_nested(values.type) or not _has_all(values, crowd):
        return X, None, None
    return drop_column(X, column), values, column


def _has_all(values: pa.Array, crowd: Annotations) -> bool:
    """Whether a column has the ids of all labelled instances, each once."""
    values = decoded(values)
    if values.null_count or len(values.unique()) < len(values):
        return False
    labelled = crowd.instance_vocabulary.take(np.flatnonzero(crowd.labels_per_instance))
    mine, theirs = _of_one_type(plain(values), labelled)
    return bool(pc.all(pc.is_in(theirs, value_set=mine)).as_py())


def _of_one_type(mine: pa.Array, theirs: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Ids that can be compared: 12 in one file is "12" in the other."""
    if mine.type == theirs.type:
        return mine, theirs
    return mine.cast(pa.large_string()), theirs.cast(pa.large_string())


def _is_mapping_of_rows(X: Any, crowd: Annotations) -> bool:
    """Whether X maps ids to rows, and not names to columns: some of its keys are ids of instances."""
    if not _is_mapping(X):
        return False
    ids = set(crowd.instances.tolist())
    return any(key in ids for key in X)


def _is_wide(frame: Any, n: int) -> bool:
    """Whether a frame is beyond doubt a matrix: n rows, no column of a long table, and most columns share their values."""
    names = frame_columns(frame)
    if len(names) < 2 or any(find_column(aliases, names) is not None for aliases in ALIASES.values()):
        return False
    columns = [column.data for column in take_columns(frame, names)]
    if len(columns[0]) != n:
        return False
    seen = [{value for value in column.unique().to_pylist() if value not in (None, "", -1)} for column in columns]
    seen = [values for values in seen if values]
    counts = Counter(value for values in seen for value in values)
    return 2 * sum(any(counts[value] > 1 for value in values) for values in seen) > len(seen)


def _is_mapping(X: Any) -> bool:
    return isinstance(X, Mapping) and not hasattr(X, "shape")  # which a sparse matrix in form of a dictionary has


def _is_table(X: Any) -> bool:
    if isinstance(X, np.ndarray | list | tuple):
        return False
    return _is_mapping(X) if isinstance(X, Mapping) else is_frame(X)


def _values(X: Mapping[Any, Any]) -> Any:
    """The rows of a mapping: one array where they are numbers."""
    rows = list(X.values())
    return rows if any(isinstance(row, str | bytes) for row in rows) else np.asarray(rows)


def _is_codes(annotations: Any) -> bool:
    """Whether annotations are three arrays of integers, in which instances are row numbers or ids, as X has them."""
    return isinstance(annotations, tuple) and all(np.asarray(part).dtype.kind in "iu" for part in annotations)


def _codes_as_ids(crowd: Annotations) -> Annotations:
    """With the numbers of instances as their ids."""
    vocabulary = crowd.instance_vocabulary
    return crowd.recoded(instances=(np.arange(vocabulary.size), Vocabulary(vocabulary.size, vocabulary.arrow)))


def _listed(values: list[Any], number: int) -> str:
    return ", ".join(map(repr, values)) + (", ..." if number > len(values) else "")
