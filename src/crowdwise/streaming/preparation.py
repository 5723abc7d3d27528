"""Parquet of any size -> a `Store`, reading the table once and holding ids, but never rows, in memory.

1. Batches of rows become codes, which are written in blocks, each with the ids that are new in it; instances and
   annotators are numbered in order of first appearance. Afterwards the classes, and how many annotations each instance
   has, are known, and so are the borders of the partitions.
2. The blocks are read again, each is sorted by instance, and dealt out to the partitions.
3. Each partition is sorted, and written as it will be read.

A preparation that was killed goes on: blocks and partitions that are finished are kept (files with checksums, which got
their names when they were whole), dealing starts again.
"""

from __future__ import annotations

import json
import shutil
import warnings
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core import kernels
from crowdwise.data.factorise import Column, encode_classes, factorise
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError, spelled
from crowdwise.storage.arrays import read_npz
from crowdwise.storage.files import rename, storing
from crowdwise.streaming._ids import Ids, grown
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.store import (
    FILES,
    VERSION,
    Partition,
    Sizes,
    Store,
    describe,
    read_sealed,
    write_arrays,
    write_ids,
    write_sealed,
)
from crowdwise.streaming.table import ROLES, Place, Table, parquet_files

BATCH = 1 << 20  # rows read at once, at most
BLOCK = 1 << 22  # rows of a block of codes, at most
PARTITION = 1 << 27  # bytes that work on one partition takes, at most
PER_ANNOTATION, PER_STATE = 48, 32  # bytes of that for an annotation, and for a class of an instance
GROWTH = 2  # times the memory of the ids, while they move to a larger place
SOURCE, DEALT = "source.json", "dealt.json"  # what a preparation was begun for; what it had when all was dealt out
SPILL = 24  # bytes on disk for an annotation while a table is prepared


@dataclass(frozen=True)
class Limits:
    """What a bound on memory means for the sizes of things."""

    memory: int

    @property
    def batch(self) -> int:
        """Rows of a batch: a row with three ids is taken for half a kilobyte at most, twice."""
        return max(1, min(BATCH, self.memory // 4096))

    @property
    def block(self) -> int:
        """Rows of a block."""
        return max(1, min(BLOCK, self.memory // 512))

    @property
    def partition(self) -> int:
        """Bytes that work on a partition takes."""
        return max(1, min(PARTITION, self.memory // 16))


def prepare(
    path: Path, folder: Path, columns: Mapping[str, str | None], memory: int, threads: int, progress: Progress
) -> Store:
    """The store of ``path`` in ``folder``: the one that is there if it was made from the same files, or a new one.

    ``columns`` names the columns of the instance, annotator and label; what is None is found by its usual names.
    """
    files = parquet_files(path)
    source = {
        "version": VERSION,
        "files": [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "columns": {role: columns.get(role) for role in ROLES},
        "memory": memory,
    }
    ready, partial = folder / "table", folder / "table.partial"
    store = None
    try:
        store = Store.open(ready, source)
        if store is not None:
            return store
    except ModelFileError as error:
        _tell(f"{error}; the table is prepared again")
    shutil.rmtree(ready, ignore_errors=True)
    for state in folder.glob("state-*.npz*"):  # of a table that is no more
        state.unlink()
    task = (files, partial, columns, Limits(memory), threads, progress)
    try:
        if (partial / SOURCE).exists() and read_sealed(partial / SOURCE) == json.loads(json.dumps(source)):
            store = _Preparation(*task).run()
    except ModelFileError as error:
        _tell(f"{error}; the table is prepared from its beginning")
    with storing(ready):  # errors of reading have names of their own
        if store is None:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write_sealed(partial / SOURCE, source)
            store = _Preparation(*task).run()
        store.save(source)
        rename(partial, ready)
    shutil.rmtree(ready / "dealt")
    for note in (SOURCE, DEALT):
        (ready / note).unlink()
    return replace(store, folder=ready)


def _tell(message: str) -> None:
    warnings.warn(message, CrowdwiseWarning, stacklevel=2)


class _Preparation:
    """The three passes, and what one leaves for the next; ``folder`` holds what an earlier process has finished."""

    def __init__(
        self,
        files: Sequence[Path],
        folder: Path,
        columns: Mapping[str, str | None],
        limits: Limits,
        threads: int,
        progress: Progress,
    ) -> None:
        self.files, self.folder, self.chosen = files, folder, columns
        self.limits, self.threads, self.progress = limits, threads, progress
        self.names: dict[str, str] = {}
        self.ids: dict[str, Ids] = {}
        self.per_instance = np.zeros(0, np.uint32)  # annotations of every instance so far

    def run(self) -> Store:
        table = Table(self.files, self.chosen)
        self.names, rows = table.names, table.rows
        if (self.folder / DEALT).exists():
            sizes, borders, dealt = self._recall(rows)
            self.progress.step("sorting", rows)
        else:
            self._check_disk(rows)
            blocks = self._encode(table)
            sizes = Sizes(rows, *(self.ids[role].size for role in ROLES))
            rank = self._write_ids(sizes)
            borders = self._borders(sizes)
            dealt = self._deal(blocks, rank, borders, sizes)
        shutil.rmtree(self.folder / "codes", ignore_errors=True)
        return self._finish(borders, sizes, dealt)

    # checks

    def _check_disk(self, rows: int) -> None:
        written = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        free = shutil.disk_usage(self.folder).free + written
        if SPILL * rows > free:
            raise DataError(
                f"{self.folder.parent}: preparing {rows:,} annotations takes up to {SPILL * rows / 1e9:.1f} GB on disk, "
                f"{free / 1e9:.1f} are free; name another working folder ({spelled('work', 'DIR')})",
                parameter="work",
            )

    def _check_table(self, sizes: Sizes) -> None:
        needed = 8 * sizes.n_annotators * sizes.n_classes
        if 4 * needed > self.limits.memory or sizes.n_annotators * sizes.n_classes >= 2**32:
            raise DataError(
                f"{sizes.n_annotators:,} annotators by {sizes.n_classes:,} classes need tables of {needed / 1e9:.1f} GB "
                f"each, the bound on memory is {self.limits.memory / 1e9:.1f}; is {self.names['label']!r} the column of "
                f"labels? If so, allow more ({spelled('memory')})",
                parameter="memory",
            )

    def _check_ids(self) -> None:
        taken = GROWTH * (sum(ids.n_bytes for ids in self.ids.values()) + self.per_instance.nbytes)
        if taken > self.limits.memory:
            number, many = max((ids.size, role) for role, ids in self.ids.items())
            raise DataError(
                f"{number:,} ids in {self.names[many]!r} and those of the other columns take {taken / 1e9:.2f} GB, and "
                f"the bound on memory is {self.limits.memory / 1e9:.2f} GB; is it the column of the {many}? If so, allow "
                f"more ({spelled('memory')})",
                parameter="memory",
            )

    # pass 1

    def _encode(self, table: Table) -> int:
        """Write the codes of all rows, and return the number of blocks."""
        self.ids = {role: Ids(table.kinds[role]) for role in ROLES}
        self.progress.step("reading", table.rows)
        (self.folder / "codes").mkdir(exist_ok=True)
        number, place = self._blocks_so_far()
        waiting: list[list[npt.NDArray[np.int32]]] = []
        known = {role: ids.size for role, ids in self.ids.items()}
        with ThreadPoolExecutor(len(ROLES)) as pool:
            for after, columns in table.batches(place, self.limits.batch):
                size = len(columns[0].data)
                if waiting and sum(len(codes[0]) for codes in waiting) + size > self.limits.block:
                    self._write_block(number, place, waiting, known)
                    waiting, number = [], number + 1
                waiting.append(list(pool.map(self._codes, ROLES, columns)))
                place = after
                self._check_ids()
                self.progress.advance(size)
        if waiting:
            self._write_block(number, place, waiting, known)
            number += 1
        return number

    def _write_block(
        self, number: int, place: Place, waiting: list[list[npt.NDArray[np.int32]]], known: dict[str, int]
    ) -> None:
        """Codes of some batches, the ids that were not ``known`` before, and where reading goes on afterwards."""
        arrays: dict[str, npt.NDArray[Any]] = {"place": np.array(place)}
        for role, codes in zip(ROLES, zip(*waiting, strict=True), strict=True):
            arrays[role] = np.concatenate(codes)
            for k, part in enumerate(self.ids[role].since(known[role])):
                arrays[f"new_{role}_{k}"] = part
            known[role] = self.ids[role].size
        write_arrays(self._block(number), arrays)

    def _blocks_so_far(self) -> tuple[int, Place]:
        """The blocks that an earlier process has written are taken in; their number, and where reading goes on."""
        number, place = 0, (0, 0, 0)
        while self._block(number).exists():
            block = read_npz(self._block(number), kind=ModelFileError)
            try:
                for role in ROLES:
                    self.ids[role].add([block[name] for name in sorted(block) if name.startswith(f"new_{role}_")])
                counts = np.bincount(block["instance"]).astype(np.uint32)
                if len(counts) > self.ids["instance"].size:
                    raise ValueError("it has codes of unknown instances")
                file, group, batch = (int(k) for k in block["place"])
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ModelFileError(f"{self._block(number)} is damaged ({error})") from error
            self.per_instance = grown(self.per_instance, self.ids["instance"].size)
            self.per_instance[: len(counts)] += counts
            number, place = number + 1, (file, group, batch)
            self.progress.advance(len(block["instance"]))
        return number, place

    def _block(self, number: int) -> Path:
        return self.folder / "codes" / f"{number:06d}.npz"

    def _codes(self, role: str, column: Column) -> npt.NDArray[np.int32]:
        local, seen = factorise(column)
        codes = self.ids[role].codes(seen.arrow)
        if role == "instance":
            self.per_instance = grown(self.per_instance, self.ids[role].size)
            self.per_instance[codes] += np.bincount(local, minlength=len(codes)).astype(np.uint32)
        return codes[local]

    # pass 2

    def _write_ids(self, sizes: Sizes) -> npt.NDArray[np.int32]:
        """Write the vocabularies, forget the hash tables, and return the code of every label in ascending order."""
        self._check_table(sizes)
        write_ids(self.folder / "instances.arrow", self.ids["instance"].arrow())
        write_ids(self.folder / "annotators.arrow", self.ids["annotator"].arrow())
        labels = Column(pa.chunked_array([self.ids["label"].arrow()]), self.names["label"])
        rank, classes = encode_classes(labels, None)
        write_ids(self.folder / "classes.arrow", classes.arrow)
        self.ids.clear()
        return rank

    def _borders(self, sizes: Sizes) -> npt.NDArray[np.int64]:
        """First instance of every partition, and the end, (P + 1,)."""
        before = np.zeros(sizes.n_instances + 1, np.int64)
        np.cumsum(self.per_instance[: sizes.n_instances], out=before[1:])
        states = np.arange(sizes.n_instances, dtype=np.int64) * (PER_STATE * sizes.n_classes)
        number = (before[:-1] * PER_ANNOTATION + states) // self.limits.partition
        borders = np.append(np.flatnonzero(np.diff(number, prepend=-1)), sizes.n_instances)
        self.per_instance = np.zeros(0, np.uint32)
        return borders

    def _deal(
        self, blocks: int, rank: npt.NDArray[np.int32], borders: npt.NDArray[np.int64], sizes: Sizes
    ) -> list[list[int]]:
        """Append every annotation to the file of its partition, as one integer: instance, then cell; returns the files'
        sizes and checksums."""
        self.progress.step("sorting", 2 * sizes.n_annotations)  # now, and each partition
        for name in ("dealt", "parts"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        counts = np.zeros(sizes.n_annotators * sizes.n_classes, np.int64)
        dealt = [[0, 0] for _ in borders[1:]]
        for k in range(blocks):
            codes = read_npz(self._block(k), ROLES, ModelFileError)
            block = codes["instance"].astype(np.int64) << 32
            block |= codes["annotator"].astype(np.int64) * sizes.n_classes + rank[codes["label"]]
            counts += np.bincount(block & 0xFFFFFFFF, minlength=len(counts))
            block.sort()
            cuts = np.searchsorted(block, borders << 32)
            for number in np.flatnonzero(np.diff(cuts)).tolist():
                data = block[cuts[number] : cuts[number + 1]].data
                with self._dealt(number).open("ab") as out:
                    out.write(data)
                dealt[number] = [dealt[number][0] + data.nbytes, zlib.crc32(data, dealt[number][1])]
            self.progress.advance(len(block))
        np.save(self.folder / "label_counts.npy", counts.reshape(sizes.n_annotators, sizes.n_classes))
        files = {name: describe(self.folder / name) for name in FILES}
        about = {"sizes": vars(sizes), "borders": borders.tolist(), "dealt": dealt, "files": files}
        write_sealed(self.folder / DEALT, about)
        return dealt

    def _recall(self, rows: int) -> tuple[Sizes, npt.NDArray[np.int64], list[list[int]]]:
        """What `_deal` had to say in an earlier process."""
        try:
            about = read_sealed(self.folder / DEALT)
            sizes, borders = Sizes(**about["sizes"]), np.array(about["borders"], np.int64)
            if sizes.n_annotations != rows or any(describe(self.folder / k) != v for k, v in about["files"].items()):
                raise ValueError("it does not fit the files beside it")
            return sizes, borders, about["dealt"]
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ModelFileError(f"{self.folder / DEALT} is damaged ({error})") from error

    def _dealt(self, number: int) -> Path:
        return self.folder / "dealt" / f"{number:06d}.bin"

    # pass 3

    def _finish(self, borders: npt.NDArray[np.int64], sizes: Sizes, dealt: list[list[int]]) -> Store:
        with ThreadPoolExecutor(self.threads) as pool:
            done = list(
                pool.map(
                    lambda k: self._sorted(k, int(borders[k]), int(borders[k + 1]), sizes.n_classes, dealt[k]),
                    range(len(borders) - 1),
                )
            )
        partitions, repeats = zip(*done, strict=True)
        compiled = kernels.use_numba(sizes.n_annotations)
        return Store(self.folder, self.names, sizes, sum(repeats), partitions, compiled)

    def _sorted(self, number: int, start: int, stop: int, classes: int, dealt: list[int]) -> tuple[Partition, int]:
        """A partition that an earlier process has finished, or a new one; and its repeated (instance, annotator) pairs."""
        note = self._dealt(number).with_suffix(".json")
        if note.exists():
            about = read_sealed(note)
            part = Partition(start, stop, dealt[0] // 8, about["checksum"])
            if part.is_whole(self.folder, number):
                self.progress.advance(part.n_annotations)
                return part, about["repeats"]
            raise ModelFileError(f"{self.folder}: partition {number} is damaged")
        part, repeats = self._sort(number, start, stop, classes, dealt)
        write_sealed(note, {"checksum": part.checksum, "repeats": repeats})
        self._dealt(number).unlink()
        self.progress.advance(part.n_annotations)
        return part, repeats

    def _sort(self, number: int, start: int, stop: int, classes: int, dealt: list[int]) -> tuple[Partition, int]:
        """Write a partition as `Store` reads it; also returns its repeated (instance, annotator) pairs."""
        try:
            packed = np.fromfile(self._dealt(number), np.int64)
        except OSError as error:
            raise ModelFileError(f"{self._dealt(number)} cannot be read ({error})") from error
        if [packed.nbytes, zlib.crc32(packed.data)] != dealt:
            raise ModelFileError(f"{self._dealt(number)} is damaged: its size or checksum does not match")
        packed.sort()
        indptr = np.searchsorted(packed, np.arange(start, stop + 1, dtype=np.int64) << 32).astype(np.int64)
        cells = (packed & 0xFFFFFFFF).astype(np.uint32)
        packed -= cells % np.uint32(classes)  # what is left tells instance and annotator
        repeats = int(np.count_nonzero(packed[1:] == packed[:-1]))
        part = Partition(start, stop, len(cells), zlib.crc32(cells.data, zlib.crc32(indptr.data)))
        part.write(self.folder, number, indptr, cells)
        return part, repeats
