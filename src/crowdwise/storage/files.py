"""Files that appear whole or not at all, whatever happens to the process, the power or the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from uuid import uuid4

from crowdwise.errors import CrowdwiseError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def cache_folder() -> Path:
    """``CROWDWISE_CACHE``, else ``~/.cache/crowdwise``."""
    return Path(os.environ.get("CROWDWISE_CACHE") or "~/.cache/crowdwise").expanduser()


@contextmanager
def replacing(path: Path, *, keep: Path | None = None, durable: bool = True) -> Iterator[Path]:
    """A temporary path, whose file takes the place of ``path`` when the block ends well, and is removed when it does not.

    The file is on the disk before it gets its name, so that a power cut leaves the old one or the new one; a file that can
    be made again need not be ``durable``. What was at ``path`` is renamed to ``keep`` if that is given.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    temporary = _temporary(path)
    with storing(path):
        try:
            yield temporary
            if durable:
                _sync(temporary)
            if keep is not None:
                with suppress(FileNotFoundError):
                    os.replace(path, keep)
            rename(temporary, path) if durable else os.replace(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def replacing_all(paths: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """As `replacing`, for several files: a temporary path for each; all of them take their places, or none.

    What processes that have ended left behind of the same files is removed.
    """
    paths = list(paths)
    with ExitStack() as stack:
        yield {path: stack.enter_context(replacing(path)) for path in paths}
    for path in paths:
        for leftover in path.parent.glob(f".tmp-*-{escape(path.name)}"):
            if _has_ended(leftover.name.split("-")[1]):
                leftover.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """As `replacing`, for a folder, which takes the place of an earlier one."""
    temporary, earlier = _temporary(path), path.with_name(f".{path.name}.{os.getpid()}.old")
    with storing(path):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            if path.exists():
                os.replace(path, earlier)
            rename(temporary, path)
            shutil.rmtree(earlier, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn system errors while ``path`` is written into one that names file, folder and remedy."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CrowdwiseError):
            raise
        raise StorageError(f"{path} cannot be written: {error.strerror or error}; {_remedy(error, path)}") from error


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder so that the new name survives a power cut."""
    os.replace(old, new)
    sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """See to it that names in a folder survive a power cut."""
    with suppress(OSError):  # some file systems cannot sync folders
        _sync(folder)


def tidy(folder: Path, *, everywhere: bool = False) -> None:
    """Remove what killed processes had begun to write into ``folder``, or ``everywhere`` in it; nobody may be writing there."""
    for pattern in (".tmp-*", ".tmp??????", ".*.tmp", ".*.partial"):  # ours, those of safetensors, and of version 0.1
        for leftover in list(folder.rglob(pattern) if everywhere else folder.glob(pattern)):
            shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)


def _has_ended(process: str) -> bool:
    """Whether a process of this machine is known to have ended."""
    if os.name != "posix" or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def _temporary(path: Path) -> Path:
    """A name beside ``path`` that nobody else takes, with its suffixes, by which some writers know a format."""
    return path.with_name(f".tmp-{os.getpid()}-{uuid4().hex[:8]}-{path.name}")


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
