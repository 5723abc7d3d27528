"""Cells of files: what is blank, what is a number, what two spellings have in common. Nothing of crowdwise is used."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from decimal import Decimal
from typing import Any

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
WHOLE = re.compile(r"-?[0-9]+(\.0*)?")
PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
COMMA = re.compile(r"[+-]?[0-9]+,[0-9]{1,2}")
BETWEEN = re.compile(r"[\s_./,:;!?'\"()-]+")  # what separates or ends words


class Refused(Exception):
    """The rules make this an error."""


def is_blank(value: Any) -> bool:
    """Whether a cell says nothing: empty, blanks, None, NaN."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())


def number(value: Any) -> Decimal | None:
    """The number that a value is, or that its text stands for; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value
    text = str(value).strip()
    return Decimal(text) if NUMBER.fullmatch(text) else None


def shown(value: Any) -> str:
    """A value as text: booleans as in JSON, whole numbers without a point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return str(int(value))
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    return str(value)


def by_value(value: Any) -> str:
    """What labels with the same value share: whole numbers with and without a point; other spellings stay apart."""
    text = shown(value).strip()
    if WHOLE.fullmatch(text):
        return str(int(text.partition(".")[0])) if text.lstrip("-0").partition(".")[0] == "" else text.partition(".")[0]
    return text


def written(value: Any) -> set[str]:
    """The names that a class may have: a label as it is, and a whole number with and without a point."""
    text = by_value(value)
    names = {shown(value), text}
    if WHOLE.fullmatch(text) and abs(int(text)) < 2**53:
        names |= {f"{int(text)}.0", f"{text}.0"}
    return names | {str(value).strip()}


def alike(value: Any) -> str:
    """What labels share that differ only in case, blanks, punctuation or Unicode form; numbers by their value."""
    text = unicodedata.normalize("NFKC", shown(value)).casefold().strip()
    text = seen(text)
    text = text.replace(",", ".") if COMMA.fullmatch(text) else text
    if PLAIN.fullmatch(text):
        found = Decimal(text)
        return f"#{int(found)}" if found == found.to_integral_value() else f"#{found.normalize()}"
    return BETWEEN.sub("", text) or "".join(text.split())


def tidy(name: str) -> str:
    """A name with single blanks, and without characters that nobody sees."""
    return " ".join(seen(name).split())


def seen(text: str) -> str:
    """A text without characters that nobody sees."""
    unseen = {letter for letter in text if unicodedata.category(letter) in ("Cf", "Cc") and not letter.isspace()}
    return "".join(letter for letter in text if letter not in unseen)


def simple(name: str) -> str:
    """The name of a column without case and punctuation."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
