"""The content of a file: a table, JSON records, or files in a zip file; by the standard library, Parquet and Arrow by pyarrow."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq

from differential.values import Refused

TEXTS = {"csv": None, "txt": None, "psv": None, "tsv": "\t", "tab": "\t"}
SEPARATORS = ",;\t|"
WORDS = {"tab": "\t", "semicolon": ";", "pipe": "|", "comma": ",", "space": " "}
MARKS = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
Record = dict[str, Any]


@dataclass
class Table:
    """The names of columns and a record for each row. ``is_text``: cells are texts that may stand for numbers."""

    names: list[str]
    records: list[Record]
    is_text: bool


def suffix_of(name: str) -> str:
    return name.lower().removesuffix(".gz").rpartition(".")[2]


def is_json(name: str) -> bool:
    return suffix_of(name) in ("json", "jsonl", "ndjson")


def open_table(name: str, data: bytes, options: Mapping[str, Any]) -> Table:
    """A file as a table."""
    kind = suffix_of(name)
    if kind in TEXTS:
        return _delimited(_text(name, data, options), TEXTS[kind], options)
    if kind == "xlsx":
        return _sheet(data, options)
    if kind in ("parquet", "pq"):
        return _typed(pq.read_table(io.BytesIO(data)))
    if kind in ("arrow", "feather", "ipc"):
        file = data.startswith(b"ARROW1")
        opened = pa.ipc.open_file if file else pa.ipc.open_stream
        return _typed(opened(pa.BufferReader(data)).read_all())
    records = open_records(name, data)
    names = list(dict.fromkeys(key for record in records for key in record))
    return Table(names, [{name: record.get(name) for name in names} for record in records], False)


def open_records(name: str, data: bytes) -> list[Record]:
    """The records of a JSON file: a list, or one in each line."""
    text = _text(name, data, {}).strip()
    if text.startswith("["):
        found = json.loads(text)
    else:
        found = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not found:
        raise Refused("no records")
    return list(found)


def open_parts(data: bytes) -> dict[str, bytes]:
    """The files in a zip file."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in sorted(file.namelist())}


def _text(name: str, data: bytes, options: Mapping[str, Any]) -> str:
    if name.lower().endswith(".gz"):
        data = gzip.decompress(data)
    encoding = options.get("encoding")
    if encoding is None:
        encoding = next((codec for mark, codec in MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Refused(str(error)) from error


def _delimited(text: str, usual: str | None, options: Mapping[str, Any]) -> Table:
    separator = options.get("separator") or usual
    separator = WORDS.get(separator, separator)
    if separator is None:
        separator = next((mark for mark in SEPARATORS if _fits(text, mark)), None)
    if separator is None:
        first = text.lstrip().splitlines()[0]
        separator = next((mark for mark in SEPARATORS if mark in first), ",")
    return _below(_rows(text, separator), options)


def _rows(text: str, separator: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row]
    except csv.Error as error:
        if separator == "\t":  # quotes that are not balanced are text
            return [line.split("\t") for line in text.splitlines() if line]
        raise Refused(f"not readable: {error}") from error


def _fits(text: str, separator: str) -> bool:
    """Whether a separator gives all lines the same number of cells, two or more."""
    try:
        widths = {len(row) for row in _rows(text, separator)}
    except Refused:
        return False
    return len(widths) == 1 and widths.pop() > 1


def _below(rows: list[list[Any]], options: Mapping[str, Any]) -> Table:
    """A header and the records below it; ``columns`` names those of a file without a header."""
    if not rows:
        raise Refused("the file is empty")
    names = options.get("columns")
    if names is None:
        names, rows = [str(cell or "") for cell in rows[0]], rows[1:]
    elif len(rows[0]) != len(names):
        raise Refused(f"{len(names)} names for {len(rows[0])} columns")
    elif rows[0] == list(names):
        rows = rows[1:]
    if len(set(names)) < len(names):
        raise Refused("two columns have the same name")
    for row in rows:
        if len(row) != len(names):
            raise Refused(f"{len(row)} cells, but {len(names)} columns")
    records = [dict(zip(names, (None if cell == "" else cell for cell in row), strict=True)) for row in rows]
    return Table(list(names), records, True)


def _typed(table: pa.Table) -> Table:
    names = table.column_names
    if len(set(names)) < len(names):
        raise Refused("two columns have the same name")
    columns = {}
    for name in names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns[name] = column.to_pylist()
    return Table(names, [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)], False)


def sheets_of(data: bytes) -> dict[str, list[list[Any]]]:
    """Name of sheet -> rows of texts, without rows and columns that are empty; hidden sheets come last."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        book = ElementTree.fromstring(file.read("xl/workbook.xml"))
        sheets = [element.attrib for element in book.iter() if element.tag.endswith("}sheet")]
        parts = {about["name"]: f"xl/worksheets/sheet{k}.xml" for k, about in enumerate(sheets, 1)}
        seen = [about["name"] for about in sheets if about.get("state") is None]
        unseen = [about["name"] for about in sheets if about.get("state") is not None]
        return {name: _cells(file.read(parts[name])) for name in [*seen, *unseen]}


def _cells(data: bytes) -> list[list[Any]]:
    found: dict[tuple[int, int], str] = {}
    for cell in ElementTree.fromstring(data).iter():
        if not cell.tag.endswith("}c"):
            continue
        letters, row = re.fullmatch(r"([A-Z]+)(\d+)", cell.attrib["r"]).groups()  # type: ignore[union-attr]
        text = "".join(cell.itertext())
        if cell.attrib.get("t") == "b":
            text = "true" if text == "1" else "false"
        elif cell.attrib.get("t") != "inlineStr" and re.fullmatch(r"-?\d+\.0", text):
            text = text[:-2]  # a whole number is stored either way
        if text:
            found[int(row), _place(letters)] = text
    rows = sorted({y for y, _ in found})
    columns = sorted({x for _, x in found})
    return [[found.get((y, x)) for x in columns] for y in rows]


def _place(letters: str) -> int:
    place = 0
    for letter in letters:
        place = place * 26 + ord(letter) - 64
    return place


def sheet_rows(data: bytes, options: Mapping[str, Any]) -> list[list[Any]]:
    """The sheet that is asked for, else the first that holds something."""
    sheets = sheets_of(data)
    wanted = options.get("sheet")
    if wanted is not None and wanted not in sheets:
        raise Refused(f"no sheet {wanted!r}")
    rows = sheets[wanted] if wanted is not None else next((rows for rows in sheets.values() if rows), [])
    if not rows:
        raise Refused("the sheet is empty")
    return rows


def _sheet(data: bytes, options: Mapping[str, Any]) -> Table:
    rows = sheet_rows(data, options)
    rows[0] = [(cell or "").strip() if options.get("columns") is None else cell for cell in rows[0]]
    return _below(rows, options)


def text_rows(name: str, data: bytes, options: Mapping[str, Any]) -> list[list[Any]]:
    """All rows of a text file or sheet as they are, for a matrix."""
    if suffix_of(name) == "xlsx":
        return sheet_rows(data, options)
    text = _text(name, data, options)
    separator = options.get("separator") or TEXTS[suffix_of(name)]
    separator = WORDS.get(separator, separator) or next((mark for mark in SEPARATORS if _fits(text, mark)), ",")
    return [[cell.strip() for cell in row] for row in _rows(text, separator)]
