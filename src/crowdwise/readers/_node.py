"""Values of JSON documents and table rows that know their place, so that errors can name record and field."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from crowdwise.errors import DataError, ReadError

Id = int | str
Label = int | float | str
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_ZONES = {"UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}


class Node:
    """A value and where it stands: ``record 3, annotations[0].completed_by``.

    >>> task = Node({"annotations": [{"lead_time": "soon"}]}, "record 3")
    >>> [annotation] = task.list("annotations")
    >>> annotation.text("completed_by") is None
    True
    >>> annotation.record("lead_time")
    Traceback (most recent call last):
    ...
    crowdwise.errors.ReadError: record 3, annotations[0].lead_time: expected an object {...}, got 'soon'
    """

    __slots__ = ("_key", "_parent", "value")

    def __init__(self, value: Any, place: str | Node, key: str | int | None = None) -> None:
        self.value, self._parent, self._key = value, place, key

    @property
    def where(self) -> str:
        """The place of this value, for messages."""
        if isinstance(self._parent, str):
            above, dot = self._parent, ", "
        else:
            above, dot = self._parent.where, ", " if self._parent._key is None else "."
        if self._key is None:
            return above
        return f"{above}[{self._key}]" if isinstance(self._key, int) else f"{above}{dot}{self._key}"

    def error(self, problem: str) -> ReadError:
        """An error about this value."""
        return ReadError(f"{self.where}: {problem}")

    def expected(self, what: str) -> ReadError:
        """An error that says what was expected here, and what was found."""
        shown = repr(self.value)
        return self.error(f"expected {what}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def get(self, key: str) -> Node | None:
        """A field of an object; None if it is missing or null."""
        value = self.fields().get(key)
        return None if value is None else Node(value, self, key)

    def first(self, *keys: str) -> Node | None:
        """The first of these fields that is present; None if none is."""
        for key in keys:
            if (found := self.get(key)) is not None:
                return found
        return None

    def need(self, *keys: str) -> Node:
        """The first of these fields that is present; an error if none is."""
        found = self.first(*keys)
        if found is None:
            raise self.error(f"field {' or '.join(map(repr, keys))} is missing")
        return found

    def fields(self) -> dict[str, Any]:
        """The fields of an object."""
        if not isinstance(self.value, dict):
            raise self.expected("an object {...}")
        return self.value

    def items(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.expected("a list [...]")
        return [Node(value, self, k) for k, value in enumerate(self.value)]

    def each(self) -> list[Node]:
        """The elements of a list; any other value by itself."""
        return self.items() if isinstance(self.value, list) else [self]

    def record(self, key: str) -> Node | None:
        """A field that is an object."""
        found = self.get(key)
        if found is not None:
            found.fields()
        return found

    def list(self, key: str) -> list[Node]:
        """The elements of a field that is a list; empty if it is missing."""
        found = self.get(key)
        return [] if found is None else found.items()

    def text(self, key: str) -> str | None:
        """A field that is text."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found.value, str):
            raise found.expected("text")
        return found._encodable(found.value)

    def id(self) -> Id:
        """This value as the id of an instance or annotator."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        if isinstance(self.value, str) and self.value:
            return self._encodable(self.value)
        raise self.expected("an id (text or an integer)")

    def label(self) -> Label:
        """This value as a label."""
        value = self.value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float) and value == value:
            return value
        if isinstance(value, str) and value:
            return self._encodable(value)
        raise self.expected("a label (text or a number)")

    def _encodable(self, text: str) -> str:
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise self.error(
                    f"{text[:40]!r} contains half of a surrogate pair; such text cannot be stored"
                ) from error
        return text


def parse_json(data: bytes, place: str) -> Any:
    """The value of a JSON document; errors name line and character."""
    return parse_text(decoded(data, place), place)


def parse_text(text: str, place: str, line: int | None = None, kind: type[DataError] = ReadError) -> Any:
    """The value of JSON text, which may be one ``line`` of a file; errors are of this kind."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}line {line or error.lineno}, character {error.colno}"
        raise kind(f"{where}: not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # nested too deeply; a number with thousands of digits
        raise kind(f"{place}{f'line {line}: ' if line else ''}not usable JSON: {error}") from error


def parse_jsonl(data: bytes, place: str) -> list[Node]:
    """The objects of a file with one object per line."""
    lines = enumerate(decoded(data, place).split("\n"), start=1)
    records = [Node(parse_text(line, place, k), f"{place}line {k}") for k, line in lines if line.strip()]
    return checked(records)


def checked(records: list[Node]) -> list[Node]:
    """Records, all of which are objects."""
    for record in records:
        record.fields()
    return records


def decoded(data: bytes, place: str) -> str:
    """Text from UTF-8 bytes; errors name line and byte."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ReadError(f"{place}the file is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ReadError(
            f"{place}line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error


def ticks(value: Any) -> int | None:
    """A time as microseconds since 1970 (UTC); None if it is not understood.

    Understood are ISO 8601, the times of Mechanical Turk, and seconds, milli- or microseconds since 1970. A time
    without a zone is taken as UTC.

    >>> ticks("2026-01-02T10:00:00Z") == ticks(1767348000) == ticks("Fri Jan 02 02:00:00 PST 2026")
    True
    """
    if isinstance(value, str):
        value = _parsed(value.strip())
    if isinstance(value, datetime):
        try:
            return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _TICK
        except OverflowError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e8 <= value < 1e17:  # from 1973 on
        return None
    scale = 1e6 if value < 1e11 else 1e3 if value < 1e14 else 1
    return round(value * scale)


def _parsed(text: str) -> Any:
    for parse in (float, datetime.fromisoformat, _turk_time):
        with suppress(ValueError):
            return parse(text)
    return None


def _turk_time(text: str) -> datetime:
    turk = re.fullmatch(r"(\w{3} \w{3} \d+ [\d:]{8}) ([A-Z]+) (\d{4})", text)
    if turk is None or turk[2] not in _ZONES:
        raise ValueError(text)
    return datetime.strptime(f"{turk[1]} {turk[3]}", "%a %b %d %H:%M:%S %Y") - timedelta(hours=_ZONES[turk[2]])


def seconds(value: Any) -> float | None:
    """A duration in seconds; None if it is not a number."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 and not isinstance(value, bool) else None


def probability(value: Any) -> float | None:
    """A number from 0 to 1; None if it is something else."""
    number = seconds(value)  # a number of 0 or more
    return number if number is not None and number <= 1 else None


def storable(text: str) -> str:
    """Text without halves of surrogate pairs, which no file can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()
