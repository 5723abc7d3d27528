"""Columns of csv, tsv, jsonl, parquet, arrow and spreadsheet files; errors say where a file is broken."""

from __future__ import annotations

import csv
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.errors import DataError, spelled
from crowdwise.readers._columnar import Choose, arrow_names, parquet_names, read_arrow, read_parquet
from crowdwise.readers._node import parse_text
from crowdwise.readers._quotes import quotes
from crowdwise.readers._sheets import SHEETS, read_sheet
from crowdwise.readers._text import PLAIN, Layout, arrow_input, bare_suffix, head, lines, open_text, packing
from crowdwise.storage.text import restored

Columns = dict[str, Any]  # name -> arrow column, or list of Python values

_SUFFIXES = {"csv": (), "tsv": ("tab",), "jsonl": ("ndjson",), "parquet": ("pq",), "arrow": ("feather", "ipc")}
WRITTEN = {suffix: kind for kind, others in _SUFFIXES.items() for suffix in (kind, *others)}
FORMATS = WRITTEN | {"txt": "csv", "psv": "csv"} | dict.fromkeys(SHEETS, "sheet")
NESTED = 500  # brackets in a line beyond which arrow might crash
DAMAGE = (pa.ArrowException, OSError, EOFError, csv.Error, zlib.error, UnicodeError)  # what broken files raise
_ENCLOSED = r'^[ \t]+"((?:[^"]|"")*)"[ \t]*$'
BLOCK = 1 << 24  # bytes that arrow's text readers take at a time: the longest record that can be read


def format_of(path: Path, known: dict[str, str] = FORMATS) -> str:
    """The format a file's suffix stands for; ``.gz`` or ``.zst`` may follow the suffix of a text file.

    >>> format_of(Path("crowd.TSV.gz"))
    'tsv'
    """
    kind = known.get(bare_suffix(path))
    if kind is None or (packing(path) and kind not in ("csv", "tsv", "jsonl")):
        names = ", ".join(f".{suffix}" for suffix in known)
        raise DataError(f"{path}: unknown format; known: {names}, and .gz and .zst of the text formats")
    return kind


def load_columns(path: Path, choose: Choose, layout: Layout = PLAIN) -> Columns:
    """The columns that ``choose`` picks; the suffix decides the format."""
    kind = format_of(path)
    check_file(path)
    with _explained(path, kind):
        if kind == "parquet":
            return dict(read_parquet(path, choose))
        if kind == "arrow":
            return dict(read_arrow(path, choose))
        if kind == "sheet":
            columns = read_sheet(path, layout).columns()
            return {name: pa.chunked_array([pa.array(columns[name], pa.string())]) for name in choose(list(columns))}
        return _jsonl(path, choose, layout) if kind == "jsonl" else _delimited(path, choose, layout)


def schema_names(path: Path) -> list[str]:
    """Column names of a parquet or arrow file; no values are read."""
    kind = format_of(path)
    with _explained(path, kind):
        return parquet_names(path) if kind == "parquet" else arrow_names(path)


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise DataError(f"{path}: cannot be read as {kind}: {error}") from error


def check_file(path: Path) -> None:
    """Refuse a file that is missing or empty."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")


def _delimited(path: Path, choose: Choose, layout: Layout) -> Columns:
    from pyarrow import csv as arrow_csv

    about = head(path, layout)
    names, delimiter = about.names, about.separator
    repeated = [name for name, number in Counter(names).items() if number > 1]
    if repeated:
        raise DataError(
            f"{path}: the header names column {repeated[0]!r} twice; if the file has no header, name the columns with "
            f"{spelled('columns', 'item,annotator,label')}",
            parameter="columns",
        )
    wanted = list(choose(names))
    own = {"column_names": names, "skip_rows": about.data} if about.own else {}
    enclose = quotes(path, layout).enclose

    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    def read(use_threads: bool) -> pa.Table:
        # All columns are read as text: type inference would turn the id 007 into 7.
        with arrow_input(path, layout) as file:
            return arrow_csv.read_csv(
                file,
                read_options=arrow_csv.ReadOptions(block_size=BLOCK, use_threads=use_threads, **own),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=delimiter,
                    quote_char='"' if enclose else False,
                    newlines_in_values=enclose,
                    invalid_row_handler=refuse,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )

    try:
        table = read(True)
    except pa.ArrowInvalid as error:
        for _ in lines(path, layout):  # which finds what is not in its encoding
            pass
        wrong.clear()
        with suppress(pa.ArrowInvalid):
            read(False)  # arrow only counts records without threads
        problem = (
            f"{path}: cannot be read: {error}"
            if not wrong
            else _width(path, wrong[0], about.data if own else 1, headed=layout.columns is None)
        )
        raise DataError(problem) from error
    return {name: restored(_unquoted(table.column(name))) for name in wanted}


def _unquoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without quotes that enclose a field after a blank, as in ``1, "a"``."""
    if not pc.any(pc.match_substring(column, '"')).as_py():
        return column
    enclosed = pc.match_substring_regex(column, _ENCLOSED)
    inner = pc.replace_substring(pc.replace_substring_regex(column, _ENCLOSED, r"\1"), '""', '"')
    return pc.if_else(enclosed, inner, column)


def _width(path: Path, row: Any, before: int, *, headed: bool) -> str:
    """What is wrong with a record that has too few or too many fields; there are lines ``before`` the first."""
    text = row.text if len(row.text) <= 80 else row.text[:77] + "..."
    expected = f"{'the header has' if headed else 'expected'} {row.expected_columns}"
    return f"{path}, record {row.number - before}: {row.actual_columns} fields, but {expected}: {text!r}"


def _jsonl(path: Path, choose: Choose, layout: Layout) -> Columns:
    from pyarrow import json as arrow_json

    if _crashes_arrow(path, layout):
        return _jsonl_by_line(path, choose, layout)
    try:
        with arrow_input(path, layout) as file:
            table = arrow_json.read_json(file, read_options=arrow_json.ReadOptions(block_size=BLOCK))
        if not table.num_rows:
            raise DataError(f"{path}: the file has no records")
        wanted = choose(table.column_names)
        columns = {name: table.column(name) for name in wanted}
        for column in columns.values():
            column.validate(full=True)  # arrow's reader does not check the encoding
    except pa.ArrowInvalid:
        return _jsonl_by_line(path, choose, layout)
    if any(pa.types.is_temporal(column.type) or _rounded(column) for column in columns.values()):
        return _jsonl_by_line(path, choose, layout)  # arrow reads ids like "2026-01-02" as times
    return columns


def _crashes_arrow(path: Path, layout: Layout) -> bool:
    """Whether arrow's JSON reader might crash: it does on null instead of a record, and on very deep nesting."""
    with open_text(path, layout) as file:
        while block := file.read(BLOCK) + file.readline():
            characters = np.frombuffer(block, np.uint8)
            starts = np.append(0, np.flatnonzero(characters[:-1] == ord("\n")) + 1)
            usual = b"\r" not in block and bool((characters[starts] == ord("{")).all())
            if not usual and re.search(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])[ \t]*null", block):
                return True
            brackets = np.add.reduceat((characters == ord("[")) | (characters == ord("{")), starts, dtype=np.int32)
            if brackets.max() > NESTED:
                return True
    return False


def _rounded(column: pa.ChunkedArray) -> bool:
    """Whether arrow may have lost digits of a number: integers beyond 64 bits become floats."""
    if not pa.types.is_floating(column.type):
        return False
    largest = pc.max(pc.abs(column)).as_py()
    return largest is not None and largest >= 2**53


def _jsonl_by_line(path: Path, choose: Choose, layout: Layout) -> Columns:
    """Read what arrow cannot: either only unwanted fields are at fault, or the error gets a place."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines(path, layout), start=1):
        if not line.strip():
            continue
        record = parse_text(line, f"{path}, ", number, DataError)
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: expected an object {{...}}, got {line.strip()[:40]!r}")
        records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in choose(list(names))}
