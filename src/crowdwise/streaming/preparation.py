"""Parquet of any size -> a `Store`, reading the table once and holding ids, but never rows, in memory.

1. Batches of rows become codes, which are appended to a file; instances and annotators are numbered in order of first
   appearance. Afterwards the classes, and how many annotations each instance has, are known, and so are the borders of
   the partitions.
2. The codes are read again in blocks, each sorted by instance, and dealt out to the partitions.
3. Each partition is sorted, and written as it will be read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from crowdwise._factorise import Column, encode_classes, factorise
from crowdwise._files import rename, storing
from crowdwise._frames import choose_columns
from crowdwise.aggregation import kernels
from crowdwise.errors import AnnotationError, DataError
from crowdwise.streaming._ids import Ids, grown, kind_of
from crowdwise.streaming._progress import Progress
from crowdwise.streaming.store import Partition, Sizes, Store, checksum, write_ids

SUFFIXES = (".parquet", ".pq")
ROLES = ("instance", "annotator", "label")
BATCH = 1 << 20  # rows read at once, at most
BLOCK = 1 << 22  # codes dealt out at once, at most
PARTITION = 1 << 27  # bytes that work on one partition takes, at most
PER_ANNOTATION, PER_STATE = 48, 32  # bytes of that for an annotation, and for a class of an instance
GROWTH = 2  # times the memory of the ids, while they move to a larger place
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
        """Codes of a block."""
        return max(1, min(BLOCK, self.memory // 512))

    @property
    def partition(self) -> int:
        """Bytes that work on a partition takes."""
        return max(1, min(PARTITION, self.memory // 16))


def parquet_files(path: Path) -> list[Path]:
    """A Parquet file, or those of a folder and its folders in the order of their names; hidden ones are left out."""
    if path.is_dir():
        found = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in SUFFIXES
            and file.is_file()
            and not any(name.startswith((".", "_")) for name in file.relative_to(path).parts)
        )
        if not found:
            raise DataError(f"{path}: the folder has no Parquet files ({', '.join(SUFFIXES)})")
        return found
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path}: only Parquet ({', '.join(SUFFIXES)}) can be streamed; convert the table")
    return [path]


def count_rows(path: Path) -> int:
    """Rows of a Parquet file or of a folder of such files, by their footers."""
    return sum(_open(file).metadata.num_rows for file in parquet_files(path))


def prepare(
    path: Path, folder: Path, columns: Mapping[str, str | None], memory: int, threads: int, progress: Progress
) -> Store:
    """The store of ``path`` in ``folder``: the one that is there if it was made from the same files, or a new one.

    ``columns`` names the columns of the instance, annotator and label; what is None is found by its usual names.
    """
    files = parquet_files(path)
    source = {
        "files": [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
        "columns": {role: columns.get(role) for role in ROLES},
        "memory": memory,
    }
    ready = folder / "table"
    store = Store.open(ready, source)
    if store is not None:
        return store
    partial = folder / "table.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(ready, ignore_errors=True)
    for state in folder.glob("state-*.npz"):  # of a table that is no more
        state.unlink()
    with storing(ready):  # errors of reading have names of their own
        (partial / "parts").mkdir(parents=True)
        store = _Preparation(files, partial, columns, Limits(memory), threads, progress).run()
        store.save(source)
        rename(partial, ready)
    return replace(store, folder=ready)


class _Preparation:
    """The three passes, and what one leaves for the next."""

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
        rows = sum(self._check(file) for file in self.files)
        if not rows:
            raise DataError(f"{self.files[0]}: the table has columns but no rows")
        self._check_disk(rows)
        spill = self.folder / "codes.bin"
        batches = self._encode(spill, rows)
        sizes = Sizes(rows, *(self.ids[role].size for role in ROLES))
        rank = self._write_ids(sizes)
        borders = self._borders(sizes)
        self._deal(spill, batches, rank, borders, sizes)
        spill.unlink()
        return self._finish(borders, sizes)

    # checks

    def _check(self, file: Path) -> int:
        """Rows of a file, whose columns must be those of the first one."""
        parquet = _open(file)
        names = parquet.schema_arrow.names
        try:
            if not self.names:
                self.names = choose_columns(names, {role: self.chosen.get(role) for role in ROLES})
            for role, name in self.names.items():
                if name not in names:
                    raise AnnotationError(f"no column {name!r} for the {role}, which {self.files[0].name} has")
                kind = kind_of(name, parquet.schema_arrow.field(name).type)
                if kind != self.ids.setdefault(role, Ids(kind)).kind:
                    raise AnnotationError(
                        f"column {name!r} holds {kind}, but {self.ids[role].kind} in {self.files[0].name}"
                    )
        except AnnotationError as error:
            raise AnnotationError(f"{file}: {error}") from error
        return int(parquet.metadata.num_rows)

    def _check_disk(self, rows: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if SPILL * rows > free:
            raise DataError(
                f"{self.folder.parent}: preparing {rows:,} annotations takes up to {SPILL * rows / 1e9:.1f} GB on disk, "
                f"{free / 1e9:.1f} are free; name another working folder (--work DIR)"
            )

    def _check_table(self, sizes: Sizes) -> None:
        needed = 8 * sizes.n_annotators * sizes.n_classes
        if 4 * needed > self.limits.memory or sizes.n_annotators * sizes.n_classes >= 2**32:
            raise DataError(
                f"{sizes.n_annotators:,} annotators by {sizes.n_classes:,} classes need tables of {needed / 1e9:.1f} GB "
                f"each, the bound on memory is {self.limits.memory / 1e9:.1f}; is {self.names['label']!r} the column of "
                "labels? If so, allow more (--memory)"
            )

    def _check_ids(self) -> None:
        taken = GROWTH * (sum(ids.n_bytes for ids in self.ids.values()) + self.per_instance.nbytes)
        if taken > self.limits.memory:
            number, many = max((ids.size, role) for role, ids in self.ids.items())
            raise DataError(
                f"{number:,} ids in {self.names[many]!r} and those of the other columns take {taken / 1e9:.2f} GB, and "
                f"the bound on memory is {self.limits.memory / 1e9:.2f} GB; is it the column of the {many}? If so, allow "
                "more (--memory)"
            )

    # pass 1

    def _encode(self, spill: Path, rows: int) -> list[int]:
        """Append the codes of all rows to a file, batch by batch, and return the sizes of the batches."""
        self.progress.step("reading", rows)
        batches = []
        with spill.open("wb") as out, ThreadPoolExecutor(len(ROLES)) as pool:
            for columns in self._batches():
                codes = list(pool.map(self._codes, ROLES, columns))
                for array in codes:
                    out.write(array.data)
                batches.append(len(codes[0]))
                self._check_ids()
                self.progress.advance(len(codes[0]))
        return batches

    def _batches(self) -> Iterator[tuple[Column, ...]]:
        names = [self.names[role] for role in ROLES]
        for file in self.files:
            parquet, first = _open(file), 1
            for group in range(parquet.num_row_groups):
                try:
                    for batch in parquet.iter_batches(self.limits.batch, row_groups=[group], columns=names):
                        place = f"row group {group}, record {{}}".format
                        yield tuple(self._column(file, batch, name, first, place) for name in names)
                        first += batch.num_rows
                except (pa.ArrowException, OSError) as error:
                    raise DataError(f"{file}, row group {group}: cannot be read as parquet: {error}") from error

    def _column(self, file: Path, batch: pa.RecordBatch, name: str, first: int, place: Any) -> Column:
        data = pa.chunked_array([batch.column(name)])
        return Column(data, f"{file}: column {name!r}", lambda row: place(first + row))

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
        self,
        spill: Path,
        batches: Sequence[int],
        rank: npt.NDArray[np.int32],
        borders: npt.NDArray[np.int64],
        sizes: Sizes,
    ) -> None:
        """Append every annotation to the file of its partition, as one integer: instance, then cell."""
        self.progress.step("sorting", 2 * sizes.n_annotations)  # now, and each partition
        counts = np.zeros(sizes.n_annotators * sizes.n_classes, np.int64)
        with spill.open("rb") as codes:
            for block in _blocks(codes, batches, self.limits.block, rank, sizes.n_classes):
                counts += np.bincount(block & 0xFFFFFFFF, minlength=len(counts))
                block.sort()
                cuts = np.searchsorted(block, borders << 32)
                for number in np.flatnonzero(np.diff(cuts)).tolist():
                    with self._part(number).open("ab") as out:
                        out.write(block[cuts[number] : cuts[number + 1]].data)
                self.progress.advance(len(block))
        np.save(self.folder / "label_counts.npy", counts.reshape(sizes.n_annotators, sizes.n_classes))

    def _part(self, number: int) -> Path:
        return self.folder / "parts" / f"{number:06d}.bin"

    # pass 3

    def _finish(self, borders: npt.NDArray[np.int64], sizes: Sizes) -> Store:
        with ThreadPoolExecutor(self.threads) as pool:
            done = list(
                pool.map(
                    lambda k: self._sort(k, int(borders[k]), int(borders[k + 1]), sizes.n_classes),
                    range(len(borders) - 1),
                )
            )
        partitions, repeats = zip(*done, strict=True)
        compiled = kernels.use_numba(sizes.n_annotations)
        return Store(self.folder, self.names, sizes, sum(repeats), partitions, compiled)

    def _sort(self, number: int, start: int, stop: int, classes: int) -> tuple[Partition, int]:
        """Write a partition as `Store` reads it; also returns its repeated (instance, annotator) pairs."""
        path = self._part(number)
        packed = np.fromfile(path, np.int64)
        packed.sort()
        indptr = np.searchsorted(packed, np.arange(start, stop + 1, dtype=np.int64) << 32)
        cells = (packed & 0xFFFFFFFF).astype(np.uint32)
        packed -= cells % np.uint32(classes)  # what is left tells instance and annotator
        repeats = int(np.count_nonzero(packed[1:] == packed[:-1]))
        with path.open("wb") as out:
            out.write(indptr.astype(np.int64).data)
            out.write(cells.data)
        self.progress.advance(len(cells))
        return Partition(path.name, start, stop, len(cells), checksum(path)), repeats


def _blocks(
    codes: IO[bytes], batches: Sequence[int], limit: int, rank: npt.NDArray[np.int32], classes: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Packed annotations, as many batches at once as a block may hold."""
    pending: list[npt.NDArray[np.int64]] = []
    for size in batches:
        if pending and sum(map(len, pending)) + size > limit:
            yield np.concatenate(pending)
            pending.clear()
        instance, annotator, label = (np.fromfile(codes, np.int32, size) for _ in ROLES)
        packed = instance.astype(np.int64)
        packed <<= 32
        packed |= annotator.astype(np.int64) * classes + rank[label]
        pending.append(packed)
    yield np.concatenate(pending)


def _open(path: Path) -> pq.ParquetFile:
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    try:
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from error
