"""What people call X: a list of texts, a folder of pictures, a table. What it is, how many rows it has, some of its rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from crowdwise.data.frames import collected, frame_columns, is_frame
from crowdwise.data.types import Array
from crowdwise.errors import CrowdwiseWarning, DataError, shorten

Kind = Literal["text", "pictures", "table", "numbers"]
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
# decoders in use: others run programs, or are hardly ever tested
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


@dataclass(frozen=True, eq=False)
class Pictures(Sequence[Any]):
    """Picture files, and the ids of the instances they show. Nothing is decoded before it is needed.

    ``pictures[3]`` are the pixels of one of them, at most 256 on a side; ``pictures[[3, 5]]`` are two of them.
    """

    files: tuple[Path, ...]
    ids: tuple[str, ...]
    """File names, with their folders below that which was given; see `stems`."""

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str]) -> Pictures:
        """All pictures in a folder and the folders below it, sorted by name; hidden files are left out."""
        root = Path(folder)
        if not root.is_dir():
            raise DataError(f"{root}: there is no such folder of pictures", parameter="inputs")
        named = sorted(_pictures_below(root))
        found = [name for name in named if (root / name).is_file()]
        if not found:
            raise DataError(f"{root}: the folder has no pictures ({', '.join(SUFFIXES)})", parameter="inputs")
        unreadable = [name for name in found if not _is_text(name)]
        if unreadable:
            raise DataError(
                f"{root} has file names that are not UTF-8: {shorten(unreadable, 3)}; rename these files",
                parameter="inputs",
            )
        if len(found) < len(named):
            others = sorted(set(named) - set(found))  # a named pipe would make the reader wait for ever
            warnings.warn(
                f"{root}: left out names that are not regular files: {shorten(others, 3)}",
                CrowdwiseWarning,
                stacklevel=3,
            )
        return cls(tuple(root / name for name in found), tuple(found))

    @property
    def stems(self) -> tuple[str, ...]:
        """The ids without the files' suffixes."""
        return tuple(name.rpartition(".")[0] if name.lower().endswith(SUFFIXES) else name for name in self.ids)

    def names_for(self, wanted: Sequence[Any]) -> tuple[str, ...]:
        """The pictures' ids as ``wanted`` calls them: paths below the folder or file names, with or without suffix."""
        asked = set(map(str, wanted))
        names = [tuple(name.rpartition("/")[2] for name in each) for each in (self.ids, self.stems)]
        ways = [each for each in (self.ids, self.stems, *names) if len(set(each)) == len(each)]
        return max(ways, key=lambda each: len(asked.intersection(each)), default=self.ids)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            from crowdwise.encoders.decoding import decode

            return decode(self.files[index], most=256)
        if isinstance(index, slice):
            return Pictures(self.files[index], self.ids[index])
        rows = np.flatnonzero(index) if np.asarray(index).dtype == bool else np.asarray(index, np.int64)
        return Pictures(tuple(self.files[row] for row in rows), tuple(self.ids[row] for row in rows))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.files)


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of scipy."""
    return bool(sp.issparse(X))


def opened_folder(X: Any) -> Any:
    """The pictures of a folder, where X names one; the rows of a lazy frame; else X itself."""
    if isinstance(X, Iterator):
        raise DataError(
            f"X is a {type(X).__name__}, which can be read only once: pass an array, a table, a list or a folder"
        )
    if not isinstance(X, str | os.PathLike):
        return collected(X)
    if Path(X).is_dir():
        return Pictures.of_folder(X)
    raise DataError(
        f"X is the text {str(X)[:60]!r}, which names no folder of pictures; pass a list of texts or a folder"
    )


def opened(X: Any) -> Any:
    """X with what stands for rows in its place: a folder becomes its pictures, a series of texts an array of them."""
    X = opened_folder(X)
    if is_sparse(X):
        return X.tocsr()  # of the other formats, some have no rows to take
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "UT":
        return object_array(X.tolist())  # whose rows can be taken without copying them
    return _opened_list(X) if isinstance(X, list | tuple) else X


def kind_of(X: Any) -> Kind:
    """What X is, after `opened`: texts, pictures, a table with columns that are no numbers, or numbers.

    >>> kind_of(["a text", "another"]), kind_of({"age": [3, 4], "city": ["a", "b"]}), kind_of([[1.0, 2.0]])
    ('text', 'table', 'numbers')
    """
    if isinstance(X, Pictures) or (isinstance(X, list | tuple) and len(X) and _is_picture(X[0])):
        return "pictures"
    if isinstance(X, np.ndarray):
        return "text" if X.ndim == 1 and _texts(X[:1000].tolist()) else "numbers"
    if isinstance(X, list | tuple):
        return "text" if _texts(X[:1000]) else "numbers"
    if not is_sparse(X) and _is_series(X):
        return "text" if _texts(X[:1000].to_list()) else "numbers"
    if is_sparse(X) or hasattr(X, "detach") or not is_frame(X):
        return "numbers"
    return "table" if any(not _numeric(X[name]) for name in frame_columns(X)) else "numbers"


def take_rows(X: Any, rows: Array) -> Any:
    """Some rows of X, as X is: array, sparse matrix, list, frame of any library, pictures."""
    if is_sparse(X):
        return sp.csr_array(X)[rows]
    if isinstance(X, np.ndarray | Pictures) or hasattr(X, "detach"):
        return X[rows]
    if isinstance(X, Mapping):
        return {name: take_rows(column, rows) for name, column in X.items()}
    if isinstance(X, list | tuple):
        return [X[row] for row in rows.tolist()]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if not _is_series(X) and is_frame(X):
        import narwhals.stable.v1 as nw

        return nw.from_native(X, eager_only=True)[rows].to_native()
    return X[rows]


def as_texts(rows: Any) -> list[str]:
    """Texts as a list; a missing one is empty, and anything else an error that says where."""
    values = (
        rows.tolist() if hasattr(rows, "tolist") else rows.to_pylist() if hasattr(rows, "to_pylist") else list(rows)
    )
    for row, value in enumerate(values):
        if not isinstance(value, str):
            if value is not None and value == value:
                raise DataError(f"X[{row}] is {value!r} of type {type(value).__name__}, expected a text")
            values[row] = ""
    return values


def _opened_list(X: Sequence[Any]) -> Any:
    """A list of paths of pictures becomes `Pictures`, one of texts an array of objects, one of arrays a single array.

    Any other stays.
    """
    if len(X) and (isinstance(X[0], np.ndarray) or hasattr(X[0], "detach")):
        return _stacked(X)
    some = [value for value in X[:1000] if value is not None]
    if some and all(isinstance(value, os.PathLike) for value in some):
        return _listed([Path(value) for value in X])
    if some and all(isinstance(value, str) for value in some):
        named = all(value.lower().endswith(SUFFIXES) and len(value) < 4096 and "\n" not in value for value in some)
        return _listed([Path(value) for value in X]) if named and Path(some[0]).is_file() else object_array(X)
    return X


def _stacked(X: Sequence[Any]) -> Array:
    """Arrays of one shape as a single array (n, ...)."""
    rows = [row.detach().cpu().numpy() if hasattr(row, "detach") else np.asarray(row) for row in X]
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise DataError(
                f"X is a list of arrays of different shapes: X[0] has {rows[0].shape}, X[{number}] has {row.shape}"
            )
    return np.stack(rows)


def _is_text(name: str) -> bool:
    """Whether a name has no bytes that stand for no character."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _listed(files: list[Path]) -> Pictures:
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise DataError(f"{len(missing):,} of {len(files):,} pictures do not exist: {shorten(missing, 3)}")
    return Pictures(tuple(files), tuple(map(str, files)))


def object_array(values: Sequence[Any]) -> Array:
    """Values of any kind as an array of objects (n,)."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _texts(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None and value == value]
    return bool(present) and all(isinstance(value, str) for value in present)


def _is_picture(value: Any) -> bool:
    return isinstance(value, os.PathLike) or (hasattr(value, "convert") and hasattr(value, "getexif"))


def _is_series(X: Any) -> bool:
    import narwhals.stable.v1 as nw

    return isinstance(nw.from_native(X, pass_through=True, allow_series=True), nw.Series)


def _numeric(column: Any) -> bool:
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype == object:  # nullable numbers
        return all(isinstance(value, int | float | np.number | None) for value in values[:1000].tolist())
    return bool(values.dtype.kind in "biuf")


def _pictures_below(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield (Path(folder) / name).relative_to(root).as_posix()
