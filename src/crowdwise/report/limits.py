"""How much goes into one page, so that it stays under 5 MB; what is left out is said on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

MOST_ANNOTATORS = 300
MOST_ITEMS = 10_000
MOST_EDGES = 3_000  # of each graph
MATRIX_NUMBERS = 500_000  # entries of all matrices together
ITEM_BYTES = 1_900_000  # of the items' names, texts and labels
PICTURE_BYTES = 700_000
TEXT_LENGTH = 280  # characters of an item's text


def number(value: Any, digits: int = 3) -> float | None:
    """A number for JSON, rounded; None for what JSON cannot say.

    >>> number(0.12345), number(float("nan"))
    (0.123, None)
    """
    value = float(value)
    return round(value, digits) if math.isfinite(value) else None


def fitting(sizes: Sequence[int], budget: int) -> int:
    """How many of the first entries fit into the budget.

    >>> fitting([40, 40, 40], 100)
    2
    """
    used = 0
    for count, size in enumerate(sizes):
        used += size
        if used > budget:
            return count
    return len(sizes)
