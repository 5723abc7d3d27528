"""The only way to load npy and npz files: nothing is unpickled, and a header that promises more than its file is refused."""

from __future__ import annotations

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crowdwise.data.types import Array
from crowdwise.errors import CrowdwiseError, DataError
from crowdwise.storage.limits import BLOCK, too_large, unpack_limit

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_MOST_EMPTY = 1 << 20  # rows without values
# What numpy and zipfile raise for damaged files; neither documents a common class.
DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError, SyntaxError, SystemError, MemoryError),
    *(OverflowError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)


def read_npz(
    path: Path, names: Iterable[str] | None = None, kind: type[CrowdwiseError] = DataError
) -> dict[str, Array]:
    """The arrays of an npz file, all or those named; damage is an error of this kind.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "some.npz"
    >>> np.savez(path, a=[1, 2], b=[[3.0]])
    >>> read_npz(path, ["b"])
    {'b': array([[3.]])}
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            wanted = list(members) if names is None else list(names)
            if missing := [name for name in wanted if name not in members]:
                raise kind(f"{path} has no array {missing[0]!r}; it needs {', '.join(wanted)}")
            limit = unpack_limit(path)
            if sum(members[name].file_size for name in wanted) > limit:
                raise too_large(path, limit, kind)
            found = {}
            for name in wanted:
                with archive.open(members[name]) as file:
                    found[name] = _read(file, members[name].file_size)  # type: ignore[arg-type]
            return found
    except DAMAGE as error:
        if isinstance(error, CrowdwiseError):
            raise
        raise kind(f"{path} is not a readable npz file: {error}") from error


def read_npy(path: Path, kind: type[CrowdwiseError] = DataError, *, mapped: bool = False) -> Array:
    """The array of an npy file, in memory or ``mapped`` into it; damage is an error of this kind."""
    try:
        with path.open("rb") as file:
            array = _read(file, path.stat().st_size, mapped=mapped)
        return np.lib.format.open_memmap(path, mode="r") if mapped else array
    except DAMAGE as error:
        raise kind(f"{path} is not a readable npy file: {error}") from error


def _read(file: BinaryIO, size: int, *, mapped: bool = False) -> Array:
    """An array from a file of ``size`` bytes, whose header must match them; ``mapped``: only check the header."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format is not supported")
    shape, by_columns, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never loaded")
    count, there = math.prod(shape), size - file.tell()
    if min(shape, default=0) < 0 or count * dtype.itemsize != there or (count and not dtype.itemsize):
        raise ValueError(f"its header says shape {shape} of {dtype}, but it holds {there:,} bytes of values")
    if not count and max(shape, default=0) > _MOST_EMPTY:
        raise ValueError(f"its header says shape {shape}, which is nothing, {max(shape):,} times")
    if mapped:
        return np.empty(0)
    array = np.empty(shape, dtype, order="F" if by_columns else "C")
    into: Any = array.reshape(-1, order="A").view(np.uint8).data if count else b""
    for start in range(0, there, BLOCK):
        block = file.read(min(BLOCK, there - start))
        into[start : start + len(block)] = block
        if len(block) < min(BLOCK, there - start):
            raise EOFError("it ends too early")
    if file.read(1):
        raise ValueError("it holds more than its header says")
    return array
