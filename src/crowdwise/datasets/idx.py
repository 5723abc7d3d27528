"""The idx format of the MNIST family: a magic number, the shape (big-endian), then the bytes of the array."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crowdwise.data.types import Pixels
from crowdwise.errors import DatasetError
from crowdwise.storage.limits import too_large, unpack_limit


def read_idx(path: Path, n_dims: int) -> Pixels:
    """Read an idx file of unsigned bytes with ``n_dims`` axes, gzipped (.gz) or plain."""
    try:
        with open(path, "rb") as raw:
            return _parse(gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw, path, n_dims)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is not a complete gzip file: {error}") from error


def _parse(file: BinaryIO | gzip.GzipFile, path: Path, n_dims: int) -> Pixels:
    header = file.read(4 + 4 * n_dims)
    magic = bytes((0, 0, 8, n_dims))  # 8: unsigned bytes
    if header[:4] != magic:
        raise DatasetError(
            f"{path} starts with {header[:4].hex()} instead of {magic.hex()}: not an idx file with {n_dims} axes"
        )
    if len(header) < 4 + 4 * n_dims:
        raise DatasetError(f"{path} ends inside its header")
    shape = struct.unpack(f">{n_dims}I", header[4:])
    size = math.prod(shape)
    if size > unpack_limit(path):  # a forged header must not make us allocate more
        raise too_large(path, unpack_limit(path), DatasetError)
    content = file.read(size + 1)
    if len(content) != size:
        found = "more" if len(content) > size else f"only {len(content):,}"
        raise DatasetError(f"{path} should have {size:,} bytes after its header, for shape {shape}, but it has {found}")
    return np.frombuffer(bytearray(content), np.uint8).reshape(shape)
