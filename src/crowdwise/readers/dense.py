"""Dense matrices, one row per instance and one column per annotator: csv, tsv, npy, npz."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain, combinations, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.factorise import Vocabulary, encode_classes
from crowdwise.data.frames import ALIASES, dense_columns, find_column, minus_one_is_a_class, usual_missing
from crowdwise.data.label_rules import LabelRules, resolved
from crowdwise.data.types import Array
from crowdwise.errors import ReadError, spelled
from crowdwise.readers._collector import Collector, kinds_of
from crowdwise.readers._doubts import about_consensus, about_doubtful_items, about_header_copies
from crowdwise.readers._export import READERS, Export, Reader, ReadOptions
from crowdwise.readers._node import Node
from crowdwise.readers._source import SHEET, TEXT, InputFile, zip_parts
from crowdwise.readers.kinds import named_models
from crowdwise.readers.table import describe
from crowdwise.storage.arrays import read_npy, read_npz

_SILENT = ("", "-1", "nan", "NaN", "NA", "None", "null")  # cells that do not tell whether a table is a matrix
_IDS = ("", "id", "index", *ALIASES["instance"])  # names of a first column that holds the instances
_SAMPLE = 1000  # rows inspected to tell a matrix from other tables
_CELLS = 200_000  # likewise cells
_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?|[nN]a[nN]")
_TIME = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[T ,]+\d{1,2}:\d{2}")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[a-zA-Z]+$")
_COLUMNS = 60  # likewise columns
_ENOUGH = 10  # cells of a column that tell which values it has


@READERS.register("dense")
class Dense(Reader):
    """A cell holds the label; NaN and empty cells are missing, and so is -1 unless it is a class."""

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
        columns = [[row[place] for row in data if row[place] not in _SILENT] for place in places]
        if not _same_values(columns, start):
            return None
        _check_rows_are_items(rows if start else [])
        return f"it has {width - start} columns of the same few values"

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
    body = list(rows if named else chain([first], rows))
    remarks: list[str] = []
    if named and first in body:
        remarks.append(about_header_copies(body.count(first)))
        body = [row for row in body if row != first]
    for number, row in enumerate(body):
        if len(row) != len(first):
            raise ReadError(f"record {number + 1}: {len(row)} cells, but the first line has {len(first)}")
    counts = Counter(cell for row in body for cell in row[ids:])
    absent = _missing_cells(counts, options.rules)
    collector = Collector(source, options)
    places, about = named_models(annotators, options.kinds)
    models = {annotators[place] for place in places}
    unlabelled = 0
    told: list[set[str]] = []
    for number, row in enumerate(body):
        node = Node(dict(zip(annotators, row[ids:], strict=True)), f"record {number + 1}")
        instance = Node(row[0], node, first[0] or "id").id() if ids else number
        before = len(collector)
        told.append({cell for cell in row[ids:] if cell not in absent})
        for annotator in annotators:
            if node.value[annotator] not in absent:
                label = Node(node.value[annotator], node, str(annotator)).label()
                who = Node(annotator, node, "annotator").id()
                collector.add(node, instance, who, label, model=annotator in models)
        unlabelled += len(collector) == before
    remarks += _about_missing({cell: counts[cell] for cell in absent if cell})
    remarks += [*about_consensus(annotators), *about_doubtful_items(told, [row[0] for row in body])]
    if about:
        remarks.append(about.removeprefix("; "))
    if unlabelled:
        remarks.append(f"left out: {count(unlabelled, 'instances')} without a label")
    return collector.export(None, remark="; ".join(remarks))


def _missing_cells(counts: Mapping[str, int], rules: LabelRules) -> set[str]:
    """Texts of cells that hold no label: nothing, and among numbers NaN, and -1 unless it is a class."""
    numbers = {cell: value for cell in counts if (value := _number(cell)) is not None}
    absent: set[str] = {cell for cell in counts if not cell}
    if all(cell in numbers or cell in absent for cell in counts):
        absent |= {cell for cell, value in numbers.items() if math.isnan(value)}
    values = {value for value in numbers.values() if not math.isnan(value)}
    if not minus_one_is_a_class(values) and not rules.names("-1"):
        absent |= {cell for cell, value in numbers.items() if value == -1}
    return absent


def _number(cell: str) -> float | None:
    """The number, or NaN, that a cell stands for."""
    return float(cell) if _NUMBER.fullmatch(cell) else None


def _about_missing(times: Mapping[str, int]) -> list[str]:
    """What was taken for missing, and how to say that it is a class."""
    told = [f"{cell} is taken for missing in {count(number, 'cells')}" for cell, number in sorted(times.items())]
    if told and any(_number(cell) == -1 for cell in times):
        told[-1] += f" (if -1 is a class, list all with {spelled('classes')})"
    return told


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


def _check_rows_are_items(rows: list[list[str]]) -> None:
    """Refuse what is probably the answers to a form: a row for each person, and a column for each item."""
    own = [row[0] for row in rows[1:]]
    kinds = {"times": _TIME, "addresses of people": _ADDRESS}
    for what, pattern in kinds.items():
        if own and all(pattern.match(cell) for cell in own):
            raise ReadError(
                f"column {rows[0][0]!r} holds {what}: as in the answers to a form, each row seems to be a person and "
                f"each column an item. Turn rows and columns round, or say {spelled('format', 'dense')} if rows "
                "are items and columns are people",
                parameter="format",
            )


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
    cells = (cell in _SILENT or _number(cell) is not None for cell in first[1:])
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
    annotations, remarks = _of_array(matrix, options.rules)
    notes = [
        describe(annotations, len(annotations), {}, None),
        *([f"array {question!r}"] if question else []),
        *remarks,
    ]
    message = "; ".join(notes)
    return Export(
        annotations=annotations,
        columns={},
        gold=None,
        n_rows=len(annotations),
        message=message,
        question=question or None,
        kinds=kinds_of(annotations.n_annotators, named_models(range(annotations.n_annotators), options.kinds)[0]),
    )


def _of_array(matrix: Array, rules: LabelRules) -> tuple[Annotations, list[str]]:
    """The annotations in an array, by the rules for labels; and what was taken for missing."""
    missing, dropped = usual_missing(matrix)
    if dropped and rules.names("-1"):
        missing, dropped = (), 0
    rows, columns, cells, (n, width) = dense_columns(matrix, missing)
    label, _, remarks = resolved(rules, cells, None)
    kept = np.flatnonzero(label.data.is_valid().to_numpy())
    if not len(kept):
        raise ReadError("there are no annotations: all cells are empty")
    if len(kept) < len(rows):
        remarks = [f"left out: {len(rows) - len(kept):,} without a label", *remarks]
        rows, columns, label = rows[kept], columns[kept], label.take(kept)
    codes, classes = encode_classes(label, rules.vocabulary(label.data.type))
    ids = Vocabulary(n), Vocabulary(width)
    annotations = Annotations(rows.astype(np.int32), columns.astype(np.int32), codes, *ids, classes)
    return annotations, [*_about_missing({"-1": dropped} if dropped else {}), *remarks]


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npy file (under the name "") or an npz file."""
    if path.suffix.lower() == ".npy":
        return {"": read_npy(path, ReadError)}
    return read_npz(path, [name.removesuffix(".npy") for name in zip_parts(path) if name.endswith(".npy")], ReadError)
