"""The working folder of a streamed aggregation: nothing is removed in a folder that is not marked as one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crowdwise.errors import ConfigError, ModelFileError, spelled
from crowdwise.storage.documents import read_json, write_json
from crowdwise.storage.files import tidy
from crowdwise.storage.lock import NAME as LOCK
from crowdwise.storage.lock import locked
from crowdwise.streaming.store import TABLE

MARKER = "crowdwise-work.json"


@contextmanager
def working_in(folder: Path, *, keep: bool) -> Iterator[None]:
    """Mark ``folder`` and keep others out of it; a run that ended well removes it unless it is to be kept."""
    _check_own(folder)
    with locked(folder):
        if not (folder / MARKER).exists():
            about = "working folder of crowdwise aggregate; cleared when it is used"
            write_json(folder / MARKER, {"version": 1, "about": about})
        tidy(folder, everywhere=True)
        yield
    if not keep:
        _remove(folder)


def _check_own(folder: Path) -> None:
    """Refuse a folder that holds anything but the work of an aggregation."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder} is not a folder: choose another one ({spelled('work')})", parameter="work")
    if not folder.exists() or (folder / MARKER).is_file() or _of_earlier_version(folder):
        return
    others = sorted(
        entry.name for entry in folder.iterdir() if entry.name != LOCK and not entry.name.startswith(".tmp-")
    )
    if others:
        raise ConfigError(
            f"{folder} holds other files ({others[0]}), and a working folder is cleared: choose a new or empty one "
            f"({spelled('work')})",
            parameter="work",
        )


def _of_earlier_version(folder: Path) -> bool:
    """Whether an earlier version, which left no mark, has worked here."""
    for file in (folder / "table" / "manifest.json", folder / "table.partial" / "source.json"):
        try:
            if file.is_file() and set(read_json(file)) == {"checksum", "content"}:
                return True
        except (ModelFileError, TypeError):
            continue
    return False


def _remove(folder: Path) -> None:
    """Remove the folder, its mark last: what a kill leaves is still marked, and no damaged table."""
    for table in folder.glob(f"table*/{TABLE}"):
        table.unlink()
    for entry in folder.iterdir():
        if entry.name == MARKER:
            continue
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(folder, ignore_errors=True)
