"""A prepared table: codes instead of ids, all annotations of an instance in one partition, partitions of bounded size.

A folder of plain files: ``manifest.json`` (written last), ``instances.arrow``, ``annotators.arrow``, ``classes.arrow`` (ids
in the order of their codes), and ``parts/*.bin``. A partition holds the instances ``borders[k]..borders[k + 1] - 1`` in two
arrays that are mapped into memory as they are: where each instance begins (int64), and the cells of its annotations (uint32,
see `crowdwise.aggregation.core.kernels`), then their weights (float32) where the table has any. A checksum (int64) stands
before them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.crowd import MemoryCrowd
from crowdwise.aggregation.core.kernels import Layout
from crowdwise.data.factorise import Vocabulary
from crowdwise.errors import ModelFileError
from crowdwise.storage.files import replacing
from crowdwise.streaming.table import WEIGHT

VERSION = 4
MANIFEST = "manifest.json"
VOCABULARIES = ("instances", "annotators", "classes")
_BLOCK = 1 << 22  # bytes read at once for a checksum


class Part(MemoryCrowd):
    """The annotations of the instances ``start..stop-1``: a crowd of its own, with the codes of the whole."""

    def __init__(self, layout: Layout, start: int, stop: int) -> None:
        super().__init__(layout)
        self.start, self.stop = start, stop


@dataclass(frozen=True)
class Store:
    """A prepared table on disk; small enough to be sent to other processes. Its length is its number of partitions."""

    folder: Path
    columns: dict[str, str]  # role -> column
    n_annotations: int
    n_instances: int
    n_annotators: int
    n_classes: int
    borders: list[int]  # first instance of every partition, and the end
    compiled: bool  # whether the crowd as a whole is large enough for compiled kernels

    def __len__(self) -> int:
        return len(self.borders) - 1

    def vocabulary(self, name: str) -> Vocabulary:
        """Ids of the instances, annotators or classes, mapped into memory."""
        with pa.memory_map(str(self.folder / f"{name}.arrow")) as source:
            ids = pa.ipc.open_file(source).read_all().column("id")
        array = ids.chunk(0) if ids.num_chunks == 1 else ids.combine_chunks()
        return Vocabulary(len(array), array)

    def write_vocabulary(self, name: str, ids: pa.Array) -> None:
        """Write ids as one column of one batch, which can be mapped into memory."""
        table = pa.table({"id": ids})
        with pa.OSFile(str(self.folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def load(self, number: int, *, check: bool = False) -> Part:
        """A partition, mapped into memory; ``check`` reads all of it."""
        start, stop = self.borders[number], self.borders[number + 1]
        try:
            found = np.asarray(np.memmap(self.path(number), np.uint8, "r"))
            indptr = found[8 : 8 * (stop - start + 2)].view(np.int64)
            cells = found[8 * (stop - start + 2) :].view(np.uint32)
            weight = None
            if WEIGHT in self.columns:
                weight = cells[len(cells) // 2 :].view(np.float32).astype(np.float64)
                cells = cells[: len(cells) // 2]
            if indptr[-1] != len(cells) or (
                check and found[:8].view(np.int64)[0] != zlib.crc32(found[8:].data, number)
            ):
                raise ValueError("its size or checksum does not match")
        except (OSError, ValueError, IndexError) as error:
            raise ModelFileError(f"{self.path(number)} is damaged: {error}") from error
        shape = self.n_annotators, self.n_classes
        return Part(Layout(cells, indptr, np.empty(0, np.int32), shape, 1, self.compiled, weight), start, stop)

    def write(
        self,
        number: int,
        indptr: npt.NDArray[np.int64],
        cells: npt.NDArray[np.uint32],
        weight: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Write a partition."""
        arrays = [indptr, cells] if weight is None else [indptr, cells, weight]
        checksum = number  # so that parts cannot stand in for each other
        for array in arrays:
            checksum = zlib.crc32(array.data, checksum)  # type: ignore[attr-defined]
        with replacing(self.path(number)) as temporary, temporary.open("wb") as file:
            for array in (np.array([checksum]), *arrays):
                file.write(array.data)  # type: ignore[attr-defined]

    def path(self, number: int) -> Path:
        """File of a partition."""
        return self.folder / "parts" / f"{number:06d}.bin"

    def save(self, source: dict[str, Any]) -> None:
        """Write the manifest; with it the folder is complete."""
        about = {name: value for name, value in vars(self).items() if name not in ("folder", "compiled")}
        files = {name: describe(self.folder / f"{name}.arrow") for name in VOCABULARIES}
        write_sealed(self.folder / MANIFEST, {"version": VERSION, "source": source, "store": about, "files": files})

    @classmethod
    def open(cls, folder: Path, source: dict[str, Any]) -> Store | None:
        """The store in ``folder``; None where there is none, or where it was made from another source."""
        if not (folder / MANIFEST).exists():
            return None
        content = read_sealed(folder / MANIFEST)
        try:
            if content["version"] != VERSION or content["source"] != json.loads(json.dumps(source)):
                return None
            compiled = kernels.use_numba(content["store"]["n_annotations"])
            store = cls(folder, **content["store"], compiled=compiled)
            for name in VOCABULARIES:
                if describe(folder / f"{name}.arrow") != content["files"][name]:
                    raise ValueError(f"size or checksum of {name}.arrow does not match")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{folder} is damaged: {error}") from error
        for number in range(len(store)):
            store.load(number, check=True)
        return store


def write_sealed(path: Path, content: Any) -> None:
    """Write JSON with a checksum of itself; the file appears whole or not at all."""
    text = json.dumps({"checksum": zlib.crc32(json.dumps(content, sort_keys=True).encode()), "content": content})
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_sealed(path: Path) -> Any:
    """What `write_sealed` wrote; anything else is an error."""
    try:
        found = json.loads(path.read_bytes())
        if zlib.crc32(json.dumps(found["content"], sort_keys=True).encode()) != found["checksum"]:
            raise ValueError("its checksum does not match")
        return found["content"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], keep: Path | None = None) -> None:
    """Write an npz file, which has a checksum of each array; it appears whole or not at all, the old one as ``keep``."""
    with replacing(path, keep=keep) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def describe(path: Path) -> list[int]:
    """Size and checksum (CRC-32) of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return [path.stat().st_size, value]
