"""Files that are there whole or not at all, whatever happens to the process, the power or the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crowdwise.errors import CrowdwiseError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def replacing(path: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """A temporary path, whose file takes the place of ``path`` when the block ends well, and is removed when it does not.

    The file is on the disk before it gets its name, so that a power cut leaves the old one or the new one. What was at
    ``path`` is renamed to ``keep`` if that is given.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storing(path):
        try:
            yield temporary
            _sync(temporary)
            if keep is not None:
                with suppress(FileNotFoundError):
                    os.replace(path, keep)
            rename(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Errors of the system while ``path`` is written as an error that names file, folder and remedy."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CrowdwiseError):
            raise
        raise StorageError(f"{path} cannot be written: {error.strerror or error}; {_remedy(error, path)}") from error


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder, to last through a power cut."""
    os.replace(old, new)
    with suppress(OSError):  # some file systems cannot sync folders
        _sync(new.parent)


def tidy(folder: Path) -> None:
    """Remove what processes that were killed had begun to write into ``folder``; nobody may be writing there."""
    for pattern in (".*.tmp", ".*.partial", ".tmp??????"):  # ours, and those of safetensors
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remedy(error: OSError, path: Path) -> str:
    folder = path.parent
    if error.errno in _FULL:
        with suppress(OSError):
            free = shutil.disk_usage(folder).free
            return f"{free / 1e6:,.0f} MB are free in {folder}: make room there and try again"
    if error.errno in _FORBIDDEN:
        return f"this user may not write in the folder {folder}: change that, or choose another folder"
    return f"check the folder {folder}, and try again"
