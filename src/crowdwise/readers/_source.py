"""A file to read: its kind, and its records, columns or parts."""

from __future__ import annotations

import codecs
import csv
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

import pyarrow as pa

from crowdwise.errors import ReadError, spelled
from crowdwise.readers._columnar import Choose
from crowdwise.readers._files import DAMAGE, FORMATS, Columns, check_file, format_of, load_columns, schema_names
from crowdwise.readers._node import Node, checked, parse_json, parse_jsonl
from crowdwise.readers._quotes import quotes
from crowdwise.readers._sheets import read_sheet
from crowdwise.readers._text import (
    PACKED,
    PLAIN,
    UTF8,
    Layout,
    bare_suffix,
    encoding_of,
    head,
    lines,
    open_text,
    packing,
)
from crowdwise.storage.limits import too_large, unpack_limit

DOCUMENT = 1 << 32  # bytes of a JSON document, or of all files of a folder: they are held in memory
PARTS = 10_000  # files in a zip file
TEXT = ("csv", "tsv")
SHEET = "sheet"
TABLES = ("csv", "tsv", "jsonl", "parquet", "arrow", SHEET)
OTHERS = ("json", "npy", "npz", "zip")
ZIPPED = ("eval",)  # suffixes of tools whose files are zip files
ARCHIVES = ("zip", "folder")
STDIN = "-"
_SIGNS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\x93NUMPY": ".npy",
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".xlsx",
}


class InputFile:
    """A path, and its content in whatever form a reader asks for."""

    def __init__(self, path: Path, layout: Layout = PLAIN) -> None:
        self.path, self.layout = path, layout

    @cached_property
    def kind(self) -> str:
        """csv, tsv, jsonl, json, parquet, arrow, sheet, npy, npz, zip or folder; json and jsonl are told by content."""
        if self.path.is_dir():
            return "folder"
        suffix = "zip" if bare_suffix(self.path) in ZIPPED else bare_suffix(self.path)
        if suffix not in (*FORMATS, *OTHERS):
            names = ", ".join(f".{name}" for name in (*FORMATS, *OTHERS))
            raise ReadError(f"unknown format: the suffix must be one of {names}; or .gz or .zst of a text format")
        if packing(self.path) and suffix in OTHERS[1:]:
            raise ReadError(f"a {suffix} file cannot be read packed; unpack it")
        check_file(self.path)
        if suffix != "json" and FORMATS.get(suffix) != "jsonl":
            return suffix if suffix in OTHERS else format_of(self.path)
        first = list(islice((line for line in lines(self.path, self.layout) if line.strip()), 2))
        if not first:
            raise ReadError("the file has no records")
        if suffix != "json":
            return "json" if first[0].lstrip().startswith("[") else "jsonl"
        return "jsonl" if len(first) == 2 and first[0].startswith("{") and _whole(first[0]) else "json"

    @property
    def is_text_table(self) -> bool:
        """Whether all values are text, some of which may stand for numbers."""
        return self.kind in (*TEXT, SHEET)

    @cached_property
    def note(self) -> str:
        """What was found out about the file beyond the usual: its encoding, separator or sheet."""
        if self.kind == SHEET:
            sheet = read_sheet(self.path, self.layout)
            others = f" (not {', '.join(map(repr, sheet.others))}: {spelled('sheet', 'NAME')})" if sheet.others else ""
            merged = ", merged cells count in each of their rows" if sheet.merged else ""
            return f"sheet {sheet.name!r}{others}{merged}"
        if self.kind not in (*TEXT, "json", "jsonl"):
            return ""
        encoding, separator = encoding_of(self.path, self.layout), ","
        notes = [] if encoding == UTF8 else [f"decoded from {encoding} ({spelled('encoding', 'NAME')} corrects it)"]
        if self.kind == "csv":
            separator = head(self.path, self.layout).separator
        notes += [] if separator in ",;\t" else [f"separated by {separator!r}"]
        if self.kind in TEXT:
            notes.append(quotes(self.path, self.layout).note)
        return ", ".join(filter(None, notes))

    @cached_property
    def names(self) -> list[str]:
        """Column names of a table; of JSON, the fields of the first record."""
        if self.kind in TEXT:
            return head(self.path, self.layout).names
        if self.kind == SHEET:
            return read_sheet(self.path, self.layout).names
        if self.kind in ("parquet", "arrow"):
            return schema_names(self.path)
        return [] if self.first is None else list(self.first.fields())

    @cached_property
    def first(self) -> Node | None:
        """The first record of a JSON file; None if there is none."""
        if self.kind == "jsonl":
            line = next((line for line in lines(self.path, self.layout) if line.strip()), "")
            return next(iter(parse_jsonl(line.encode(), "")), None)
        if self.kind == "json":
            first = next(self._document_records(), None)
            return first if first is not None and isinstance(first.value, dict) else None
        return None

    @cached_property
    def document(self) -> Node:
        """The whole content of a JSON file."""
        return Node(parse_json(self._bytes(), ""), "document")

    @cached_property
    def records(self) -> list[Node]:
        """The records of a JSON file (a list of objects, or one per line) or of a table."""
        if self.kind == "jsonl":
            records = parse_jsonl(self._bytes(), "")
        elif self.kind == "json":
            records = checked(list(self._document_records()))
        elif self.kind in TABLES:
            columns = self.columns(lambda names: names)
            names, values = list(columns), [values_of(column) for column in columns.values()]
            rows = zip(*values, strict=True)
            records = [Node(dict(zip(names, row, strict=True)), f"record {k}") for k, row in enumerate(rows, 1)]
        else:
            raise ReadError(f"a {self.kind} file has no records")
        if not records:
            raise ReadError("the file has no records")
        return records

    def columns(self, choose: Choose) -> Columns:
        """The columns of a table that ``choose`` picks; of a JSON list, the fields of its records."""
        if self.kind != "json" and bare_suffix(self.path) != "json":
            return load_columns(self.path, choose, self.layout)
        records = self.records
        names = dict.fromkeys(name for record in records for name in record.fields())
        return {name: [record.value.get(name) for record in records] for name in choose(list(names))}

    def rows(self) -> Iterator[list[str]]:
        """The rows of a text table or sheet, header included, as they are."""
        if self.kind == SHEET:
            sheet = read_sheet(self.path, self.layout)
            yield sheet.names
            yield from ([cell or "" for cell in row] for row in sheet.rows)
            return
        about = head(self.path, self.layout)
        text = lines(self.path, self.layout)
        if about.told:
            next(line for line in text if line.strip())
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes(self.path, self.layout).enclose else csv.QUOTE_NONE
        try:
            for row in csv.reader(text, delimiter=about.separator, quoting=quoting, skipinitialspace=True):
                if row:
                    yield [cell.strip() for cell in row]
        except csv.Error as error:
            raise ReadError(f"cannot be read as {self.kind}: {error}") from error

    @cached_property
    def parts(self) -> dict[str, Callable[[], bytes]]:
        """Files in a zip file or folder, sorted by name, each with a function that reads it."""
        if self.kind == "folder":
            found = sorted(path for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))
            if sum(path.stat().st_size for path in found) > DOCUMENT:
                raise ReadError(f"the files in the folder have more than {DOCUMENT:,} bytes")
            return {path.name: path.read_bytes for path in found}
        return zip_parts(self.path)

    def _document_records(self) -> Iterator[Node]:
        value = self.document.value
        return (Node(one, f"record {k}") for k, one in enumerate(value if isinstance(value, list) else [value], 1))

    def _bytes(self) -> bytes:
        with open_text(self.path, self.layout) as file:
            try:
                data = file.read(DOCUMENT + 1)
            except DAMAGE as error:
                raise ReadError(f"cannot be unpacked: {error}") from error
        if len(data) > DOCUMENT:
            raise ReadError(f"more than {DOCUMENT:,} bytes; split the export")
        return data


@contextmanager
def standard_input() -> Iterator[Path]:
    """What is piped in, as a file for as long as it is read; its suffix follows from the content."""
    if sys.stdin is None:
        raise ReadError("standard input is closed: pipe the annotations in, or name their file")
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with path.open("rb") as file:
            start = file.read(1 << 16)
        yield path.rename(path.with_suffix(_suffix(start)))


def _suffix(start: bytes) -> str:
    """The suffix of a file that begins like this."""
    for mark, suffix in _SIGNS.items():
        if start.startswith(mark):
            if suffix in PACKED:
                unpacked = zlib.decompressobj(31).decompress(start, 1 << 12) if suffix == ".gz" else b""
                return f"{_suffix(unpacked)}{suffix}"
            return ".ods" if suffix == ".xlsx" and b"opendocument.spreadsheet" in start[:200] else suffix
    text = start.removeprefix(codecs.BOM_UTF8).replace(b"\0", b"").lstrip(b"\xff\xfe \r\n\t")
    if text[:1] in (b"[", b"{"):
        return ".json"
    first = text.splitlines()[0] if text.strip() else b""
    return ".tsv" if b"\t" in first and b"," not in first else ".csv"


def zip_parts(path: Path) -> dict[str, Callable[[], bytes]]:
    """Files in a zip file; they are read in memory and never written to disk."""
    try:
        with zipfile.ZipFile(path) as file:
            members = [member for member in file.infolist() if not member.filename.endswith("/")]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise ReadError(f"cannot be read as a zip file: {error}") from error
    if len(members) > PARTS:
        raise ReadError(f"the zip file has {len(members):,} files; at most {PARTS:,} are read")
    limit = unpack_limit(path)
    if sum(member.file_size for member in members) > limit:
        raise too_large(path, limit, ReadError)
    parts: dict[str, Callable[[], bytes]] = {}
    for member in sorted(members, key=lambda member: member.filename):
        name = member.filename
        windows = PureWindowsPath(name)  # splits at / and \
        if windows.drive or windows.root or ".." in windows.parts:
            raise ReadError(f"the zip file has a path outside of itself: {name!r}")
        if name.startswith("__MACOSX/") or PurePosixPath(name).name.startswith("."):
            continue  # what file managers leave behind
        if name in parts:
            raise ReadError(f"the zip file has {name!r} twice")
        parts[name] = _reading(path, member)
    return parts


def _reading(path: Path, member: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with zipfile.ZipFile(path) as file, file.open(member) as content:
                data = content.read(member.file_size + 1)
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError) as error:
            raise ReadError(f"{member.filename}: cannot be unpacked: {error}") from error
        if len(data) != member.file_size:
            raise ReadError(f"{member.filename}: {len(data):,} bytes, but the zip file lists {member.file_size:,}")
        return data

    return read


def _whole(line: str) -> bool:
    """Whether a line is a complete JSON value, as in a JSONL file."""
    try:
        parse_json(line.encode("utf-8", "surrogatepass"), "")
    except ReadError:
        return False
    return True


def values_of(column: Any) -> list[Any]:
    """The values of a loaded column; times are in UTC without zone, so that no time zone database is needed."""
    if isinstance(column, list):
        return column
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"), safe=False)
    return list(column.to_pylist())
