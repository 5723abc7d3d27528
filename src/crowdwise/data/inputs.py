"""Instances from files: arrays (npy, npz), tables, texts, folders of pictures; and the ids of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.data.factorise import is_number, row_of
from crowdwise.data.frames import ALIASES, find_column, known_column, listing, same_column
from crowdwise.data.located import located
from crowdwise.data.matching import numbered_from
from crowdwise.data.types import Array
from crowdwise.encoders import Pictures
from crowdwise.encoders.rows import object_array
from crowdwise.errors import DataError, spelled, suggest
from crowdwise.readers import PICTURE_FIELDS, TEXT_FIELDS, load_columns
from crowdwise.storage.arrays import read_npy, read_npz

ARRAYS = (".npy", ".npz")
_USUAL = ("X", "X_train", "inputs", "features", "images")  # names of the one array that is meant, among several


@dataclass(frozen=True)
class InputRows:
    """The rows of a file, and their ids: None where rows are known by their numbers 0..n-1."""

    path: Path
    X: Any
    """Numbers (n, ...), texts (n,), `Pictures`, or columns by name."""
    ids: Array | None
    message: str
    """One line that says what was read."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(next(iter(self.X.values()))) if isinstance(self.X, dict) else len(self.X)

    def called(self, wanted: Array) -> InputRows:
        """With pictures called as ``wanted`` calls them: by their paths below the folder or their file names, with or
        without suffix."""
        if not isinstance(self.X, Pictures) or self.ids is None:
            return self
        return replace(self, ids=np.array(self.X.names_for(wanted.tolist())))


def read_inputs(
    path: str | Path,
    ids: str | None = None,
    *,
    text: str | None = None,
    image: str | None = None,
    root: str | Path | None = None,
    expects: str = "",
    trained: Mapping[str, str] | None = None,
) -> InputRows:
    """Instances from an array file (rows are instances), a table, a file with a text in each line, or a folder of pictures.

    ``ids`` names a column of the table, an array in the npz file, or a file with one id per instance; ``"1.."``: rows are
    numbered from 1. A table's column called id, instance, task or the like is taken for ids without being named. ``text``
    names the table's column of texts, ``image`` that of pictures' paths, which lie below ``root`` (by default the table's
    folder). Without these all other columns count: as an array where all are numbers, else as columns by name. A model that
    ``expects`` "text" or "pictures" finds the column by its usual names, or as the only one that holds no numbers. ``trained``
    has the names of columns, by role, that a model was trained with: they are looked for first.
    """
    path, name = _split_name(path)
    if path.is_dir():
        return _read_folder(path, ids)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() in ARRAYS:
        arrays = read_arrays(path)
        X: Any = _pick(path, arrays, name)
        found = arrays.get(ids) if ids is not None else None
        source = f"array {ids!r}"
    elif path.suffix.lower() == ".txt":
        X, found, source = object_array(read_lines(path)), None, ""
    else:
        X, found, column = _read_table(path, ids, text, image, expects, trained or {})
        source = f"column {column!r}"
    is_text = isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "UO"
    if isinstance(X, np.ndarray) and X.ndim < 2 and not is_text:
        raise DataError(f"{path}: inputs need one row per instance, (n, features) or (n, height, width), not {X.shape}")
    rows = InputRows(path, X, found, "")
    if ids is not None and found is None:
        found, source = numbered_from(ids, rows.n), f"the numbers {ids}"
    if ids is not None and found is None:
        found, source = _read_ids(Path(ids), path), ids
    if found is not None:
        _check_ids(found, rows.n, path)
    if isinstance(X, list):  # names of pictures
        names = [str(each) for each in (range(len(X)) if found is None else found.tolist())]
        X = located(X, names, Path(root) if root is not None else path.parent)
    message = f"{path.name}: {describe(X)}" + (f"; ids from {source}" if found is not None else "")
    return InputRows(path, X, found, message)


def describe(X: Any) -> str:
    """What rows are, in a few words."""
    if isinstance(X, Pictures):
        return f"{len(X):,} pictures"
    if isinstance(X, dict):
        return f"{len(next(iter(X.values()))):,} instances with the columns {', '.join(map(repr, X))}"
    if X.ndim == 1:
        return f"{len(X):,} texts"
    return f"{len(X):,} instances of {' x '.join(map(str, X.shape[1:]))} {X.dtype}"


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read as text in UTF-8: {error}") from error


def _read_folder(path: Path, ids: str | None) -> InputRows:
    if ids is not None:
        raise DataError(f"{path}: pictures in a folder are called by their file names; leave out {spelled('ids')}")
    pictures = Pictures.of_folder(path)
    return InputRows(
        path, pictures, np.array(pictures.ids), f"{path.name}: {len(pictures):,} pictures; ids from file names"
    )


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


def _read_table(
    path: Path, ids: str | None, text: str | None, image: str | None, expects: str, trained: Mapping[str, str]
) -> tuple[Any, Array | None, str | None]:
    columns = load_columns(path, list)
    names = list(columns)
    column = ids if ids in names else None
    if ids is None:
        known = same_column(trained["ids"], names) if "ids" in trained else None
        column = known if known is not None else find_column((*ALIASES["instance"], "id"), names)
    features = [name for name in names if name != column]
    if not features:
        raise DataError(f"{path}: no columns with features; columns: {', '.join(map(repr, names))}")
    if text is None and expects == "text":
        text = _meant(path, "text", columns, features, trained.get("text"), TEXT_FIELDS)
    if image is None and expects == "pictures":
        image = _meant(path, "image", columns, features, trained.get("image"), PICTURE_FIELDS)
    found = None if column is None else _values(columns[column])
    if text is not None and image is not None:
        raise DataError(f"{spelled('text')} and {spelled('image')} both say what is read; pass one of them")
    if text is not None or image is not None:
        role, named = ("text", text) if text is not None else ("image", image)
        texts = ["" if value is None else str(value) for value in values_of(columns[known_column(named, role, names)])]
        return object_array(texts) if role == "text" else texts, found, column
    numeric = {name: _is_numeric(columns[name]) for name in features}
    if expects == "table" or not all(numeric.values()):
        return {name: _typed(path, name, columns[name], numeric[name]) for name in features}, found, column
    return np.stack([_numbers(path, name, columns[name]) for name in features], axis=1), found, column


def _meant(
    path: Path, role: str, columns: Any, features: Sequence[str], trained: str | None, usual: Sequence[str]
) -> str:
    """The column that a model of texts or pictures is to read."""
    if trained is not None and (same := same_column(trained, features)) is not None:
        return str(same)
    words = [name for name in features if not _is_numeric(columns[name])]
    column = (
        features[0] if len(features) == 1 else find_column(usual, features) or (words[0] if len(words) == 1 else None)
    )
    if column is None:
        raise DataError(
            f"{path}: which column holds the {role}s? Name it with {spelled(role, 'COLUMN')}; columns: {listing(features)}",
            parameter=role,
        )
    return str(column)


def values_of(column: Any) -> list[Any]:
    """The values of a loaded column."""
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _is_numeric(column: Any) -> bool:
    """Whether a column holds numbers: at least half of it, as a few that are none are more likely mistakes than names."""
    given = [value for value in values_of(column) if value is not None]
    return sum(map(is_number, given)) >= len(given) / 2


def _typed(path: Path, name: str, column: Any, numeric: bool) -> Array:
    """A column of a table with columns of several kinds: numbers, NaN where missing, or objects."""
    if numeric:
        return _numbers(path, name, column, complete=False).astype(np.float64)
    return object_array([None if value is None else str(value) for value in values_of(column)])


def _numbers(path: Path, name: str, column: Any, *, complete: bool = True) -> Array:
    """A column as float32; what is not a number, or is missing, is an error that says where."""
    values = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])
    if complete and values.null_count:
        row = row_of(values.is_null())
        raise DataError(f"{path}, record {row + 1}: column {name!r} is empty; fill in or drop missing values")
    try:
        return np.asarray(values.cast(pa.float64()).to_numpy(), dtype=np.float32)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        wrong = ((k, v) for k, v in enumerate(values.to_pylist()) if v is not None and not is_number(v))
        row, value = next(wrong, (0, values[0]))
        raise DataError(
            f"{path}, record {row + 1}: column {name!r} holds {str(value)[:40]!r}, features must be numbers; "
            f"a column of ids is named by {spelled('ids')}",
            parameter="ids",
        ) from None


def _values(column: Any) -> Array:
    """A column of ids; text becomes integers where nothing is lost by it."""
    array = np.array(["" if value is None else value for value in values_of(column)])
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
        return _values(read_lines(path))

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
