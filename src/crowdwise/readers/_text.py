"""Text files as they come: packed, in any encoding, with any separator, with or without a header; read as UTF-8."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from crowdwise.data.frames import ALIASES, find_column
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.storage.limits import Bounded, Wrapped
from crowdwise.storage.text import restored_names

PACKED = (".gz", ".zst")
BLOCK = 1 << 20  # bytes decoded at a time
SAMPLE = 1 << 16  # bytes from which an encoding is guessed
CLOCK = 100_000_000  # nanoseconds within which a file system may give two changes the same time
FEW = 20  # letters beyond ASCII that do not tell similar encodings apart
ROWS = 50  # lines from which a separator is found
SEPARATORS = ",;\t|"
UTF8 = "utf-8"
_TOLD = re.compile(r'\s*"?sep=(.)"?\s*', re.IGNORECASE)  # the first line of a csv file by Excel
_OUTER_QUOTES = re.compile(r'^\s+"([^"]*)"\s*$')
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as surrogateescape decodes them
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
_MARKS = [
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_LIKELY = [  # what spreadsheets and older programs write
    *("cp1252", "latin_1", "iso8859_15", "cp1250", "iso8859_2", "cp1251", "koi8_r", "iso8859_5", "cp1253", "iso8859_7"),
    *("cp1254", "cp1255", "cp1256", "cp1257", "cp874", "cp437", "cp850", "cp866", "mac_roman", "cp932", "shift_jis"),
    *("euc_jp", "iso2022_jp", "gb18030", "big5", "euc_kr", "cp949"),
]
_LATIN = ("cp1252", "latin_1", "iso8859_15", "cp1250", "iso8859_2", "cp1254", "cp1257", "cp437", "cp850", "mac_roman")


@dataclass(frozen=True)
class Layout:
    """How a file is written, as far as a user says; the rest is found out."""

    encoding: str | None = None
    separator: str | None = None
    columns: tuple[str, ...] | None = None
    """Names of the columns of a file without a header."""
    sheet: str | None = None

    @classmethod
    def of(
        cls, encoding: str | None, separator: str | None, columns: Sequence[str] | None, sheet: str | None
    ) -> Layout:
        """Checked: an encoding that exists, one character, names that differ."""
        if encoding is not None:
            try:
                "".encode(encoding)  # refuses codecs that are not for text
                codec = str(codecs.lookup(encoding).name)
            except (LookupError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"unknown {spelled('encoding', repr(encoding))}; such as utf-8, utf-16, cp1252",
                    parameter="encoding",
                ) from error
        if separator is not None:
            separator = _NAMES.get(separator.lower(), separator)
            if len(separator.encode()) != 1 or separator in '"\r\n':
                raise ConfigError(
                    f"{spelled('separator', repr(separator))}: one character is needed, or tab", parameter="separator"
                )
        names = None if columns is None else tuple(columns)
        if names is not None and (not names or not all(names) or len(set(names)) < len(names)):
            raise ConfigError(
                f"{spelled('columns')} takes the name of every column, none of them twice, not {names}",
                parameter="columns",
            )
        return cls(None if encoding is None else codec, separator, names, sheet)

    def names(self, path: Path, first: list[str]) -> tuple[list[str], bool]:
        """The names of a file's columns, from its first line, and whether that is a header: it is replaced by the user's."""
        if self.columns is None:
            return first, True
        if len(first) != len(self.columns):
            raise DataError(
                f"{path}: {len(first)} columns, but {spelled('columns')} names {len(self.columns)}: "
                f"{', '.join(self.columns)}",
                parameter="columns",
            )
        usual = sum(find_column(aliases, first) is not None for aliases in ALIASES.values())
        return list(self.columns), usual >= 2 or first == list(self.columns)


PLAIN = Layout()


class Head(NamedTuple):
    """The first line of a csv or tsv file."""

    names: list[str]
    """Of its columns."""
    separator: str
    data: int
    """Lines before the data."""
    own: bool
    """Whether the names are not those of the first line that is not blank."""
    told: bool
    """Whether that line tells the separator, as Excel writes it."""


def packing(path: Path) -> str:
    """The suffix of a packed file, ``.gz`` or ``.zst``, else nothing."""
    return next((suffix for suffix in PACKED if path.name.lower().endswith(suffix)), "")


def bare_suffix(path: Path) -> str:
    """The last suffix before that of packing, without its dot."""
    return path.name.lower().removesuffix(packing(path)).rpartition(".")[2]


def open_bytes(path: Path) -> IO[bytes]:
    """A file to read, unpacked if its name ends in ``.gz`` or ``.zst``."""
    packed = packing(path)
    if not packed:
        return path.open("rb")
    stream = gzip.GzipFile(path) if packed == ".gz" else pa.CompressedInputStream(str(path), "zstd")
    return io.BufferedReader(Bounded(stream, path))


def open_text(path: Path, layout: Layout = PLAIN) -> IO[bytes]:
    """The text of a file in UTF-8, whatever it is written in."""
    encoding = encoding_of(path, layout)
    file = open_bytes(path)
    return file if encoding == UTF8 else io.BufferedReader(_Recoded(file, encoding))


def arrow_input(path: Path, layout: Layout) -> Any:
    """A text file as arrow's readers take it, to be closed: its path, which they read in threads, or its text in UTF-8."""
    plain = not packing(path) and encoding_of(path, layout) == UTF8
    return nullcontext(path) if plain else open_text(path, layout)


def encoding_of(path: Path, layout: Layout = PLAIN) -> str:
    """The encoding of a text file: as the user says, by its mark, else UTF-8 if it is, else the likeliest."""
    if layout.encoding is not None:
        return layout.encoding
    found: str = remembered(_encoding, path)
    return found


def lines(path: Path, layout: Layout = PLAIN) -> Iterator[str]:
    """Lines of a text file; a line that is not in its encoding is an error."""
    with open_text(path, layout) as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else UTF8)
            except UnicodeDecodeError as error:
                raise not_text(path, number, line[error.start]) from error


def not_text(path: Path, line: int, byte: int) -> DataError:
    """The error of a byte that is not UTF-8."""
    return DataError(
        f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8, or name its encoding with "
        f"{spelled('encoding', 'NAME')}",
        parameter="encoding",
    )


def head(path: Path, layout: Layout = PLAIN) -> Head:
    """The names of the columns of a csv or tsv file, from the first line that is not blank, and their separator."""
    numbered = ((number, line) for number, line in enumerate(lines(path, layout)) if line.strip())
    sample = list(islice(numbered, ROWS))
    told = _TOLD.fullmatch(sample[0][1]) if sample else None
    sample = sample[1:] if told else sample
    text = [line for _, line in sample]
    separator = layout.separator or (told[1] if told else None)
    separator = separator or ("\t" if bare_suffix(path) in ("tsv", "tab") else _separator(text))
    if layout.separator is not None and text and not any(separator in line for line in text):
        raise DataError(
            f"{path}: {spelled('separator', repr(separator))} occurs in none of the first lines, such as "
            f"{text[0][:60].strip()!r}",
            parameter="separator",
        )
    reader = csv.reader(text, delimiter=separator)
    names, headed = layout.names(path, next(reader, []))  # the name of a column may go on in the next line
    shown = [_OUTER_QUOTES.sub(r"\1", name) for name in names]
    shown = restored_names(shown) if layout.columns is None else names
    data = (sample[0][0] if sample else 0) + (reader.line_num if headed else 0)
    return Head(shown, separator, data, layout.columns is not None or bool(told) or shown != names, bool(told))


def _separator(sample: list[str]) -> str:
    """The separator that gives all lines the same number of fields, else the first that the header has."""
    for mark in SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=mark, strict=True) if row]
        except csv.Error:  # a quoted field that goes on beyond the sample
            widths = []
        if widths and widths[0] > 1 and len(set(widths)) == 1:
            return mark
    return next((mark for mark in SEPARATORS if sample and mark in sample[0]), ",")


class _Recoded(Wrapped):
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        super().__init__(stream)
        self._ready, self._decoder = io.BytesIO(), codecs.getincrementaldecoder(encoding)()

    def readinto(self, buffer: Any) -> int:
        while not (data := self._ready.read(len(buffer))):
            block = self._stream.read(BLOCK)
            text = self._decoder.decode(block, not block)
            if not block and not text:
                return 0
            self._ready = io.BytesIO(text.encode())
        buffer[: len(data)] = data
        return len(data)


def remembered(function: Any, path: Path, *more: Any) -> Any:
    """What a function of a path and more, with a cache, says of the file that the path is now.

    A file is known by its place on the disk and by the time that its entry changed, which nobody can set back. If that was a
    moment ago, the clock may be too coarse to tell two versions apart, and nothing is remembered.
    """
    about = path.stat()
    version = (path.resolve(), about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    settled = time.time_ns() - about.st_ctime_ns > CLOCK
    return (function if settled else function.__wrapped__)(path, *more, version)


@lru_cache(maxsize=64)
def _encoding(path: Path, version: tuple[Any, ...]) -> str:
    with open_bytes(path) as file:
        block = file.read(BLOCK)
        marked = next((name for mark, name in _MARKS if block.startswith(mark)), None) or _unmarked(block[:4096])
        if marked is not None and marked != UTF8:
            return marked
        decoder = codecs.getincrementaldecoder(UTF8)()
        try:
            while block:
                decoder.decode(block)
                block = file.read(BLOCK)
        except UnicodeDecodeError:
            return _guessed(path, marked == UTF8)
    return UTF8


def _unmarked(start: bytes) -> str | None:
    """UTF-16 without a mark: in most languages, every second byte of much of the text is 0."""
    for name, first in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros, others = start[first::2].count(0), start[1 - first :: 2].count(0)
        if len(start) >= 8 and zeros > 0.4 * len(start) / 2 and others < 0.05 * len(start) / 2:
            return name
    return None


def _guessed(path: Path, marked: bool) -> str:
    """The encoding of text that is not UTF-8; damaged UTF-8 and what is no text are errors."""
    sample, place = b"", (0, 0)
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.isascii():
                sample += line
                if not place[0] and (wrong := _ESCAPED.search(line.decode(UTF8, "surrogateescape"))):
                    place = number, ord(wrong[0]) - 0xDC00
            if len(sample) > SAMPLE and place[0]:
                break
    text = sample.decode(UTF8, "surrogateescape")
    damaged = len(_ESCAPED.findall(text))
    fine = sum(one > "\x7f" for one in text) - damaged
    if marked or b"\0" in sample or (damaged and fine >= damaged):
        raise not_text(path, *place)
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise DataError(
            f"{not_text(path, *place)}; to have encodings recognised: pip install 'crowdwise[tables]'",
            parameter="encoding",
        ) from error
    found = from_bytes(sample[-SAMPLE:], cp_isolation=_LIKELY).best()
    if found is None:
        raise not_text(path, *place)
    same = [found.encoding, *found.could_be_from_charset]  # they give the same text
    name = next((name for name in _LIKELY if name in same), found.encoding)
    if name not in _LATIN:
        return name
    if b"\xff" in sample:  # no letter that occurs in any of them
        raise not_text(path, *place)
    return _LATIN[0] if damaged < FEW else name  # too little text to tell them apart: the usual one
