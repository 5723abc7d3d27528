"""Where a picture that a table or an export names is on this disk: below one folder, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from crowdwise.encoders import Pictures
from crowdwise.errors import DataError, shorten, spelled


def located(names: Sequence[str | None], ids: Sequence[str], root: Path) -> Pictures:
    """The pictures of the given names below ``root``; those that are missing are one error.

    >>> list(_candidates("/data/upload/3/8f2c61d0-cat.png"))
    ['data/upload/3/8f2c61d0-cat.png', 'upload/3/8f2c61d0-cat.png', '3/8f2c61d0-cat.png', '8f2c61d0-cat.png', 'cat.png']
    >>> list(_candidates("/data/local-files/?d=photos/cat.png"))
    ['photos/cat.png', 'cat.png']
    """
    base = root.resolve()
    if not base.is_dir():
        raise DataError(f"{root}: there is no such folder of pictures", parameter="root")
    files, missing = [], []
    for name in names:
        found = find_picture(name, base) if name else None
        if found is None:
            missing.append(name or "(no name)")
        else:
            files.append(found)
    if missing:
        web = " (web addresses are not fetched)" if any("://" in name for name in missing) else ""
        raise DataError(
            f"{len(missing):,} of {len(names):,} pictures are not below the folder {root}{web}: {shorten(missing, 3)}; "
            f"name the folder with {spelled('root', 'DIR')}",
            parameter="root",
        )
    return Pictures(tuple(files), tuple(ids))


def find_picture(name: str, root: Path) -> Path | None:
    """The file below ``root`` that a name in a table or an export stands for; None where there is none."""
    base = root.resolve()
    for candidate in _candidates(name):
        try:
            path = (base / candidate).resolve()
            if path.is_relative_to(base) and path.is_file():
                return path
        except (OSError, ValueError):  # a name that no file can have
            continue
    return _tidied(base, base.stat().st_mtime_ns).get(last) if (last := _uploaded(name)) else None


def _uploaded(name: str) -> str | None:
    """The file name behind the code of an upload to Label Studio.

    >>> _uploaded("/data/upload/3/8f2c61d0-my_cat.png")
    'my_cat.png'
    """
    coded = re.search(r"(?:^|/)[0-9a-f]{8}-([^/]+)$", unquote(name))
    return coded[1] if coded else None


@lru_cache(maxsize=8)
def _tidied(folder: Path, changed: int) -> dict[str, Path]:
    """Files of a folder by the names that Label Studio gives them: blanks are underscores, other signs are left out."""
    found: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        found.setdefault(re.sub(r"[^-\w.]", "", path.name.strip().replace(" ", "_")), []).append(path.resolve())
    single = {name: paths[0] for name, paths in found.items() if len(paths) == 1}
    return {name: path for name, path in single.items() if path.is_relative_to(folder) and path.is_file()}


def _candidates(name: str) -> Iterator[str]:
    """Paths below the folder that a name may stand for, the longest first; Label Studio puts a code before file names."""
    if "\0" in name or len(name) > 4096:
        return
    if "://" in name and not name.startswith("file://"):
        return
    address = urlsplit(name.replace("\\", "/"))
    path = address.path
    if path.rstrip("/").endswith("local-files"):
        path = parse_qs(address.query).get("d", [""])[0]
    elif "?" in name or "#" in name:  # part of a file's name
        path = name
    for text in dict.fromkeys((path, unquote(path))):
        parts = [part for part in PurePosixPath(text).parts if part not in ("/", ".")]
        for first in range(len(parts)):
            yield "/".join(parts[first:])
        if parts and (coded := re.fullmatch(r"[0-9a-f]{8}-(.+)", parts[-1])):
            yield coded[1]
