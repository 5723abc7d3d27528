"""The working folder of a streamed aggregation: nothing is removed in a folder that is not marked as one."""

from __future__ import annotations

import shutil
from pathlib import Path

from crowdwise.errors import ConfigError, ModelFileError, spelled
from crowdwise.storage.documents import read_json, write_json
from crowdwise.storage.lock import NAME as LOCK
from crowdwise.streaming.store import TABLE

MARKER = "crowdwise-work.json"


def check_own(folder: Path) -> None:
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


def claim(folder: Path) -> None:
    """Mark the folder as a working folder."""
    if not (folder / MARKER).exists():
        write_json(
            folder / MARKER, {"version": 1, "about": "working folder of crowdwise aggregate; cleared when it is used"}
        )


def release(folder: Path) -> None:
    """Remove the folder, its mark last: what a kill leaves is still marked, and no damaged table."""
    for table in folder.glob(f"table*/{TABLE}"):
        table.unlink()
    for entry in folder.iterdir():
        if entry.name == MARKER:
            continue
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _of_earlier_version(folder: Path) -> bool:
    """Whether an earlier version, which left no mark, has worked here."""
    for file in (folder / "table" / "manifest.json", folder / "table.partial" / "source.json"):
        try:
            if file.is_file() and set(read_json(file)) == {"checksum", "content"}:
                return True
        except (ModelFileError, TypeError):
            continue
    return False
