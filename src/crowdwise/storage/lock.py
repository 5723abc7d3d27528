"""One process at a time in a folder: the lock of runs, benchmarks and working folders."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from crowdwise.errors import InUseError, StorageError
from crowdwise.storage.documents import json_value
from crowdwise.storage.files import storing

NAME = ".lock"
_SETTLE = 0.1  # seconds after which, without system locks, every process can see which one wrote last
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes, and other threads of this one, out of ``folder``, which is created if missing.

    A system lock (``flock``) is released when its process ends, however it ends. The file ``.lock`` also names its holder,
    for file systems without locks, or with locks that only one machine sees. It is emptied at the end, and ignored if its
    holder was a process of this machine that has died. Inside the block, the folder and those in it may be locked again.
    """
    place = folder.resolve()
    if not _held.get().isdisjoint((place, *place.parents)):
        yield
        return
    path = folder / NAME
    with storing(path):
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():  # whose target would be emptied
            raise StorageError(f"{path} is a symbolic link, which a lock never is: remove it, or use another folder")
        file = open(path, "a+", encoding="utf-8", opener=_no_links)  # noqa: SIM115
    with file:
        _acquire(file, path)
        token = _held.set(_held.get() | {place})
        try:
            yield
        finally:
            _held.reset(token)
            with contextlib.suppress(OSError):  # the folder may be gone, or the disk broken
                _write(file, "")


def _no_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def lock_held_elsewhere(folder: Path) -> Iterator[None]:
    """Work in ``folder`` on behalf of another process, perhaps of another machine, that holds its lock."""
    token = _held.set(_held.get() | {folder.resolve()})
    try:
        yield
    finally:
        _held.reset(token)


def _acquire(file: IO[str], path: Path) -> None:
    system = _flock(file)
    holder = _read(path)
    if system is False or (holder is not None and _holds(holder, certain=system is True)):
        raise _in_use(path, holder)
    mine = {"process": os.getpid(), "host": socket.gethostname(), "since": _now(), "started": _started(os.getpid())}
    with storing(path):
        _write(file, json.dumps(mine) + "\n")
    if system is None:
        time.sleep(_SETTLE)
        if _read(path) != mine:
            raise _in_use(path, _read(path))


def _flock(file: IO[str]) -> bool | None:
    """Whether this process now has the system lock; None where the file system has no locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES) else None
    except ImportError:
        return None
    return True


def _holds(holder: dict[str, Any], *, certain: bool) -> bool:
    """Whether the holder may still be running; ``certain``: the system lock shows that nobody on this machine is."""
    if holder.get("host") != socket.gethostname():
        return True
    started = _started(holder["process"])
    return not certain and started is not None and started == holder.get("started")


def _started(process: int) -> str | None:
    """When a process of this machine started, which tells a reused process id from the old one; None: no such process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = status.rpartition(")")[2].split()
        return None if state in "ZX" else f"{boot} {fields[18]}"
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    try:  # not Linux
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def _read(path: Path) -> dict[str, Any] | None:
    try:
        holder = json_value(path.read_bytes())
        return holder if isinstance(holder, dict) and isinstance(holder.get("process"), int) else None
    except (OSError, ValueError):
        return None


def _write(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def _in_use(path: Path, holder: dict[str, Any] | None) -> InUseError:
    who = holder or {}
    message = (
        f"{path.parent} is in use by process {who.get('process', 'of unknown number')} on {who.get('host', 'this host')} "
        f"since {who.get('since', 'a moment ago')}"
    )
    if holder is not None and holder.get("host") != socket.gethostname():
        return InUseError(f"{message}; if that process has ended, remove {path} and try again")
    return InUseError(f"{message}; wait until it ends, or use another folder")
