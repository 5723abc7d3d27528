"""Quotes in separated text: whether they enclose fields, as in most csv files, or are part of the text, as in many tsv files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.data.types import Ints
from crowdwise.errors import DataError
from crowdwise.readers._text import PLAIN, Layout, head, open_text, remembered

BLOCK = 1 << 24  # bytes looked at together, and more where a field is longer
QUOTE, LINE, RETURN = b'"\n\r'


class Quotes(NamedTuple):
    """What quotes mean in a file, and what a user should know of that."""

    enclose: bool
    note: str = ""


class _Fault(NamedTuple):
    """Where quotes do not enclose fields as they should, and how that shows."""

    line: int
    problem: str
    sure: bool = True


def quotes(path: Path, layout: Layout = PLAIN) -> Quotes:
    """Whether quotes enclose fields; where they are neither balanced nor plain text, an error."""
    found: Quotes = remembered(_quotes, path, layout)
    return found


@lru_cache(maxsize=16)
def _quotes(path: Path, layout: Layout, version: tuple[Any, ...]) -> Quotes:
    about = head(path, layout)
    mark, width = about.separator.encode(), len(about.names)
    with open_text(path, layout) as file:
        fault = _fault(file, mark, width)
    if fault is None:
        return Quotes(True)
    place = f"line {fault.line}: {fault.problem}"
    if not fault.sure:
        return Quotes(True, f"{place}; are its quotes balanced?")
    with open_text(path, layout) as file:
        plain = mark == b"\t" and _is_plain(file, width)
    if plain:
        return Quotes(False, f"quotes are part of the text, as they are not balanced ({place})")
    raise DataError(f"{path}, {place}; the file may be truncated, or its quotes not balanced")


def _fault(file: IO[bytes], mark: bytes, width: int) -> _Fault | None:
    """The first place where quotes do not enclose whole fields, or one encloses what looks like whole records."""
    line, unsure = 1, None
    for block in _blocks(file):
        if QUOTE in block:
            fault = _fault_in(block, mark, width, line)
            if fault is not None and fault.sure:
                return fault
            unsure = unsure or fault
        line += block.count(b"\n")
    return unsure


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The file in parts that end with a line which no quotes enclose."""
    rest = b""
    while more := file.read(BLOCK):
        rest += more
        data = np.frombuffer(rest, np.uint8)
        lines = np.flatnonzero(data == LINE)
        ends = lines[~_enclosed(lines, np.flatnonzero(data == QUOTE))]
        if len(ends):
            cut = int(ends[-1]) + 1
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _enclosed(places: Ints, marks: Ints) -> npt.NDArray[np.bool_]:
    """Which places are between an opening quote and a closing one."""
    inside: npt.NDArray[np.bool_] = np.searchsorted(marks, places) % 2 == 1
    return inside


def _fault_in(block: bytes, mark: bytes, width: int, line: int) -> _Fault | None:
    """The first fault in some records. Where every quote is at the border of a field, it is found without reading fields."""
    data = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    marks = np.flatnonzero(data == QUOTE)
    borders = np.array([mark[0], LINE, RETURN, QUOTE], np.uint8)
    opened = np.isin(data[marks[0::2] - 1], borders).all()
    closed = np.isin(data[marks[1::2] + 1], borders).all()
    if not (opened and closed) or len(marks) % 2:
        return _read_fields(block.decode("utf-8", "replace"), mark.decode(), width, line)
    lines = np.flatnonzero(data == LINE)
    inside = _enclosed(lines, marks)
    separators = np.flatnonzero(data == mark[0])
    enclosed = separators[_enclosed(separators, marks)]
    fields = np.diff(np.searchsorted(enclosed, lines)) + 1  # of each line, as far as it is enclosed
    records = inside[:-1] & (fields >= width)
    if mark != b"\t":  # prose has commas: only whole lines are looked at
        records &= inside[1:] & (fields == width)
    if width < 2 or not records.any():
        return None
    first = int(np.flatnonzero(records)[0])
    begun = int(np.flatnonzero(~inside[:first])[-1])
    return _swallowed(line + begun, sure=mark == b"\t")


def _swallowed(line: int, *, sure: bool) -> _Fault:
    return _Fault(line, "a quoted field goes over lines that look like records", sure)


def _read_fields(text: str, mark: str, width: int, line: int) -> _Fault | None:
    """The first fault in some records, field by field."""
    separator = re.escape(mark)
    field = re.compile(rf'"(?P<quoted>(?:[^"]|"")*)"(?P<after>[^{separator}\r\n]*)|(?!")[^{separator}\r\n]*')
    place, unsure = 0, None
    while place < len(text):
        found = field.match(text, place)
        if found is None:
            return _Fault(line, "a quoted field is never closed")
        if (found["after"] or "").strip(" "):
            return _Fault(line, "text follows the closing quote of a field")
        inner = (found["quoted"] or "").split("\n")[1:]
        for number, one in enumerate(inner, start=1):
            fields, last = one.count(mark) + 1, number == len(inner)
            if width > 1 and fields >= width and mark == "\t":
                return _swallowed(line, sure=True)
            if width > 1 and fields == width and not last:
                unsure = unsure or _swallowed(line, sure=False)
        line += found[0].count("\n")
        place = found.end() + 1
        line += text[place - 1 : place] == "\n"
    return unsure


def _is_plain(file: IO[bytes], width: int) -> bool:
    """Whether every line is a record if quotes are text; not where the header has any."""
    header = True
    for line in file:
        if not line.strip() or (header and line.lower().startswith(b"sep=")):
            continue
        if line.count(b"\t") != width - 1 or (header and QUOTE in line):
            return False
        header = False
    return True
