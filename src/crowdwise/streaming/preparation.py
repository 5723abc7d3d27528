"""Parquet of any size -> a `Store`, reading the table once and holding ids, but never rows, in memory.

1. Batches of rows become codes, which are written in blocks that are sorted by instance, each with the ids that are new in
   it; instances and annotators are numbered in order of first appearance. Afterwards the classes, and how many annotations
   each instance has, are known, and so are the borders of the partitions.
2. Each partition is gathered from the blocks, sorted, and written as it will be read.

A preparation that was killed goes on: blocks and partitions that are finished are kept (files with checksums, which got
their names when they were whole).
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core import kernels
from crowdwise.data.factorise import Column, encode_classes, factorise, weights_of
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError, spelled
from crowdwise.storage.arrays import read_npy, read_npz
from crowdwise.storage.files import rename, replacing, storing
from crowdwise.streaming._ids import Ids, grown
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.store import VERSION, Store, describe, read_sealed, write_arrays, write_sealed
from crowdwise.streaming.table import ROLES, WEIGHT, Table, parquet_files

BATCH = 1 << 20  # rows read at once, at most
BLOCK = 1 << 22  # rows of a block of codes, at most
PARTITION = 1 << 27  # bytes that work on one partition takes, at most
PER_ANNOTATION, PER_STATE = 48, 32  # bytes of that for an annotation, and for a class of an instance
GROWTH = 2  # times the memory of the ids, while they move to a larger place
SOURCE, BLOCKS, PARTS = "source.json", "blocks", "parts"  # what a preparation was begun for, and what it makes
SPILL = 16  # bytes on disk for an annotation while a table is prepared

CELL = 0xFFFFFFFF  # the half of an integer with annotator and label; the instance is in the other

Rows = npt.NDArray[np.int64]  # instance, and annotator * labels + label, in one integer: numpy sorts integers fast
Batch = tuple[npt.NDArray[Any], ...]  # codes of instances, annotators and labels, and weights where there are any


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
        "columns": {role: columns.get(role) for role in ROLES} | _named_weight(columns),
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
            for name in (BLOCKS, PARTS):
                (partial / name).mkdir(parents=True)
            write_sealed(partial / SOURCE, source)
            store = _Preparation(*task).run()
        store.save(source)
        rename(partial, ready)
    shutil.rmtree(ready / BLOCKS)
    (ready / SOURCE).unlink()
    return replace(store, folder=ready)


def _named_weight(columns: Mapping[str, str | None]) -> dict[str, str]:
    """The column of weights, where one was asked for."""
    name = columns.get(WEIGHT)
    return {} if name is None else {WEIGHT: name}


def _tell(message: str) -> None:
    warnings.warn(message, CrowdwiseWarning, stacklevel=2)


class _Preparation:
    """The two passes, and what one leaves for the next; ``folder`` holds what an earlier process has finished."""

    def __init__(
        self,
        files: Sequence[Path],
        folder: Path,
        columns: Mapping[str, str | None],
        limits: Limits,
        threads: int,
        progress: Progress,
    ) -> None:
        self.table = Table(files, columns)
        self.folder, self.limits, self.threads, self.progress = folder, limits, threads, progress
        self.ids = {role: Ids(self.table.kinds[role]) for role in ROLES}
        self.per_instance = np.zeros(0, np.uint32)  # annotations of every instance so far
        self.blocks: list[tuple[int, int, int]] = []  # first and last instance of each, and labels known by then

    def run(self) -> Store:
        self._check_disk()
        self._encode()
        n, r, c = (self.ids[role].size for role in ROLES)
        self._check_table(r, c)
        compiled = kernels.use_numba(self.table.rows)
        weight = self.table.weight
        names = self.table.names | ({} if weight is None else {WEIGHT: weight})
        store = Store(self.folder, names, self.table.rows, n, r, c, self._borders(n, c), compiled)
        labels = Column(pa.chunked_array([self.ids["label"].arrow()]), self.table.names["label"])
        rank, classes = encode_classes(labels, None)  # the code of every label in ascending order
        store.write_vocabulary("instances", self.ids["instance"].arrow())
        store.write_vocabulary("annotators", self.ids["annotator"].arrow())
        store.write_vocabulary("classes", classes.arrow)
        self.ids.clear()
        self.progress.step("sorting", self.table.rows)
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda number: self._finish(store, number, rank), range(len(store))))
        return store

    # checks

    def _check_disk(self) -> None:
        written = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        free, rows = shutil.disk_usage(self.folder).free + written, self.table.rows
        if SPILL * rows > free:
            raise DataError(
                f"{self.folder.parent}: preparing {rows:,} annotations takes up to {SPILL * rows / 1e9:.1f} GB on disk, "
                f"{free / 1e9:.1f} are free; choose another working folder ({spelled('work', 'DIR')})",
                parameter="work",
            )

    def _check_table(self, annotators: int, classes: int) -> None:
        needed = 8 * annotators * classes
        if 4 * needed > self.limits.memory or annotators * classes >= 2**32:
            raise DataError(
                f"{annotators:,} annotators by {classes:,} classes need tables of {needed / 1e9:.1f} GB each, and the "
                f"bound on memory is {self.limits.memory / 1e9:.1f} GB; is {self.table.names['label']!r} the column of "
                f"labels? If so, allow more ({spelled('memory')})",
                parameter="memory",
            )

    def _check_ids(self) -> None:
        taken = GROWTH * (sum(ids.n_bytes for ids in self.ids.values()) + self.per_instance.nbytes)
        if taken > self.limits.memory:
            number, many = max((ids.size, role) for role, ids in self.ids.items())
            raise DataError(
                f"{number:,} ids in {self.table.names[many]!r} and those of the other columns take {taken / 1e9:.2f} GB, "
                f"and the bound on memory is {self.limits.memory / 1e9:.2f} GB; is it the column of the {many}? If so, "
                f"allow more ({spelled('memory')})",
                parameter="memory",
            )

    # pass 1

    def _encode(self) -> None:
        """Write the codes of all rows in blocks."""
        self.progress.step("reading", self.table.rows)
        done = self._blocks_so_far()
        waiting: list[Batch] = []
        known = {role: ids.size for role, ids in self.ids.items()}
        with ThreadPoolExecutor(len(ROLES)) as pool:
            for columns in self.table.batches(done, self.limits.batch):
                size = len(columns[0].data)
                if waiting and sum(len(codes[0]) for codes in waiting) + size > self.limits.block:
                    self._write_block(waiting, known)
                    waiting = []
                codes = tuple(pool.map(self._codes, ROLES, columns))  # without the column of weights, if any
                waiting.append(codes if self.table.weight is None else (*codes, _weights(columns[-1])))
                self._check_ids()
                self.progress.advance(size)
        if waiting:
            self._write_block(waiting, known)

    def _codes(self, role: str, column: Column) -> npt.NDArray[np.int32]:
        local, seen = factorise(column)
        codes = self.ids[role].codes(seen.arrow)
        if role == "instance":
            self._count(codes, np.bincount(local, minlength=len(codes)))
        return codes[local]

    def _count(self, instances: Any, number: npt.NDArray[np.int64]) -> None:
        self.per_instance = grown(self.per_instance, self.ids["instance"].size)
        self.per_instance[instances] += number.astype(np.uint32)

    def _write_block(self, waiting: list[Batch], known: dict[str, int]) -> None:
        """Rows of some batches, sorted by instance, and the ids that were not ``known`` before."""
        labels = self.ids["label"].size  # so far
        self._check_table(self.ids["annotator"].size, labels)
        rows = np.empty(sum(len(codes[0]) for codes in waiting), np.int64)
        start = 0
        for instance, annotator, label, *_ in waiting:
            part = rows[start : start + len(label)]
            part[:] = annotator
            part *= labels
            part += label
            part |= instance.astype(np.int64) << 32
            start += len(label)
        arrays: dict[str, npt.NDArray[Any]] = {"labels": np.array(labels)}
        if self.table.weight is None:
            rows.sort()
        else:
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            arrays["weight"] = np.concatenate([codes[3] for codes in waiting])[order]
        path = self._block(len(self.blocks))
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, rows)
        arrays["rows"] = np.array(describe(path))
        for role in ROLES:
            arrays[f"{role}_starts"], arrays[f"{role}_values"] = self.ids[role].since(known[role])
            known[role] = self.ids[role].size
        write_arrays(path.with_suffix(".npz"), arrays)
        self.blocks.append((int(rows[0] >> 32), int(rows[-1] >> 32), labels))

    def _blocks_so_far(self) -> int:
        """Take in the blocks that an earlier process has written; returns their number of rows."""
        done = 0
        while (path := self._block(len(self.blocks)).with_suffix(".npz")).exists():
            about = read_npz(path, kind=ModelFileError)
            try:
                for role in ROLES:
                    self.ids[role].add(about[f"{role}_starts"], about[f"{role}_values"])
                if describe(path.with_suffix(".npy")) != about["rows"].tolist():
                    raise ValueError("the size or checksum of its rows does not match")
                instances = self._rows(len(self.blocks)) >> 32
                self._count(slice(int(instances[-1]) + 1), np.bincount(instances))
                labels = int(about["labels"])
            except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
                raise ModelFileError(f"{path} is damaged ({error})") from error
            self.blocks.append((int(instances[0]), int(instances[-1]), labels))
            self.progress.advance(len(instances))
            done += len(instances)
        return done

    def _block(self, number: int) -> Path:
        return self.folder / BLOCKS / f"{number:06d}.npy"

    def _rows(self, number: int) -> Rows:
        return read_npy(self._block(number), ModelFileError, mapped=True)

    # pass 2

    def _borders(self, instances: int, classes: int) -> list[int]:
        """First instance of every partition, and the end."""
        annotations = np.cumsum(self.per_instance[:instances], dtype=np.int64) - self.per_instance[:instances]
        states = np.arange(instances, dtype=np.int64) * (PER_STATE * classes)
        number = (annotations * PER_ANNOTATION + states) // self.limits.partition
        self.per_instance = np.zeros(0, np.uint32)
        return [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), instances]

    def _finish(self, store: Store, number: int, rank: npt.NDArray[np.int32]) -> None:
        """Check a partition that an earlier process has finished, or make it."""
        finished = store.path(number).exists()
        if not finished:
            self._sort(store, number, rank)
        self.progress.advance(store.load(number, check=finished).n_annotations)

    def _sort(self, store: Store, number: int, rank: npt.NDArray[np.int32]) -> None:
        """Gather a partition from the blocks, sort it, and write it."""
        start, stop = store.borders[number], store.borders[number + 1]
        found, weights = [], list[npt.NDArray[np.float32]]()
        for k, (first, last, labels) in enumerate(self.blocks):
            if first < stop and last >= start:
                rows = self._rows(k)
                taken = slice(*np.searchsorted(rows, np.array([start, stop]) << 32))
                rows = rows[taken]
                if self.table.weight is not None:
                    about = read_npz(self._block(k).with_suffix(".npz"), kind=ModelFileError)
                    weights.append(about["weight"][taken])
                pair = rows & CELL
                annotator = pair // labels
                found.append(rows - pair + annotator * store.n_classes + rank[pair - annotator * labels])
        packed, weight = np.concatenate(found), None
        if weights:
            joined = np.concatenate(weights)
            order = np.lexsort((joined, packed))
            packed, weight = packed[order], joined[order]
        else:
            packed.sort()
        indptr = np.searchsorted(packed, np.arange(start, stop + 1, dtype=np.int64) << 32).astype(np.int64)
        store.write(number, indptr, (packed & CELL).astype(np.uint32), weight)


def _weights(column: Column) -> npt.NDArray[np.float32]:
    """Weights of a batch, all above 0."""
    weight = np.asarray(weights_of(column))
    if not weight.all():
        raise column.error(int(np.argmin(weight)), "weight 0 cannot be streamed; leave such rows out")
    return weight
