"""Results of tasks as JSON, for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any


def document(result: Any) -> str:
    """A result as JSON text: fields by name, tables as lists of rows, NaN as null.

    A result that holds more than a program wants says so with a method ``as_json``, which returns what it does.
    """
    return json.dumps(_plain(result), ensure_ascii=False, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "as_json"):
        return _plain(value.as_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for method in ("to_pylist", "tolist"):  # tables of arrow, arrays and numbers of numpy
        if hasattr(value, method):
            return _plain(getattr(value, method)())
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
