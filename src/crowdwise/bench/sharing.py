"""How many runs train on one GPU at the same time, whichever commands started them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class Company:
    """The runs on a device: each locks a file in ``folder``, and the system frees the lock when its process ends."""

    def __init__(self, folder: Path, known: int = 1) -> None:
        self.folder = folder
        self.most = known
        """The largest number of runs seen, this one included; at first what its command knows of."""

    def count(self) -> None:
        """Look who is there now."""
        self.most = max(self.most, sum(_alive(path) for path in self.folder.glob("*.run")))


@contextmanager
def counted(device: str | None, known: int = 1, root: Path | None = None) -> Iterator[Company]:
    """Be counted among the runs on ``device``, and count them; None is a device whose runs are not counted."""
    root = root or Path(tempfile.gettempdir()) / f"crowdwise-runs-{getattr(os, 'getuid', int)()}"
    company = Company(root / str(device), known)
    mine = None if device is None else _join(company.folder)
    try:
        company.count()
        yield company
        company.count()
    finally:
        if mine is not None:
            Path(mine.name).unlink(missing_ok=True)
            mine.close()


def _join(folder: Path) -> IO[bytes] | None:
    """A locked file that stands for this run; None where there are no such locks."""
    with suppress(OSError, ImportError):
        import fcntl

        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(folder / f"{os.getpid()}-{time.monotonic_ns()}.run", "xb")  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
        return file
    return None


def _alive(path: Path) -> bool:
    """Whether the run of this file still holds its lock."""
    with suppress(OSError, ImportError):
        import fcntl

        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
