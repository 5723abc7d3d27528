"""Where the files of a data set are, and what to do if they are missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crowdwise.datasets.download import fetch
from crowdwise.errors import DatasetError
from crowdwise.storage.files import cache_folder as cache_folder
from crowdwise.storage.files import replacing


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it: readers see the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=False) as temporary, open(temporary, "xb") as file:
        write(file)


@dataclass(frozen=True)
class Remote:
    """A file on its official server."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """File name: the last part of the URL."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Files:
    """The places to look for the files of one data set."""

    dataset: str
    root: Path | None = None
    download: bool = False

    def find(
        self,
        *alternatives: Sequence[str],
        remotes: Sequence[Remote] = (),
        folders: Sequence[str] = (),
        system: str | None = None,
        generic: bool = False,
        hint: str = "",
    ) -> tuple[Path, ...]:
        """Paths of the first of ``alternatives``, groups of file names, of which one folder has all files.

        ``folders`` are further usual names of the data set's folder. ``generic``: other data sets use the same file
        names, so they only count in ``root`` or in a folder named after this data set.
        """
        places = list(dict.fromkeys(self._places(folders, system, generic)))
        for place in places:
            for group in alternatives:
                if all((place / name).exists() for name in group):
                    return tuple(place / name for name in group)
        if self.download and remotes:
            folder = (self.root or cache_folder()) / self.dataset
            return tuple(fetch(remote.url, folder / remote.name, md5=remote.md5) for remote in remotes)
        raise DatasetError(self._missing(alternatives, places, remotes, hint))

    def _places(self, folders: Sequence[str], system: str | None, generic: bool) -> Iterator[Path]:
        own = (self.dataset, *folders)
        if self.root is not None:
            yield from (self.root, *(self.root / folder for folder in own))
        for entry in os.environ.get("CROWDWISE_DATA", "").split(os.pathsep):
            if entry:
                folder = Path(entry).expanduser()
                if not generic or folder.name in own:
                    yield folder
                yield from (folder / name for name in own)
        yield cache_folder() / self.dataset
        if system is not None:
            yield Path(system)

    def _missing(
        self, alternatives: Sequence[Sequence[str]], places: Sequence[Path], remotes: Sequence[Remote], hint: str
    ) -> str:
        wanted = "\n  or ".join(", ".join(group) for group in alternatives)
        lines = [f"data set {self.dataset!r} is not on this machine. Needed:\n  {wanted}\nLooked in:"]
        for place in places:
            found = sorted({name for group in alternatives for name in group if (place / name).exists()})
            lines.append(f"  {place}" + (f" (has only {', '.join(found)})" if found else ""))
        ways = ["pass root=, or set CROWDWISE_DATA, to the folder that holds the files"]
        if remotes:
            server = remotes[0].url.rsplit("/", 1)[0]
            ways.insert(0, f"load({self.dataset!r}, download=True) fetches them from {server}/")
        if hint:
            ways.append(hint)
        return "\n".join([*lines, "What to do:", *(f"  {way}" for way in ways)])
