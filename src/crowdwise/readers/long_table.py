"""Long tables as a format among others: one annotation per row, in columns with usual names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.annotations import Annotations
from crowdwise.data.codes import Codes, cells, count
from crowdwise.data.factorise import Column, decoded, is_number, is_plain, is_text, weights_of
from crowdwise.data.frames import ALIASES, ROW_ID, find_column, known_column
from crowdwise.data.types import Ints
from crowdwise.errors import AnnotationError, ReadError, spelled
from crowdwise.readers._collector import array_of, kinds_of, plain_column, without_repeats
from crowdwise.readers._export import (
    KIND_COLUMNS,
    MODEL,
    PICTURE_FIELDS,
    READERS,
    TEXT_FIELDS,
    Export,
    Reader,
    ReadOptions,
)
from crowdwise.readers._files import Columns
from crowdwise.readers._node import storable
from crowdwise.readers._source import InputFile, values_of
from crowdwise.readers.kinds import named_models
from crowdwise.readers.table import TableRead, describe, read_columns, some_rows

Rows = Ints
WEIGHT = "weight"
_FIGURES = re.compile(r"\s*-?[0-9][0-9.,]*\s*")  # what may be a number, however it is written
DETAILS: dict[str, tuple[str, ...]] = {
    "timestamp": ("timestamp", "createdat", "submittedat", "annotatedat", "submittime", "datetime", "date", "time"),
    "duration": ("duration", "leadtime", "seconds", "worktimeinseconds", "elapsed", "timespent"),
    "kind": KIND_COLUMNS,
    "confidence": ("confidence",),
    "text": TEXT_FIELDS,
    "picture": PICTURE_FIELDS,
}


@READERS.register("table")
class LongTable(Reader):
    """Columns are found by their usual names; others may hold gold, times, durations, kinds, texts and pictures."""

    summary = "tables with a row per annotation: CSV, TSV, XLSX, ODS, JSONL, JSON, Parquet, Arrow"
    rank = 2
    takes = ("instance", "annotator", "label", "gold", "weight")

    def detect(self, source: InputFile) -> str | None:
        usual = {**ALIASES, "instance": (*ALIASES["instance"], ROW_ID)}
        found = [find_column(aliases, source.names) for aliases in usual.values()]
        return f"it has the columns {', '.join(map(repr, found))}" if all(found) and len(set(found)) == 3 else None

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        if source.kind not in self.kinds:
            raise ReadError(f"a {source.kind} file is not a table with a row per annotation")
        roles: dict[str, str] = {}

        def further(names: Sequence[str]) -> Sequence[str]:
            if options.weight is not None or WEIGHT in names:
                roles["weight"] = known_column(options.weight or WEIGHT, "weight", names)
            for role in DETAILS if options.details else ("kind",):
                found = find_column(DETAILS[role], [name for name in names if name not in roles.values()])
                if found is not None:
                    roles[role] = found
            return list(names) if options.details else list(roles.values())

        chosen = {"instance": options.instance, "annotator": options.annotator}
        chosen["label"] = options.label or options.question
        text = source.is_text_table
        read, loaded, where = read_columns(
            source.path,
            source.columns,
            chosen,
            options.gold,
            further,
            typed=text,
            rules=options.rules,
            unnamed=source.layout.columns is not None,
        )
        return _export(read, loaded, where, roles, options)


def _export(
    read: TableRead, loaded: Columns, where: Callable[[int], str], roles: dict[str, str], options: ReadOptions
) -> Export:
    whole, everything = read.annotations, loaded
    every, gold, remark = whole, read.gold, ""
    if "weight" in roles:
        column = Column.of(loaded[roles["weight"]], f"column {roles['weight']!r}", where)
        every, kept, remark = _weighted(every, column, required=options.weight is not None)
        loaded = loaded if kept is None else {name: some_rows(values, kept) for name, values in loaded.items()}
        gold = _of_known(gold, every)
    more = {role: loaded[name] for role, name in roles.items()}
    if options.kinds is None and "kind" in more:
        models = _models(every.annotator, more["kind"])
    else:
        models, about = named_models(every.annotators.tolist(), options.kinds)
        remark += about
    annotations, rows = without_repeats(every, options.duplicates, where)
    n_rows = len(every)
    if models and not options.models:
        people = ~np.isin(annotations.annotator, list(models))
        if not people.any():
            raise ReadError(f"there are no annotations (left out: {len(people):,} by models)")
        rows = np.flatnonzero(people) if rows is None else rows[people]
        n_rows, models = int(people.sum()), set()
        remark += f"; left out: {int((~people).sum()):,} by models"
        annotations = _recoded(annotations.where(people), every)  # models are no longer annotators
        gold = _of_known(gold, annotations)
    if options.duplicates == "keep":
        remark += _about_copies(every, loaded if options.details else None)
    times, durations, confidences = (
        array_of(role, values_of(more[role]), rows) if role in more else None
        for role in ("timestamp", "duration", "confidence")
    )
    codes = whole.instance_codes(annotations.instance_vocabulary.arrow)
    texts, pictures = (
        _of_instances(everything[roles[role]], whole.instance, codes) if role in roles else None
        for role in ("text", "picture")
    )
    found = {"timestamp": times, "duration": durations, "text": texts, "picture": pictures, "kind": more.get("kind")}
    found |= {"weight": every.weight, "confidence": confidences}  # those that "share" makes have no column
    own = {role: roles[role] for role, values in found.items() if values is not None}
    columns = read.columns | own
    return Export(
        annotations=annotations,
        columns=columns,
        gold=gold,
        n_rows=n_rows,
        message=describe(annotations, n_rows, columns, gold) + read.message + remark,
        kinds=kinds_of(annotations.n_annotators, models),
        timestamps=times,
        durations=durations,
        confidences=confidences,
        texts=texts,
        pictures=pictures,
        extra=_extra({name: column for name, column in loaded.items() if name not in own.values()}, rows, options),
    )


def _of_known(gold: dict[Any, Any] | None, annotations: Annotations) -> dict[Any, Any] | None:
    """Gold of the instances that have annotations."""
    if gold is None:
        return None
    known = set(annotations.instance_vocabulary.arrow.to_pylist())
    return {one: truth for one, truth in gold.items() if one in known}


def _recoded(annotations: Annotations, every: Annotations) -> Annotations:
    """The annotations with instances and annotators numbered as they appear, and all classes."""
    table = annotations.to_frame()
    i, j, y = (Column.of(table[name], name) for name in ("instance", "annotator", "label"))
    return Annotations.from_columns(i, j, y, classes=every.class_vocabulary.arrow, weight=annotations.weight)


def _about_copies(every: Annotations, columns: Columns | None) -> str:
    """A remark on rows that are copies of earlier ones, as when an export is pasted twice."""
    if not every.n_duplicates:
        return ""
    pairs = cells(every.instance, every.n_annotators, every.annotator)
    keys = np.unique(
        cells(np.unique(pairs, return_inverse=True)[1], every.n_classes, every.label), return_inverse=True
    )[1]
    repeated = np.flatnonzero(np.bincount(keys)[keys] > 1)
    if columns is None:
        same = len(repeated) - len(np.unique(keys[repeated]))
        return f"; {count(same, 'rows')} with instance, annotator and label of an earlier one" if same else ""
    rows = [keys[repeated], *(_codes(column, repeated) for column in columns.values())]
    copies = len(repeated) - len(np.unique(np.stack(rows), axis=1).T)
    left_out = f"({spelled('duplicates', 'first')} leaves repeats out)"
    return f"; exact copies of earlier rows: {copies:,} {left_out}" if copies else ""


def _codes(column: Any, rows: Rows) -> Rows:
    """Equal numbers for equal values of a column, in some rows."""
    taken = some_rows(column, rows)
    if not isinstance(taken, list) and is_plain(decoded(taken).type):
        codes: Rows = pc.fill_null(decoded(taken).combine_chunks().dictionary_encode().indices, -1).to_numpy()
        return codes.astype(np.int64)
    return np.unique([repr(value) for value in values_of(taken)], return_inverse=True)[1].astype(np.int64)


def _extra(columns: Columns, rows: Rows | None, options: ReadOptions) -> pa.Table | None:
    """The columns without a role, in the rows that are kept."""
    if not options.details or not columns:
        return None
    table = pa.table({name: plain_column(column) for name, column in columns.items()})
    return table if rows is None else table.take(pa.array(rows))


def _weighted(every: Annotations, column: Column, *, required: bool) -> tuple[Annotations, Rows | None, str]:
    """The annotations with the weights of a column, their rows, and a remark.

    A column not asked for that holds no number at all is something else, and ignored; one that holds some must hold them all.
    Rows of weight 0 count nothing: an instance or annotator that has no others is not there.
    """
    column, remark = _numbers(column)
    try:
        weight = weights_of(column)
    except AnnotationError as error:
        if required or any(is_number(value) or _FIGURES.fullmatch(str(value)) for value in column.data.to_pylist()):
            raise
        return every, None, f"; weight not used: {error}"
    if not weight.any():
        raise ReadError(f"{column.name}: all weights are 0")
    rows = np.flatnonzero(weight)
    kept = every
    if len(rows) < len(every):
        kept = _recoded(every.where(weight > 0), every)
        remark += f"; left out: {len(every) - len(rows):,} of weight 0"
    return (kept if np.all(weight[rows] == 1) else replace(kept, weight=weight[rows])), rows, remark


def _numbers(column: Column) -> tuple[Column, str]:
    """Texts as numbers where they all are, also with decimal commas; and a remark on these."""
    column = replace(column, data=decoded(column.data))
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return replace(column, data=column.data.cast(pa.float64())), _about_thousands(column.data)
    if not is_text(column.data.type):
        return column, ""
    texts = pc.utf8_trim_whitespace(column.data)
    commas = pc.match_substring_regex(texts, "^[0-9]+,[0-9]+$")
    plain = pc.match_substring_regex(texts, "^[0-9]+$")
    thousands = pc.match_substring_regex(texts, "^[1-9][0-9]{0,2},[0-9]{3}$")
    decimal = pc.any(pc.and_(commas, pc.invert(thousands))).as_py()
    if not decimal or not pc.all(pc.or_(commas, plain)).as_py():
        return column, ""
    first = texts.filter(commas)[0].as_py()
    numbers = pc.replace_substring(texts, ",", ".").cast(pa.float64())
    return replace(
        column, data=numbers
    ), f"; weights have decimal commas: {first} is {float(first.replace(',', '.')):g}"


def _about_thousands(texts: pa.ChunkedArray) -> str:
    """A remark on weights such as 500 and 1.000, of which the second may be a thousand."""
    if not is_text(texts.type):
        return ""
    texts = pc.utf8_trim_whitespace(texts)
    grouped = pc.match_substring_regex(texts, r"^[1-9][0-9]{0,2}\.[0-9]{3}$")
    short = pc.match_substring_regex(texts, "^[0-9]{1,3}$")
    if not pc.any(grouped).as_py() or not pc.any(short).as_py():
        return ""
    if not pc.all(pc.or_(grouped, short)).as_py():
        return ""
    first = texts.filter(grouped)[0].as_py()
    return f"; weight {first} is read as {float(first):g}, but may be {first.replace('.', '')}"


def _models(annotator: npt.NDArray[np.int32], kinds: Any) -> set[int]:
    """Codes of the annotators that a column of kinds marks as models."""
    is_model = [isinstance(kind, str) and kind.strip().lower() == MODEL for kind in values_of(kinds)]
    return set(annotator[np.array(is_model, bool)].tolist())


def _of_instances(column: Any, instance: Codes, wanted: Codes) -> pa.Array | None:
    """The first text that a column has for each instance that is wanted, also in rows that count nothing; None if none has."""
    if isinstance(column, list):
        texts = [storable(value) if isinstance(value, str) else None for value in column]
        column = pa.chunked_array([pa.array(texts, pa.large_string())])
    column = decoded(column)
    if not is_text(column.type) or not len(column):
        return None
    rows = np.flatnonzero(column.is_valid().to_numpy())
    first = np.full(int(instance.max()) + 1 if len(instance) else 0, -1, np.int64)
    first[instance[rows[::-1]]] = rows[::-1]
    found = first[wanted]
    if not (found >= 0).any():
        return None
    places = pa.array(np.maximum(found, 0), mask=found < 0)
    return column.cast(pa.large_string()).take(places).combine_chunks()
