"""How much a file may unpack to: a small file that unpacks without end is an attack, not data."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

from crowdwise.errors import ConfigError, CrowdwiseError, DataError

VARIABLE = "CROWDWISE_UNPACK_LIMIT"
LARGEST = 1 << 35  # bytes that a packed file may unpack to
RATIO = 200  # times its own size that it may unpack to, unless that is
SMALL = 1 << 28  # bytes or less, which are harmless
BLOCK = 1 << 20  # bytes read at once
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def parse_size(text: str) -> int | None:
    """Bytes from a text such as ``"4GB"``; None where it is no size.

    >>> parse_size("1.5 GB"), parse_size("800"), parse_size("much")
    (1500000000, 800, None)
    """
    parts = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)b?\s*", text, re.IGNORECASE | re.ASCII)
    return int(float(parts[1]) * _UNITS[parts[2].lower()]) if parts else None


def unpack_limit(path: Path) -> int:
    """Bytes that the file at ``path`` may unpack to: as the environment says, else in proportion to its size."""
    most = largest()
    return most if os.environ.get(VARIABLE) else min(most, max(SMALL, RATIO * path.stat().st_size))


def largest() -> int:
    """The most bytes that any file may unpack to: as the environment says, else 32 GiB."""
    text = os.environ.get(VARIABLE)
    if not text:
        return LARGEST
    size = parse_size(text)
    if size is None:
        raise ConfigError(f"{VARIABLE} must be a size such as 64GB, not {text!r}")
    return size


def too_large(path: Path, limit: int, kind: type[CrowdwiseError] = DataError) -> CrowdwiseError:
    """The error that a file unpacks to more than ``limit`` bytes."""
    return kind(f"{path}: unpacks to more than {limit:,} bytes; to allow more, set {VARIABLE}=64GB")


class Wrapped(io.RawIOBase):
    """A stream over another one, which is closed with it; subclasses write ``readinto``."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


class Bounded(Wrapped):
    """An unpacked stream of the file at ``path`` that ends in an error beyond ``limit`` bytes."""

    def __init__(self, stream: Any, path: Path, limit: int | None = None, kind: type[CrowdwiseError] = DataError):
        super().__init__(stream)
        self._path, self._read, self._kind = path, 0, kind
        self._most = unpack_limit(path) if limit is None else limit

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._read += len(data)
        if self._read > self._most:
            raise too_large(self._path, self._most, self._kind)
        buffer[: len(data)] = data
        return len(data)
