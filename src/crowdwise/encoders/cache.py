"""Features of pretrained encoders on disk, known by what was encoded and by what: a second run need not compute them again.

In ``CROWDWISE_CACHE`` (by default ``~/.cache/crowdwise``), folder ``features``; at most as much as ``CROWDWISE_FEATURE_CACHE``
says (by default 2GB; 0: nothing is kept), the longest unused going first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.types import Array
from crowdwise.errors import ConfigError, DataError, StorageError
from crowdwise.progress import progress_bar
from crowdwise.storage.arrays import read_npy
from crowdwise.storage.files import cache_folder, replacing
from crowdwise.storage.limits import parse_size

VARIABLE, USUAL = "CROWDWISE_FEATURE_CACHE", "2GB"
TOGETHER = 512  # items whose features are one file


def folder() -> Path:
    """Where features are kept."""
    return cache_folder() / "features"


def limit() -> int:
    """Bytes that may be kept."""
    text = os.environ.get(VARIABLE, USUAL)
    size = parse_size(text)
    if size is None:
        raise ConfigError(f"{VARIABLE} must be a size such as 2GB, or 0, not {text!r}")
    return size


def size() -> tuple[int, int]:
    """Number and bytes of the files that are kept."""
    found = _files()
    return len(found), sum(bytes_ for _, bytes_, _ in found)


def clear() -> tuple[int, int]:
    """Remove all that is kept; how many files and bytes that was."""
    found = size()
    for path, _, _ in _files():
        path.unlink(missing_ok=True)
    return found


def features(items: Sequence[Any], key: str, compute: Callable[[Sequence[Any]], Array], title: str) -> Array:
    """What ``compute`` makes of the items, rows in their order; ``key`` says all that decides the result beside them."""
    parts, most, wrote = [], limit(), False
    with progress_bar(title, len(items), show=len(items) > TOGETHER) as advance:
        for start in range(0, len(items), TOGETHER):
            some = items[start : start + TOGETHER]
            path = folder() / f"{_digest(key, some)}.npy" if most else None
            found = None if path is None else _read(path, len(some))
            if found is None:
                found = np.ascontiguousarray(compute(some), dtype=np.float32)
                if path is not None and found.nbytes < most:
                    wrote = _write(path, found) or wrote
            parts.append(found)
            advance(len(some))
    if wrote:
        _trim(most)
    return np.concatenate(parts) if parts else compute(items)


def _read(path: Path, rows: int) -> Array | None:
    if not path.is_file() or path.is_symlink():
        return None
    try:
        found = read_npy(path)
    except DataError:  # damaged: it is computed again
        return None
    with suppress(OSError):
        os.utime(path)
    fits = found.ndim == 2 and len(found) == rows and found.dtype == np.float32 and bool(np.isfinite(found).all())
    return found if fits else None


def _write(path: Path, found: Array) -> bool:
    """Whether it could be kept; a full disk is no reason to stop."""
    with suppress(StorageError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=False) as temporary, temporary.open("xb") as file:
            np.save(file, found)
        return True
    return False


def _trim(most: int) -> None:
    found = sorted(_files(), key=lambda entry: entry[2])
    total = sum(bytes_ for _, bytes_, _ in found)
    for path, bytes_, _ in found:
        if total <= most:
            return
        with suppress(OSError):
            path.unlink(missing_ok=True)
            total -= bytes_


def _files() -> list[tuple[Path, int, float]]:
    """Path, bytes and time of last use of what is kept; nothing but files that are named as here."""
    found = []
    if folder().is_dir():
        for entry in os.scandir(folder()):
            named = entry.name.endswith(".npy") and len(entry.name) == 44
            if named and entry.is_file(follow_symlinks=False):
                found.append((Path(entry.path), entry.stat().st_size, entry.stat().st_mtime))
    return found


def _digest(key: str, items: Sequence[Any]) -> str:
    digest = hashlib.blake2b(key.encode(), digest_size=20)
    for item in items:
        content = _content(item)
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _content(item: Any) -> bytes:
    if isinstance(item, str):
        return b"text" + item.encode("utf-8", "surrogatepass")
    if isinstance(item, os.PathLike):
        try:
            with open(item, "rb") as file:
                return b"file" + hashlib.file_digest(file, "blake2b").digest()
        except OSError as error:
            raise DataError(f"{item} cannot be read: {error.strerror}") from error
    if hasattr(item, "tobytes"):
        shape = getattr(item, "shape", None) or (item.size, item.mode)
        return b"".join((b"data", repr(shape).encode(), item.tobytes()))
    raise DataError(f"cannot encode {type(item).__name__}")
