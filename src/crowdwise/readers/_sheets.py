"""Sheets of spreadsheets (xlsx, xlsm, ods) as columns of text, by python-calamine; what would swell is refused before."""

from __future__ import annotations

import datetime
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from crowdwise.errors import DataError, suggest
from crowdwise.readers._text import Layout, remembered
from crowdwise.storage.limits import BLOCK, too_large, unpack_limit

SHEETS = ("xlsx", "xlsm", "ods")
SPARE = 5_000_000  # cells that a sheet may span
WIDER = 20  # times the cells that are filled in that it may span, unless that is less
_DAMAGE = (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error)
Elements = Iterator[tuple[str, ElementTree.Element]]
_LONG = re.compile(rb"[>\"'\s]-?[0-9]{16}")  # where there may be a whole number that floats round
Place = tuple[int, int]  # row and column, from 0
_PLACE = re.compile(r"\s*([A-Za-z]{1,9})(\d{1,18})\s*")


@dataclass(frozen=True)
class Sheet:
    """One sheet: its name, the names of its columns, and the cells below them by rows."""

    name: str
    others: tuple[str, ...]
    """Sheets of the file that hold something, too."""
    names: list[str]
    rows: list[list[str | None]]
    merged: bool = False
    """Cells that span several rows stand in each of them."""

    def columns(self) -> dict[str, list[str | None]]:
        return {name: [row[place] for row in self.rows] for place, name in enumerate(self.names)}


def read_sheet(path: Path, layout: Layout) -> Sheet:
    """The sheet that the user names, else the first that holds something; hidden ones come last."""
    found: Sheet = remembered(_sheet, path, layout)
    return found


@lru_cache(maxsize=1)
def _sheet(path: Path, layout: Layout, version: tuple[Any, ...]) -> Sheet:
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise DataError(f"{path}: spreadsheets need python-calamine: pip install 'crowdwise[tables]'") from error
    _check_size(path)
    try:
        with calamine.load_workbook(str(path)) as book:
            names = list(book.sheet_names)
            if layout.sheet is not None and layout.sheet not in names:
                raise DataError(
                    f"{path}: there is no sheet {layout.sheet!r}{suggest(layout.sheet, names)}", parameter="sheet"
                )
            wanted = _visible_first(book) if layout.sheet is None else [layout.sheet]
            exact = _long_numbers(path)
            sheets = {name: _filled(book.get_sheet_by_name(name), exact.get(name, {})) for name in wanted}
            filled = [(name, *cells) for name, cells in sheets.items() if cells[0]]
    except DataError:
        raise
    except BaseException as error:  # a panic of calamine is not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise DataError(f"{path}: cannot be read as a spreadsheet: {str(error)[:200]}") from error
    if not filled:
        raise DataError(f"{path}: the {'file' if layout.sheet is None else f'sheet {layout.sheet!r}'} is empty")
    name, rows, merged = filled[0]
    header, headed = layout.names(path, [(cell or "").strip() for cell in rows[0]])
    others = tuple(other for other, *_ in filled[1:])
    return Sheet(name, others, _names(path, header), rows[headed:], merged)


def _visible_first(book: Any) -> list[str]:
    """The names of the sheets, those that nobody sees at the end."""
    seen = {about.name: str(about.visible).endswith("Visible") for about in book.sheets_metadata}
    return sorted(book.sheet_names, key=lambda name: not seen.get(name, True))


def _filled(sheet: Any, exact: Mapping[Place, str]) -> tuple[list[list[str | None]], bool]:
    """The cells of a sheet as text, without rows and columns that are empty, and whether some span several rows.

    ``exact`` are the digits of long numbers.
    """
    top, left = sheet.start or (0, 0)
    rows = [
        [_text(exact.get((top + y, left + x), cell) if exact else cell) for x, cell in enumerate(row)]
        for y, row in enumerate(sheet.to_python(skip_empty_area=True))
    ]
    spread = _spread(rows, top, left, getattr(sheet, "merged_cell_ranges", None) or [])
    rows = [row for row in rows if any(cell is not None for cell in row)]
    width = max(map(len, rows), default=0)
    rows = [row + [None] * (width - len(row)) for row in rows]
    kept = [place for place in range(width) if any(row[place] is not None for row in rows)]
    return (rows if len(kept) == width else [[row[place] for place in kept] for row in rows]), spread


def _spread(rows: list[list[str | None]], top: int, left: int, merged: Any) -> bool:
    """Put the text of each cell that spans rows below the header into all of these; whether there are any."""
    header = next((y for y, row in enumerate(rows) if any(cell is not None for cell in row)), 0)
    room = sum(map(len, rows))
    spread = False
    for (first, column), (last, _) in merged:
        y, x = first - top, column - left
        if last <= first or not (header < y < len(rows) and 0 <= x < len(rows[y])) or rows[y][x] is None:
            continue
        below = range(y + 1, min(last - top + 1, len(rows)))
        room -= len(below)
        if room < 0:
            raise DataError("merged cells overlap")
        for place in below:
            if x < len(rows[place]) and rows[place][x] is None:
                rows[place][x] = rows[y][x]
                spread = True
    return spread


def _long_numbers(path: Path) -> dict[str, dict[Place, str]]:
    """Whole numbers that floats would round, such as long ids, as they stand in the file: sheet -> row and column -> digits."""
    with zipfile.ZipFile(path) as file:
        if path.suffix.lower() == ".ods":
            return _long_of_ods(file) if _LONG.search(file.read("content.xml")) else {}
        names = set(file.namelist())
        parts = {name: part for name, part in _parts_of_xlsx(file).items() if part in names}
        return {name: _long_of_xlsx(file, part) for name, part in parts.items() if _LONG.search(file.read(part))}


def _parts_of_xlsx(file: zipfile.ZipFile) -> dict[str, str]:
    """Sheet -> the part of the file that holds it."""
    links = {
        element.attrib.get("Id"): element.attrib.get("Target", "")
        for tag, element in _elements(file, "xl/_rels/workbook.xml.rels")
        if tag == "Relationship"
    }
    parts = {}
    for tag, element in _elements(file, "xl/workbook.xml"):
        if tag == "sheet":
            link = next((value for key, value in element.attrib.items() if key.endswith("}id")), None)
            target = links.get(link, "")
            parts[element.attrib.get("name", "")] = target[1:] if target.startswith("/") else f"xl/{target}"
    return parts


def _long_of_xlsx(file: zipfile.ZipFile, part: str) -> dict[Place, str]:
    found: dict[Place, str] = {}
    y = -1
    for tag, row in _elements(file, part):
        if tag != "row":
            continue
        number = row.attrib.get("r", "")
        y = int(number) - 1 if number.isdecimal() else y + 1
        x = -1
        for cell in row:
            place = _PLACE.fullmatch(cell.attrib.get("r", ""))
            x = x + 1 if place is None else _column(place[1]) - 1
            value = next((each.text for each in cell if _tag(each) == "v"), None)
            if value is not None and cell.attrib.get("t", "n") == "n" and _is_long(value):
                found[y, x] = value.strip()
        row.clear()
    return found


def _long_of_ods(file: zipfile.ZipFile) -> dict[str, dict[Place, str]]:
    sheets: dict[str, dict[Place, str]] = {}
    for tag, table in _elements(file, "content.xml"):
        if tag != "table":
            continue
        name = next((value for key, value in table.attrib.items() if key.endswith("}name")), "")
        found = sheets.setdefault(name, {})
        y = 0
        for row in table.iter():
            if _tag(row) != "table-row":
                continue
            times = _repeats(row, "number-rows-repeated")
            x = 0
            for cell in row:
                wide = _repeats(cell, "number-columns-repeated")
                value = next((value for key, value in cell.attrib.items() if key.endswith("}value")), "")
                if _is_long(value):
                    found |= {(y + down, x + right): value.strip() for down in range(times) for right in range(wide)}
                x += wide
            y += times
        table.clear()
    return sheets


def _is_long(text: str) -> bool:
    """Whether the text of a cell is a whole number that a float cannot hold."""
    digits = text.strip().removeprefix("-")
    return digits.isdecimal() and digits.isascii() and len(digits) < 4000 and int(digits) >= 2**53


def _text(cell: Any) -> str | None:
    """A cell as a csv file would have it; whole numbers are stored as 1.0."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, datetime.datetime | datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell)


def _names(path: Path, first: list[str]) -> list[str]:
    names = [name or f"column {place}" for place, name in enumerate(first, start=1)]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"{path}: the header names column {repeated[0]!r} twice")
    return names


def _check_size(path: Path) -> None:
    """Refuse what unpacks, spans or repeats to more than a file of its size should."""
    limit, total = unpack_limit(path), 0
    try:
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                with file.open(member) as content:
                    while block := content.read(BLOCK):  # to the end, so that a false size or checksum is found
                        total += len(block)
                        if total > limit:
                            raise too_large(path, limit)
            names = file.namelist()
            if path.suffix.lower() == ".ods":
                spans = [_span_of_ods(_elements(file, name)) for name in names if name == "content.xml"]
            else:
                texts = [name for name in names if name.endswith("sharedStrings.xml")]
                lengths = [length for name in texts for length in _lengths(_elements(file, name))]
                sheets = [name for name in names if re.search(r"worksheets/[^/]+\.xml$", name)]
                spans = [_span_of_xlsx(_elements(file, name), lengths) for name in sheets]
    except DataError:
        raise
    except (*_DAMAGE, ElementTree.ParseError) as error:
        raise DataError(f"{path}: cannot be read as a spreadsheet: {error}") from error
    for cells, filled, characters in spans:
        if cells > SPARE + WIDER * filled:
            raise DataError(f"{path}: a sheet spans {cells:,} cells, of which {filled:,} are filled in")
        if characters > limit:
            raise too_large(path, limit)


def _elements(file: zipfile.ZipFile, name: str) -> Iterator[tuple[str, ElementTree.Element]]:
    """Elements of an XML file, each with its tag, as they end."""
    with file.open(name) as content:
        yield from ((_tag(element), element) for _, element in ElementTree.iterparse(content))


def _span_of_xlsx(elements: Elements, lengths: list[int]) -> tuple[int, int, int]:
    """Cells that a sheet spans, cells that are filled in, and characters of its shared texts."""
    filled = characters = last = widest = 0
    for tag, row in elements:
        if tag != "row":
            continue
        for cell in row:
            place = _PLACE.fullmatch(cell.attrib.get("r", ""))
            if place is not None:
                last, widest = max(last, int(place[2])), max(widest, _column(place[1]))
            filled += 1
            value = next((each.text for each in cell if _tag(each) == "v"), None) or ""
            if cell.attrib.get("t") == "s" and value.strip().isdecimal() and int(value) < len(lengths):
                characters += lengths[int(value)]
        row.clear()
    return last * widest, filled, characters


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _column(letters: str) -> int:
    return reduce(lambda number, letter: number * 26 + ord(letter) - 64, letters.upper(), 0)


def _lengths(elements: Elements) -> Iterator[int]:
    """The lengths of the texts that cells share."""
    for tag, element in elements:
        if tag == "si":
            yield sum(map(len, element.itertext()))
            element.clear()


def _span_of_ods(elements: Elements) -> tuple[int, int, int]:
    """As `_span_of_xlsx`: cells and rows of an ods file may be repeated."""
    rows = widest = filled = characters = 0
    for tag, row in elements:
        if tag != "table-row":
            continue
        width = last = texts = 0
        for cell in row:
            times = _repeats(cell, "number-columns-repeated")
            length = sum(map(len, cell.itertext()))
            width += times
            if length:
                last, texts = width, texts + times * length
        times = _repeats(row, "number-rows-repeated") if last else 0
        rows, widest = rows + times, max(widest, last)
        filled, characters = filled + (last > 0), characters + times * texts
        row.clear()
    return rows * widest, filled * widest, characters


def _repeats(element: ElementTree.Element, name: str) -> int:
    found = next((value for key, value in element.attrib.items() if key.endswith(name)), "1")
    return min(int(found), 1 << 32) if found.isdecimal() and len(found) < 12 else 1 << 32
