"""Long tables, one annotation per row: csv, tsv, jsonl, parquet, arrow, spreadsheets (text also as .gz and .zst)."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations, Duplicates
from crowdwise.data.codes import count
from crowdwise.data.factorise import Column, encode_classes, row_of
from crowdwise.data.frames import ALIASES, choose_columns, find_column, known_column, named_columns, namesakes
from crowdwise.data.label_rules import NO_RULES, LabelRules, resolved, similar_ids
from crowdwise.errors import AnnotationError, DataError, spelled
from crowdwise.readers._columnar import Choose
from crowdwise.readers._doubts import (
    about_doubtful_ids,
    about_doubtful_rows,
    about_header_copies,
    without_header_copies,
)
from crowdwise.readers._files import WRITTEN, Columns, format_of, load_columns
from crowdwise.readers._row_ids import columns_by_content
from crowdwise.readers._text import packing
from crowdwise.storage import files
from crowdwise.storage.text import inert_table

ROWS_OF_HEADER = 3  # rows or fewer do not tell that the first is a header
_ROUNDED = r"^-?[0-9]([.,][0-9]+)?[eE]\+[0-9]{2,}$"
WIDEST = 1000  # columns among which instances, annotators and labels are looked for by content
GOLD = (
    *("gold", "golden", "goldlabel", "goldenlabel", "goldstandard", "truelabel", "trueclass", "truth", "truthlabel"),
    *("groundtruth", "groundtruthlabel"),
)


@dataclass(frozen=True)
class TableRead:
    """What `read_table` found in a file."""

    annotations: Annotations
    columns: dict[str, str]
    """Role (instance, annotator, label, gold) -> column."""
    gold: dict[Any, Any] | None
    """Instance -> true class, in the user's ids, for instances with gold; None without a gold column."""
    n_rows: int
    message: str
    """One line that says what was read, and from which columns."""


def read_table(
    path: str | os.PathLike[str],
    *,
    instance: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    gold: str | None = None,
    duplicates: Duplicates = "keep",
) -> TableRead:
    """Read a long table of annotations; the suffix decides the format.

    Columns that are not named are found by their usual names, as in `Annotations.from_frame`. A column named gold,
    true_label, truth or ground_truth is used as gold if its values are labels and agree within every instance; a
    column named by ``gold`` must be like that, and may add classes that nobody chose. In text tables, integers become
    numbers if nothing is lost (007 stays text), and empty cells are missing values. Rows without a label are left out,
    and counted in the message. Error messages count records from 1, without the header.
    """
    path = Path(path)
    chosen = {"instance": instance, "annotator": annotator, "label": label}
    read, _, where = read_columns(path, partial(load_columns, path), chosen, gold)
    with naming(path):
        annotations = read.annotations.deduplicated(duplicates, where)
    message = f"{path.name}: {describe(annotations, read.n_rows, read.columns, read.gold)}{read.message}"
    return replace(read, annotations=annotations, message=message)


def read_columns(
    path: Path,
    load: Callable[[Choose], Columns],
    chosen: Mapping[str, str | None],
    gold: str | None,
    further: Choose = lambda _: (),
    *,
    typed: bool | None = None,
    rules: LabelRules = NO_RULES,
    unnamed: bool = False,
) -> tuple[TableRead, Columns, Callable[[int], str]]:
    """All rows with a label, repeats included (the message holds only remarks), further columns, and names of rows.

    ``further`` picks among the remaining columns. ``typed``: all columns are text, some of which may stand for
    integers, as in csv files. ``unnamed``: the user named the columns, as there is no header. Columns that
    neither the user nor their names tell are guessed by content.
    """
    columns: dict[str, str] = {}
    others: list[str] = []
    known: dict[str, str] = {}
    remarks: list[str] = []
    text = typed or (typed is None and format_of(path) in ("csv", "tsv", "sheet"))

    def choose(names: Sequence[str]) -> Sequence[str]:
        known.update(named_columns(names, chosen))
        if names and len(known) < len(ALIASES) and len(names) <= WIDEST:
            return list(names)  # all of them, to guess by content
        return settle(names, choose_columns(names, chosen))

    def settle(names: Sequence[str], found: Mapping[str, str]) -> Sequence[str]:
        columns.update(found)
        for role in ALIASES:
            twins = namesakes(columns[role], names) if chosen.get(role) is None else []
            if twins:
                remarks.append(f"column {twins[0]!r} differs from {columns[role]!r} by case only, which is the {role}")
            numbered = f"{columns[role]}.1"  # what pandas calls the second column of a name
            if numbered in names:
                remarks.append(f"column {numbered!r} may be a second column {columns[role]!r}, and is not the {role}")
        free = [name for name in names if name not in columns.values()]
        truth = find_column(GOLD, free) if gold is None else known_column(gold, "gold", names)
        if truth is not None:
            columns["gold"] = truth
        others.extend(further([name for name in free if name != truth]))
        return list(dict.fromkeys([*columns.values(), *others]))

    with naming(path):
        loaded = load(choose)
        if not columns:
            truths_in = (gold, find_column(GOLD, list(loaded)))
            guess, said = columns_by_content(loaded, known, truths_in, text=bool(text))
            settle(list(loaded), guess)
            remarks += [said] if said else []
        read = {role: Column.of(loaded[name], f"column {name!r}", record_name) for role, name in columns.items()}
        if not len(read["instance"].data):
            raise DataError(f"{path}: the table has columns but no rows")
        copies = 0
        first_may_be_a_header = False
        if text:
            _check_rounded(read["instance"], read["annotator"])
            read, copies = without_header_copies(read, columns, list(ALIASES))
        if unnamed:
            headers = _header_among_rows([read[role] for role in ALIASES])
            first_may_be_a_header = bool(headers)
            remarks += headers
        sure = gold is not None
        read["label"], truth, more = resolved(rules, read["label"], read.get("gold"), sure=sure, checked=sure)
        if truth is not None:
            read["gold"] = _numbers_like(truth, read["label"])
        read, loaded, where, blank = _labelled(read, {name: loaded[name] for name in others})
        blank -= copies
        if text:
            read = _typed(read)
        every, truths, note = _with_gold(read, rules, required=gold is not None)
    remarks += _all_of_one(every, columns)
    remarks += [about_header_copies(copies)] if copies else []
    remarks += [f"left out: {blank:,} without a label"] if blank else []
    remarks += [*more, *look_alikes(every)]
    remarks += about_doubtful_rows(every, where, 0 if first_may_be_a_header else None)
    if truths is None:
        columns.pop("gold", None)
    message = note + "".join(f"; {remark}" for remark in remarks)
    return TableRead(every, columns, truths, len(every), message), loaded, where


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors in annotations name the file."""
    try:
        yield
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}", parameter=error.parameter) from error


def _header_among_rows(columns: Sequence[Column]) -> list[str]:
    """A remark on a first record whose values occur in no other: it may be a header that is not recognised."""
    first = [column.data[0] for column in columns]
    again = any(
        pc.any(pc.equal(column.data.slice(1), value)).as_py() for column, value in zip(columns, first, strict=True)
    )
    if again or len(columns[0].data) <= ROWS_OF_HEADER or not all(value.is_valid for value in first):
        return []
    shown = ", ".join(repr(value.as_py()) for value in first)
    return [f"record 1 ({shown}) is read as a row, but may be a header: none of its values occurs again"]


def _all_of_one(every: Annotations, columns: Mapping[str, str]) -> list[str]:
    """A remark on labels that are all of one instance, or all by one annotator, where most repeat an earlier one."""
    remarks = []
    for role, size in (("instance", every.n_instances), ("annotator", every.n_annotators)):
        if size == 1 and 2 * every.n_duplicates >= len(every):
            vocabulary = every.instance_vocabulary if role == "instance" else every.annotator_vocabulary
            remarks.append(
                f"all labels have the same {role}, {vocabulary.arrow[0].as_py()!r}: if {columns[role]!r} is not the column of "
                f"the {role}, name that with {spelled(role, 'COLUMN')}"
            )
    return remarks


def _check_rounded(*columns: Column) -> None:
    """Refuse long ids that a spreadsheet has rounded: different ones may have become the same."""
    for column in columns:
        row = row_of(pc.fill_null(pc.match_substring_regex(column.data, _ROUNDED), False))
        if row >= 0:
            raise column.error(
                row,
                f"{column.data[row].as_py()!r} is an id that a spreadsheet has rounded, which keeps 15 digits of a number: "
                "format the column as text before you fill it in",
            )


def look_alikes(annotations: Annotations) -> list[str]:
    """Remarks on ids that may be the same one, and on those that may be none."""
    people, things = annotations.annotator_vocabulary, annotations.instance_vocabulary
    same = filter(None, (similar_ids(people, "annotators"), similar_ids(things, "instances")))
    return [*same, *about_doubtful_ids(annotations)]


def _labelled(read: dict[str, Column], more: Columns) -> tuple[dict[str, Column], Columns, Callable[[int], str], int]:
    """The rows that have a label, how each is called, and how many have none."""
    given = read["label"].data.is_valid()
    blank = len(given) - int(pc.sum(given).as_py() or 0)
    if not blank:
        return read, more, record_name, 0
    if blank == len(given):
        raise AnnotationError(f"there are no annotations (left out: {blank:,} without a label)")
    rows = np.flatnonzero(given.to_numpy())
    kept = {role: column.take(rows) for role, column in read.items()}
    return kept, {name: some_rows(column, rows) for name, column in more.items()}, kept["label"].where, blank


def some_rows(column: Any, rows: Any) -> Any:
    """Some rows of a loaded column."""
    return [column[row] for row in rows.tolist()] if isinstance(column, list) else column.take(pa.array(rows))


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a table; the suffix decides the format. The file appears whole or not at all."""
    path = Path(path)
    kind = format_of(path, WRITTEN)
    with replacing(path) as file:
        try:
            _write(table, kind, file)
        except pa.ArrowException as error:
            raise DataError(f"{path}: cannot be written as {kind}: {error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, packed if its suffix says so, that replaces ``path`` once it is complete."""
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist")
    with files.replacing(path) as temporary, _opened(temporary, packing(path)) as file:
        yield file


def _opened(path: Path, packed: str) -> Any:
    if packed == ".gz":
        return gzip.GzipFile(path, "wb")
    return pa.CompressedOutputStream(str(path), "zstd") if packed else path.open("wb")


def record_name(row: int) -> str:
    """A row of a table, for messages."""
    return f"record {row + 1}"


def _typed(columns: dict[str, Column]) -> dict[str, Column]:
    """Text columns as integers if they hold integers; labels and gold get the same type, to be comparable."""
    typed = {role: integers(column, whole=role in ("label", "gold")) for role, column in columns.items()}
    if "gold" in typed and typed["gold"].data.type != typed["label"].data.type:
        typed["gold"], typed["label"] = columns["gold"], columns["label"]
    return typed


def whole_numbers(text: Any) -> Any:
    """Arrow text in which 1.0 is written 1."""
    return pc.replace_substring_regex(text, r"^(-?\d+)\.0+$", r"\1")


def integers(column: Column, *, whole: bool) -> Column:
    """A text column as int64 if every value survives the round trip; ``whole`` also reads 1.0 as 1."""
    text = numbers = column.data
    for part in (text.slice(0, 100), text):  # the head first: it rules out most columns of names
        text = whole_numbers(part) if whole else part
        try:
            numbers = text.cast(pa.int64())
        except pa.ArrowInvalid:
            return column
    return replace(column, data=numbers) if numbers.cast(text.type).equals(text) else column


def _with_gold(
    columns: dict[str, Column], rules: LabelRules, *, required: bool
) -> tuple[Annotations, dict[Any, Any] | None, str]:
    """Annotations of all rows, the gold labels, and a remark if a column that looks like gold is not."""
    i, j, y = columns["instance"], columns["annotator"], columns["label"]
    classes = rules.vocabulary(y.data.type)
    if "gold" not in columns:
        return Annotations.from_columns(i, j, y, classes=classes), None, ""
    given = np.flatnonzero(columns["gold"].data.is_valid().to_numpy())
    gold = columns["gold"].take(given)
    if required:
        classes = _all_classes(y, gold, classes)
    every = Annotations.from_columns(i, j, y, classes=classes)
    try:
        truths = truths_of(every, every.instance[given], every.class_vocabulary.lookup(gold), gold)
    except AnnotationError as error:
        if required:
            raise
        return every, None, f" (not taken for gold: {error})"
    return every, truths, ""


def _numbers_like(gold: Column, label: Column) -> Column:
    """Gold numbers in the type of the labels: programs make floats of whole numbers where some are missing."""
    mine, other = label.data.type, gold.data.type
    numbers = (pa.types.is_integer, pa.types.is_floating)
    if mine == other or not all(any(is_a(kind) for is_a in numbers) for kind in (mine, other)):
        return gold
    try:
        return replace(gold, data=gold.data.cast(mine))
    except pa.ArrowInvalid:  # 1.5 is none of the labels 1 and 2
        return gold


def _all_classes(label: Column, gold: Column, listed: pa.Array | None) -> pa.Array:
    """The classes that the user lists, else those of labels and of gold, which may be some that nobody chose."""
    _, labels = encode_classes(label, listed)
    _, truths = encode_classes(gold, None)
    if labels.size and truths.size and labels.arrow.type != truths.arrow.type:
        raise AnnotationError(
            f"{gold.name}: gold such as {truths.arrow[0].as_py()!r} is {truths.arrow.type}, "
            f"but labels such as {labels.arrow[0].as_py()!r} are {labels.arrow.type}"
        )
    both = pa.chunked_array([v.arrow for v in (labels, truths) if v.size])
    return encode_classes(Column(both, label.name), None)[1].arrow if listed is None else listed


def truths_of(annotations: Annotations, instance: Any, truth: Any, column: Column) -> dict[Any, Any]:
    """Instance id -> class id, from codes (k,), which may repeat but not contradict each other; errors are the column's."""
    first = np.full(annotations.n_instances, -1, np.int32)
    first[instance[::-1]] = truth[::-1]
    conflicts = np.flatnonzero(first[instance] != truth)
    if conflicts.size:
        k = int(conflicts[0])
        name, one, other = annotations.instances[instance[k]], first[instance[k]], truth[k]
        raise column.error(
            k,
            f"instance {str(name)!r} has gold {str(annotations.classes[other])!r}, "
            f"but {str(annotations.classes[one])!r} before",
        )
    codes = np.flatnonzero(first >= 0)
    ids = annotations.instance_vocabulary.take(codes).to_pylist()
    return dict(zip(ids, annotations.class_vocabulary.take(first[codes]).to_pylist(), strict=True))


def describe(
    annotations: Annotations, n_rows: int, columns: Mapping[str, str], truths: Mapping[Any, Any] | None
) -> str:
    """Sizes, columns, gold and repeats, for a message."""
    taken = ", ".join(f"{role} = {name!r}" for role, name in columns.items())
    sizes = (
        f"{count(len(annotations), 'annotations')} of {count(annotations.n_instances, 'instances')} "
        f"by {count(annotations.n_annotators, 'annotators')}, {count(annotations.n_classes, 'classes')}"
    )
    remarks = "" if truths is None else f"; gold for {count(len(truths), 'instances')}"
    if n_rows > len(annotations):
        remarks += f"; dropped {count(n_rows - len(annotations), 'repeats')}"
    elif annotations.n_duplicates:
        remarks += f"; kept {count(annotations.n_duplicates, 'repeats')}"
    return f"{sizes}; {taken}{remarks}" if taken else sizes + remarks


def _write(table: pa.Table, kind: str, file: IO[bytes]) -> None:
    if kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, file)
    elif kind == "arrow":
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    elif kind == "jsonl":
        for batch in table.to_batches(max_chunksize=65536):
            file.write(_json_lines(batch))
    else:
        from pyarrow import csv

        csv.write_csv(inert_table(table), file, csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))


def _json_lines(batch: pa.RecordBatch) -> bytes:
    """One JSON object per row; NaN and infinity, which JSON does not have, become null."""
    columns = [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in column.to_pylist()]
        for column in batch.columns
    ]
    encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
    names = batch.schema.names
    lines = [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return "".join(line + "\n" for line in lines).encode()
