"""A journal: JSON lines that are on the disk before anybody is told so."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdwise.errors import DataError, StorageError
from crowdwise.storage.documents import json_value
from crowdwise.storage.files import storing, sync_folder

LONGEST = 1 << 20  # bytes of a line


class Journal:
    """Records that are appended one by one, each synced to the disk before `append` returns.

    A file that was removed or replaced meanwhile takes no more records: `append` then fails.

    A process that is killed while it writes leaves half a line at most. Nobody was told that it is there, so it is
    cut off when the journal is opened again; a damaged line anywhere else is an error. One process at a time may
    write: hold a lock (`crowdwise.storage.lock`).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    >>> with Journal(path) as journal:
    ...     journal.append({"label": "cat"})
    >>> _ = path.write_bytes(path.read_bytes() + b'{"label": "d')
    >>> with Journal(path) as journal:
    ...     [record for place, record in journal.records()]
    [{'label': 'cat'}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with storing(path):
            new = not path.exists()
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(path, flags, 0o600)
            if new:
                sync_folder(path.parent)
            self._size = self._whole_lines()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing can be appended any more."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record; when this returns, it survives a power cut. A record that fails leaves no trace."""
        line = json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if len(line) > LONGEST:
            raise DataError(f"{self.path}: a record of {len(line):,} bytes; {LONGEST:,} are the most")
        with self._lock, storing(self.path):
            if self._file < 0:
                raise OSError(None, "the journal is closed")
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._file, line[written:])
                os.fsync(self._file)
                self._check_place()
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
            self._size += len(line)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All records, each with its place in the file."""
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                place = f"{self.path}, line {number}"
                try:
                    record = json_value(line)
                except ValueError as error:
                    raise DataError(f"{place} is damaged: {error}; repair it or remove it") from error
                if not isinstance(record, dict):
                    raise DataError(f"{place} is damaged: it holds no record; repair it or remove it")
                yield place, record

    def _check_place(self) -> None:
        """Refuse to say that a record is kept where the file has lost its name: nobody would find it again."""
        own = os.fstat(self._file)
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino):
            what = "removed" if named is None else "replaced by another file"
            raise StorageError(
                f"{self.path} was {what} while it was in use, so nothing can be kept in it; put it back, "
                "or save what there is elsewhere and start again"
            )

    def _whole_lines(self) -> int:
        """Cut off what follows the last complete line; the size that remains."""
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, min(size, LONGEST), max(0, size - LONGEST))
        whole = size - len(tail) + tail.rfind(b"\n") + 1
        if whole < size:
            if size - whole >= LONGEST:
                raise DataError(f"{self.path} is no journal: its last line has {LONGEST:,} bytes or more")
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
        return whole
