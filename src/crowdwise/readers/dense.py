"""Dense matrices, one row per instance and one column per annotator: csv, tsv, npy, npz."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations, islice
from pathlib import Path
from statistics import median
from typing import Any

from crowdwise.annotations import Annotations
from crowdwise.data.frames import ALIASES, find_column
from crowdwise.data.types import Array
from crowdwise.errors import ReadError
from crowdwise.readers._collector import Collector, kinds_of
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Node
from crowdwise.readers._source import SHEET, TEXT, InputFile, zip_parts
from crowdwise.readers.table import describe
from crowdwise.storage.arrays import read_npy, read_npz

MISSING = ("", "-1", "nan", "NaN", "NA", "None", "null")  # cells of a text file that hold no label
_IDS = ("", "id", "index", *ALIASES["instance"])  # names of a first column that holds the instances
_SAMPLE = 1000  # rows inspected to tell a matrix from other tables
_CELLS = 200_000  # likewise cells
_COLUMNS = 60  # likewise columns
_ENOUGH = 10  # cells of a column that tell which values it has


@READERS.register("dense")
class Dense(Reader):
    """A cell holds the label; NaN, -1 and empty cells are missing."""

    summary = "dense matrices, a row per instance and a column per annotator: CSV, TSV, XLSX, ODS, NPY, NPZ"
    kinds = (*TEXT, SHEET, "npy", "npz")
    rank = 3

    def detect(self, source: InputFile) -> str | None:
        if source.kind in ("npy", "npz"):
            return "it holds arrays"
        if source.layout.columns is not None:  # they name the columns of a long table
            return None
        if any(find_column(ALIASES[role], source.names) for role in ("annotator", "label")):
            return None
        try:
            rows = _sample(source)
        except ReadError:  # the table reader explains better what is wrong
            return None
        start = int(_has_ids(rows))
        if len(rows) < 3 or len(rows[0]) - start < 2:
            return None
        width = len(rows[0])
        if start and len({row[0] for row in rows}) < len(rows):  # an instance has one row
            return None
        data = [row for row in rows[not _is_data(rows[0]) :] if len(row) == width]
        places = range(start, min(width, start + _COLUMNS))
        columns = [[row[place] for row in data if row[place] not in MISSING] for place in places]
        return f"it has {width - start} columns of the same few values" if _same_values(columns, start) else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if source.kind not in self.kinds:
            raise ReadError(f"a dense matrix is read from {', '.join(self.kinds)}, not from a {source.kind} file")
        return _read_array(source, options) if source.kind in ("npy", "npz") else _read_text(source, options)


def _read_text(source: InputFile, options: ReadOptions) -> Export:
    ids = _has_ids(_sample(source))
    rows = source.rows()
    first = next(rows, [])
    if not first:
        raise ReadError("no line holds anything")
    named = ids or not _is_data(first)
    annotators: list[Any] = first[ids:] if named else list(range(len(first)))
    if len(set(annotators)) < len(annotators):
        raise ReadError("line 1: two annotators have the same name")
    collector = Collector(source, options)
    for number, row in enumerate(rows if named else chain([first], rows)):
        place = f"record {number + 1}"
        if len(row) != len(first):
            raise ReadError(f"{place}: {len(row)} cells, but the first line has {len(first)}")
        node = Node(dict(zip(annotators, row[ids:], strict=True)), place)
        instance = Node(row[0], node, first[0] or "id").id() if ids else number
        for annotator in annotators:
            if node.value[annotator] not in MISSING:
                label = Node(node.value[annotator], node, str(annotator)).label()
                collector.add(node, instance, Node(annotator, node, "annotator").id(), label)
    return collector.export(None)


def _sample(source: InputFile) -> list[list[str]]:
    """The first rows, fewer of a wide table."""
    rows = source.rows()
    first = list(islice(rows, 1))
    return first + list(islice(rows, max(10, min(_SAMPLE, _CELLS // max(len(first[0]), 1))))) if first else []


def _same_values(columns: list[list[str]], ids: int) -> bool:
    """Whether columns hold labels by different people: few values, which most columns share with most others.

    Instances, annotators and labels in three columns are not like that, even where all of them are small numbers.
    """
    columns = [column for column in columns if column]
    cells = [cell for column in columns for cell in column]
    if not 0 < 2 * len(set(cells)) <= len(cells):
        return False
    full = [column for column in columns if len(column) >= _ENOUGH]
    short = max(map(len, columns)) < _ENOUGH
    if _is_key(columns) and not (short and (ids or len(columns) > 3)):
        return False
    if len(full) < 3:  # short or sparse: most values must occur in several columns
        found = Counter(value for column in columns for value in set(column))
        return len(columns) >= 2 and sum(found[cell] > 1 for cell in cells) >= (0.5 if ids else 0.8) * len(cells)
    values = [set(column) for column in full]
    shared = [
        median(sum(cell in other for cell in column) / len(column) for k, other in enumerate(values) if k != own)
        for own, column in enumerate(full)
    ]
    return sum(share >= 0.5 for share in shared) >= 0.95 * len(full)


def _is_key(columns: list[list[str]]) -> bool:
    """Whether two columns tell every row, as instance and annotator of a long table do: two people agree somewhere."""
    length = max(map(len, columns))
    full = [column for column in columns if len(column) == length][:_COLUMNS]
    return any(len(set(zip(one, other, strict=True))) == length for one, other in combinations(full, 2))


def _has_ids(rows: list[list[str]]) -> bool:
    """Whether the first column holds the instances: by its name, or as its values differ and are no labels."""
    first = rows[0] if rows else []
    if not first or _is_data(first):
        return False
    if _names_instances(first):
        return True
    own = [row[0] for row in rows[1:]]
    others = {cell for row in rows[1:] for cell in row[1:_COLUMNS]}
    return len(own) > 1 and len(set(own)) == len(own) and not others & set(own)


def _is_data(first: list[str]) -> bool:
    """Whether the first line already holds labels, i.e. numbers: annotators are rarely named like that."""
    cells = (cell in MISSING or cell.removesuffix(".0").removeprefix("-").isdecimal() for cell in first[1:])
    return not _names_instances(first) and all(cells)


def _names_instances(first: list[str]) -> bool:
    return first[0].lower() in _IDS or find_column(ALIASES["instance"], first[:1]) is not None


def _read_array(source: InputFile, options: ReadOptions) -> Export:
    arrays = {name: array for name, array in _arrays(source.path).items() if array.ndim == 2}
    if not arrays:
        raise ReadError("no array has two axes (instances, annotators)")
    question = options.choose(arrays) if list(arrays) != [""] else ""
    matrix: Array = arrays[question]
    if matrix.dtype.kind not in "iufbU":
        raise ReadError(f"array {question!r}: labels cannot be of type {matrix.dtype}")
    annotations = Annotations.from_dense(matrix)
    if not len(annotations):
        raise ReadError("there are no annotations: all cells are empty")
    message = describe(annotations, len(annotations), {}, None) + (f"; array {question!r}" if question else "")
    return Export(
        annotations=annotations,
        columns={},
        gold=None,
        n_rows=len(annotations),
        message=message,
        question=question or None,
        kinds=kinds_of(annotations.n_annotators, set()),
    )


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npy file (under the name "") or an npz file."""
    if path.suffix.lower() == ".npy":
        return {"": read_npy(path, ReadError)}
    return read_npz(path, [name.removesuffix(".npy") for name in zip_parts(path) if name.endswith(".npy")], ReadError)
