"""Dense matrices, one row per instance and one column per annotator: csv, tsv, npy, npz."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from crowdwise.annotations import Annotations
from crowdwise.data.frames import ALIASES, find_column
from crowdwise.data.types import Array
from crowdwise.errors import ReadError
from crowdwise.readers._export import READERS, Collector, Export, Reader, ReadOptions, kinds_of
from crowdwise.readers._files import header, lines
from crowdwise.readers._node import Node
from crowdwise.readers._source import TEXT, InputFile, zip_parts
from crowdwise.readers.table import describe
from crowdwise.storage.arrays import read_npy, read_npz

MISSING = ("", "-1", "nan", "NaN", "NA", "None", "null")  # cells of a text file that hold no label
_IDS = ("", "id", "index", *ALIASES["instance"])  # names of a first column that holds the instances
_SAMPLE = 100  # rows inspected to tell a matrix from other tables


@READERS.register("dense")
class Dense(Reader):
    """A cell holds the label; NaN, -1 and empty cells are missing."""

    summary = "dense matrices, a row per instance and a column per annotator: CSV, TSV, NPY, NPZ"
    kinds = (*TEXT, "npy", "npz")
    rank = 3

    def detect(self, source: InputFile) -> str | None:
        if source.kind not in TEXT:
            return "it holds arrays"
        if any(find_column(ALIASES[role], source.names) for role in ("annotator", "label")):
            return None
        try:
            rows = list(islice(_rows(source), _SAMPLE))
        except ReadError:  # the table reader explains better what is wrong
            return None
        start = int(bool(rows) and _has_ids(rows[0]))
        if len(rows) < 3 or len(rows[0]) - start < 2:
            return None
        cells = [cell for row in rows[not _is_data(rows[0]) :] for cell in row[start:] if cell not in MISSING]
        few = 0 < 2 * len(set(cells)) <= len(cells)
        return f"it has {len(rows[0]) - start} columns of the same few values" if few else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if source.kind not in self.kinds:
            raise ReadError(f"a dense matrix is read from {', '.join(self.kinds)}, not from a {source.kind} file")
        return _read_text(source, options) if source.kind in TEXT else _read_array(source, options)


def _read_text(source: InputFile, options: ReadOptions) -> Export:
    rows = _rows(source)
    first = next(rows, [])
    ids, named = _has_ids(first), not _is_data(first)
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


def _rows(source: InputFile) -> Iterator[list[str]]:
    _, delimiter = header(source.path)
    try:
        for row in csv.reader(lines(source.path), delimiter=delimiter, strict=True):
            if row:
                yield [cell.strip() for cell in row]
    except csv.Error as error:
        raise ReadError(f"cannot be read as {source.kind}: {error}") from error


def _has_ids(first: list[str]) -> bool:
    return bool(first) and (first[0].lower() in _IDS or find_column(ALIASES["instance"], first[:1]) is not None)


def _is_data(first: list[str]) -> bool:
    """Whether the first line already holds labels, i.e. numbers: annotators are rarely named like that."""
    return all(cell in MISSING or cell.removesuffix(".0").removeprefix("-").isdecimal() for cell in first[1:]) and (
        not _has_ids(first)
    )


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
