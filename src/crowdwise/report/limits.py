"""Limits that keep a page under 5 MB; the page says what was left out."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_ANNOTATORS = 300
MOST_ITEMS = 10_000
MOST_EDGES = 2_000  # of each graph
MATRIX_NUMBERS = 500_000  # entries of all matrices together
PAGE_BYTES = 4_900_000
RESERVED = 1_500_000  # bytes for scripts, markup, training curves, compared methods and similar items
PICTURE_BYTES = 700_000
TEXT_LENGTH = 280  # characters of an item's text that are shown at first
LONG_TEXT, LONG_TEXTS = 3_000, 200  # characters, of the most doubtful items, that unfold
MOST_DETAILS = 20  # values of other columns that an item shows

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def number(value: Any, digits: int = 3) -> float | None:
    """A rounded number for JSON; None for what is missing, and for NaN and infinities, which JSON lacks.

    >>> number(0.12345), number(float("nan")), number(None)
    (0.123, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(float(value), digits)


def safe_json(data: Any) -> str:
    """JSON that cannot break out of its script element.

    >>> safe_json("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


def size(data: Any) -> int:
    """Size of data in a page, in bytes."""
    return len(safe_json(data).encode("utf-8", "replace"))
