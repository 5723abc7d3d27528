"""JSON and TOML from files that anybody may have written: whatever is wrong with them is a ValueError."""

from __future__ import annotations

import json
import tomllib
from typing import Any


def json_value(data: bytes | str) -> Any:
    """The value of a JSON text.

    >>> json_value("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def toml_table(data: bytes | str) -> dict[str, Any]:
    """The content of a TOML text."""
    try:
        return tomllib.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
