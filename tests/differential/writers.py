"""Rows -> the bytes of a file, in every form in which tables of labels come."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Sequence[Sequence[Any]]
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MOMENT = (2026, 1, 2, 10, 0, 0)  # of all files in a zip file: the same case is the same bytes


def delimited(
    rows: Rows,
    separator: str = ",",
    *,
    quoting: int = csv.QUOTE_MINIMAL,
    newline: str = "\n",
    encoding: str = "utf-8",
    packed: bool = False,
    blank_lines: bool = False,
    last_newline: bool = True,
) -> bytes:
    """Rows as text; None is an empty cell. ``newline`` may be "mixed": two kinds by turns."""
    sink = io.StringIO()
    ends = ("\n", "\r\n") if newline == "mixed" else (newline, newline)
    for number, row in enumerate(rows):
        end = ends[number % 2]
        writer = csv.writer(sink, delimiter=separator, quoting=quoting, lineterminator=end)
        writer.writerow(["" if cell is None else cell for cell in row])
        if blank_lines and number % 3 == 1:
            sink.write(end)
    text = sink.getvalue()
    if not last_newline:
        text = text.removesuffix("\n").removesuffix("\r")
    data = text.encode(encoding)
    return gzip.compress(data, mtime=0) if packed else data


def json_lines(records: Sequence[Mapping[str, Any]], *, ascii_only: bool = False, packed: bool = False) -> bytes:
    data = "".join(json.dumps(record, ensure_ascii=ascii_only) + "\n" for record in records).encode()
    return gzip.compress(data, mtime=0) if packed else data


def json_list(records: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(list(records), ensure_ascii=False, indent=1).encode()


def parquet(table: pa.Table, *, row_group: int | None = None) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group)
    return sink.getvalue()


def pandas_parquet(table: pa.Table, index: Sequence[str]) -> bytes:
    """As pandas writes it, with some columns as the index, or with an index that numbers the rows backwards."""
    frame = table.to_pandas(date_as_object=True)
    frame = frame.set_index(list(index)) if index else frame.set_axis(range(len(frame), 0, -1))
    return bytes(frame.to_parquet())


def arrow(table: pa.Table, *, stream: bool = False) -> bytes:
    sink = io.BytesIO()
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opened(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def zipped(parts: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(zipfile.ZipInfo(name, MOMENT), data)
    return sink.getvalue()


def xlsx(sheets: Mapping[str, Rows], hidden: Collection[str] = ()) -> bytes:
    """A spreadsheet; numbers and booleans are stored as such, texts in their cells, None is an empty cell."""
    state = {name: ' state="hidden"' if name in hidden else "" for name in sheets}
    names = "".join(
        f'<sheet name="{escape(name, {chr(34): "&quot;"})}" sheetId="{k}"{state[name]} r:id="rId{k}"/>'
        for k, name in enumerate(sheets, 1)
    )
    relations = "".join(
        f'<Relationship Id="rId{k}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{k}.xml"/>'
        for k in range(1, len(sheets) + 1)
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{relations}</Relationships>',
    }
    for k, rows in enumerate(sheets.values(), 1):
        lines = ""
        for y, row in enumerate(rows, 1):
            cells = "".join(_cell(value, f"{_letters(x)}{y}") for x, value in enumerate(row) if value is not None)
            lines += f'<row r="{y}">{cells}</row>'
        parts[f"xl/worksheets/sheet{k}.xml"] = f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'
    return zipped({name: text.encode() for name, text in parts.items()})


def _cell(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{place}"><v>{value!r}</v></c>'
    text = escape(str(value)).replace("\r", "&#13;")
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'


def _letters(place: int) -> str:
    """The name of a column: A, B, ..., Z, AA, ..."""
    more, last = divmod(place, 26)
    return (_letters(more - 1) if more else "") + chr(65 + last)
