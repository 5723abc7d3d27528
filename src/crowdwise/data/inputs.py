"""Instances from files: arrays (npy, npz) and tables (csv, tsv, jsonl, parquet, arrow), and the ids of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.data.frames import ALIASES, find_column
from crowdwise.data.matching import numbered_from
from crowdwise.errors import DataError, spelled, suggest
from crowdwise.readers import load_columns
from crowdwise.storage.arrays import read_npy, read_npz

Array = npt.NDArray[Any]
ARRAYS = (".npy", ".npz")
_USUAL = ("X", "X_train", "inputs", "features", "images")  # names of the one array that is meant, among several


@dataclass(frozen=True)
class InputRows:
    """The rows of a file, and their ids: None where rows are known by their numbers 0..n-1."""

    path: Path
    X: Array
    ids: Array | None
    message: str
    """One line that says what was read."""


def read_inputs(path: str | Path, ids: str | None = None) -> InputRows:
    """Instances from an array file (rows are instances) or a table (numeric columns are features).

    ``ids`` names a column of the table, an array in the npz file, or a file with one id per instance; ``"1.."``: rows are
    numbered from 1. A table's column
    called id, instance, task or the like is taken for ids without being named.
    """
    path, name = _split_name(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() in ARRAYS:
        arrays = read_arrays(path)
        X = _pick(path, arrays, name)
        found = arrays.get(ids) if ids is not None else None
        source = f"array {ids!r}"
    else:
        X, found, column = _read_table(path, ids)
        source = f"column {column!r}"
    if X.ndim < 2:
        raise DataError(f"{path}: inputs need one row per instance, (n, features) or (n, height, width), not {X.shape}")
    if ids is not None and found is None:
        found, source = numbered_from(ids, len(X)), f"the numbers {ids}"
    if ids is not None and found is None:
        found, source = _read_ids(Path(ids), path), ids
    if found is not None:
        _check_ids(found, len(X), path)
    message = f"{path.name}: {len(X):,} instances of {' x '.join(map(str, X.shape[1:]))} {X.dtype}"
    return InputRows(path, X, found, message + (f"; ids from {source}" if found is not None else ""))


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npy file (under the name "") or an npz file; nothing pickled is read."""
    return {"": read_npy(path)} if path.suffix.lower() == ".npy" else read_npz(path)


def _split_name(path: str | Path) -> tuple[Path, str | None]:
    """``data.npz:X`` is the array X of data.npz."""
    before, colon, name = str(path).rpartition(":")
    if colon and before.lower().endswith(".npz") and not Path(path).exists():
        return Path(before), name
    return Path(path), None


def _pick(path: Path, arrays: dict[str, Array], name: str | None) -> Array:
    if name is None and len(arrays) == 1:
        return next(iter(arrays.values()))
    chosen = name if name is not None else next((usual for usual in _USUAL if usual in arrays), None)
    if chosen is None:
        raise DataError(f"{path} holds {len(arrays)} arrays: say which, {path}:NAME{suggest('', arrays)}")
    if chosen not in arrays:
        raise DataError(f"{path} has no array {chosen!r}{suggest(chosen, arrays)}")
    return arrays[chosen]


def _read_table(path: Path, ids: str | None) -> tuple[Array, Array | None, str | None]:
    names: list[str] = []

    def choose(columns: Sequence[str]) -> Sequence[str]:
        names.extend(columns)
        return columns

    columns = load_columns(path, choose)
    column = ids if ids in names else find_column((*ALIASES["instance"], "id"), names) if ids is None else None
    features = [name for name in names if name != column]
    if not features:
        raise DataError(f"{path}: no columns with features; columns: {', '.join(map(repr, names))}")
    X = np.stack([_numbers(path, name, columns[name]) for name in features], axis=1)
    return X, None if column is None else _values(columns[column]), column


def _numbers(path: Path, name: str, column: Any) -> Array:
    """A column as float32; what is not a number is an error that says where."""
    values = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])
    if values.null_count:
        row = values.is_null().to_pylist().index(True)
        raise DataError(f"{path}, record {row + 1}: column {name!r} is empty; fill in or drop missing values")
    try:
        return np.asarray(values.cast(pa.float64()).to_numpy(), dtype=np.float32)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row, value = next(((k, v) for k, v in enumerate(values.to_pylist()) if not _is_number(v)), (0, values[0]))
        raise DataError(
            f"{path}, record {row + 1}: column {name!r} holds {str(value)[:40]!r}, features must be numbers; "
            f"a column of ids is named by {spelled('ids')}",
            parameter="ids",
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _values(column: Any) -> Array:
    """A column of ids; text becomes integers where nothing is lost by it."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    array = np.array(["" if value is None else value for value in values])
    if array.dtype.kind == "U":
        try:
            numbers = array.astype(np.int64)
        except (ValueError, OverflowError):
            return array
        return numbers if np.array_equal(numbers.astype(str), array) else array
    return array


def _read_ids(path: Path, inputs: Path) -> Array:
    """Ids from a file: npy, a table with one column (or an id column), or text with one id per line."""
    if not path.is_file():
        raise DataError(f"{spelled('ids', str(path))}: neither a column of {inputs.name} nor a file", parameter="ids")
    if path.suffix.lower() in ARRAYS:
        return _pick(path, read_arrays(path), None)
    if path.suffix.lower() == ".txt":
        return _values(path.read_text(encoding="utf-8").splitlines())

    def choose(names: Sequence[str]) -> Sequence[str]:
        column = names[0] if len(names) == 1 else find_column((*ALIASES["instance"], "id"), names)
        if column is None:
            raise DataError(f"{path}: no column of ids; columns: {', '.join(map(repr, names))}")
        return [column]

    (column,) = load_columns(path, choose).values()
    return _values(column)


def _check_ids(ids: Array, n: int, path: Path) -> None:
    if ids.shape != (n,):
        raise DataError(
            f"{path} has {n:,} instances, but there are ids of shape {ids.shape}: one per instance is needed",
            parameter="ids",
        )
    seen: set[str] = set()
    for row, value in enumerate(map(str, ids.tolist())):
        if not value:
            raise DataError(f"{path}, row {row}: the id is empty")
        if value in seen:
            raise DataError(f"{path}, row {row}: id {value!r} occurs twice")
        seen.add(value)
