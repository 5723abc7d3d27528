"""A prepared table: codes instead of ids, all annotations of an instance in one partition, partitions of bounded size.

A folder of plain files: ``manifest.json`` (written last, with sizes and checksums of all others), ``instances.arrow``,
``annotators.arrow``, ``classes.arrow`` (ids in the order of their codes), ``label_counts.npy`` (R, C), and
``parts/*.bin``. A partition holds the instances ``start..stop-1`` in two arrays that are mapped into memory as they are:
where each instance begins (int64), and the cells of its annotations (uint32, see `crowdwise.aggregation.core.kernels`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.crowd import Crowd
from crowdwise.data.factorise import Vocabulary
from crowdwise.errors import DataError, ModelFileError
from crowdwise.storage.arrays import read_npy
from crowdwise.storage.files import replacing

VERSION = 2
MANIFEST = "manifest.json"
FILES = ("instances.arrow", "annotators.arrow", "classes.arrow", "label_counts.npy")
_BLOCK = 1 << 22  # bytes read at once for a checksum


@dataclass(frozen=True)
class Sizes:
    """What a part of a crowd says of itself in place of `Annotations`."""

    n_annotations: int
    n_instances: int
    n_annotators: int
    n_classes: int

    def __len__(self) -> int:
        return self.n_annotations


@dataclass(frozen=True, eq=False)
class Part(Crowd):
    """The annotations of the instances ``start..stop-1``: a crowd of its own, with the codes of the whole."""

    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class Partition:
    """A file in ``parts``, which are numbered."""

    start: int
    stop: int
    n_annotations: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes."""
        return 8 * (self.stop - self.start + 1) + 4 * self.n_annotations

    @staticmethod
    def path(folder: Path, number: int) -> Path:
        """Its place in the folder of a store."""
        return folder / "parts" / f"{number:06d}.bin"

    def write(self, folder: Path, number: int, indptr: npt.NDArray[np.int64], cells: npt.NDArray[np.uint32]) -> None:
        """Write its file."""
        path = self.path(folder, number)
        with replacing(path, durable=False) as temporary, temporary.open("wb") as out:  # its checksum tells damage
            out.write(indptr.data)
            out.write(cells.data)

    def is_whole(self, folder: Path, number: int) -> bool:
        """Whether its file is there and holds what was written."""
        path = self.path(folder, number)
        return path.is_file() and describe(path) == [self.size, self.checksum]


@dataclass(frozen=True)
class Store:
    """A prepared table on disk; small enough to be sent to other processes."""

    folder: Path
    columns: dict[str, str]  # role -> column
    sizes: Sizes
    n_duplicates: int  # annotations that repeat the (instance, annotator) pair of another one
    partitions: tuple[Partition, ...]
    compiled: bool  # whether the crowd as a whole is large enough for compiled kernels

    def __len__(self) -> int:
        return self.sizes.n_annotations

    @property
    def n_instances(self) -> int:
        """Number of instances n."""
        return self.sizes.n_instances

    @property
    def n_annotators(self) -> int:
        """Number of annotators R."""
        return self.sizes.n_annotators

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return self.sizes.n_classes

    @cached_property
    def instance_vocabulary(self) -> Vocabulary:
        """Ids of the instances, mapped into memory."""
        return read_ids(self.folder / "instances.arrow")

    @cached_property
    def annotator_vocabulary(self) -> Vocabulary:
        """Ids of the annotators."""
        return read_ids(self.folder / "annotators.arrow")

    @cached_property
    def class_vocabulary(self) -> Vocabulary:
        """Ids of the classes, ascending."""
        return read_ids(self.folder / "classes.arrow")

    @property
    def annotators(self) -> npt.NDArray[Any]:
        """Ids of the annotators, (R,)."""
        return self.annotator_vocabulary.values

    @property
    def instances(self) -> npt.NDArray[Any]:
        """Ids of the instances, (n,)."""
        return self.instance_vocabulary.values

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Ids of the classes, (C,)."""
        return self.class_vocabulary.values

    @cached_property
    def label_counts(self) -> npt.NDArray[np.int64]:
        """How often each annotator gave each label, (R, C)."""
        return read_npy(self.folder / "label_counts.npy", ModelFileError)

    def indptr(self, number: int) -> npt.NDArray[np.int64]:
        """Where the annotations of each instance of a partition begin, (instances + 1,)."""
        part = self.partitions[number]
        return _map(part.path(self.folder, number), np.int64, 0, part.stop - part.start + 1)

    def load(self, number: int) -> Part:
        """A partition, mapped into memory."""
        part, r, c = self.partitions[number], self.n_annotators, self.n_classes
        indptr = self.indptr(number)
        cells = _map(part.path(self.folder, number), np.uint32, 8 * len(indptr), part.n_annotations)
        layout = kernels.Layout(cells, indptr, np.empty(0, np.int32), (r, c), 1, self.compiled)
        sizes: Any = Sizes(part.n_annotations, part.stop - part.start, r, c)
        return Part(sizes, layout, start=part.start, stop=part.stop)

    # files

    def save(self, source: dict[str, Any]) -> None:
        """Write the manifest; with it the folder is complete."""
        content = {
            "version": VERSION,
            "source": source,
            "columns": self.columns,
            "sizes": vars(self.sizes),
            "n_duplicates": self.n_duplicates,
            "files": {name: describe(self.folder / name) for name in FILES},
            "partitions": [vars(part) for part in self.partitions],
        }
        write_sealed(self.folder / MANIFEST, content)

    @classmethod
    def open(cls, folder: Path, source: dict[str, Any]) -> Store | None:
        """The store in ``folder``; None where there is none, or where it was made from another source."""
        if not (folder / MANIFEST).exists():
            return None
        content = read_sealed(folder / MANIFEST)
        try:
            if content["version"] != VERSION or content["source"] != json.loads(json.dumps(source)):
                return None
            sizes = Sizes(**content["sizes"])
            partitions = tuple(Partition(**part) for part in content["partitions"])
            for name in FILES:
                if describe(folder / name) != content["files"][name]:
                    raise ModelFileError(f"{folder / name} is damaged: its size or checksum does not match")
            for number, part in enumerate(partitions):
                if not part.is_whole(folder, number):
                    raise ModelFileError(f"{part.path(folder, number)} is damaged: its size or checksum does not match")
            compiled = kernels.use_numba(sizes.n_annotations)
            return cls(folder, content["columns"], sizes, content["n_duplicates"], partitions, compiled)
        except (OSError, KeyError, TypeError) as error:
            raise ModelFileError(f"{folder} is damaged: {error}") from error


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


def write_ids(path: Path, ids: pa.Array) -> None:
    """Write ids as one column of one batch, which can be mapped into memory."""
    table = pa.table({"id": ids})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_ids(path: Path) -> Vocabulary:
    """What `write_ids` wrote, mapped into memory."""
    with pa.memory_map(str(path)) as source:
        ids = pa.ipc.open_file(source).read_all().column("id")
    array = ids.chunk(0) if ids.num_chunks == 1 else ids.combine_chunks()
    return Vocabulary(len(array), array)


def describe(path: Path) -> list[int]:
    """Size and checksum of a file."""
    return [path.stat().st_size, checksum(path)]


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def _map(path: Path, kind: Any, offset: int, length: int) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.memmap(path, kind, "r", offset, (length,)))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the partition is damaged ({error}); remove the working folder and run again"
        ) from error
