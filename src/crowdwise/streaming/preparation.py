"""Parquet of any size -> a `Store`, reading the table once and holding ids, but never rows, in memory.

1. Batches of rows become codes, which are written in blocks that are sorted by instance, each with the ids that are new in
   it; instances and annotators are numbered in order of first appearance. Afterwards the classes, and how many annotations
   each instance has, are known, and so are the borders of the partitions.
2. Each partition is gathered from the blocks, sorted, and written as it will be read.

A preparation that was killed goes on: blocks and partitions that are finished are kept (files with checksums, which got
their names when they were whole).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.data.codes import cells
from crowdwise.data.factorise import Column, decoded, encode_classes, factorise, is_blank, is_text, weights_of
from crowdwise.data.label_rules import settled_texts
from crowdwise.errors import AnnotationError, CrowdwiseWarning, DataError, ModelFileError, spelled
from crowdwise.readers import MODEL
from crowdwise.storage.files import storing
from crowdwise.streaming._ids import Ids, grown
from crowdwise.streaming.passes import Progress
from crowdwise.streaming.store import TABLE, Store, read_arrays, write_arrays
from crowdwise.streaming.table import AUTO, KIND, ROLES, WEIGHT, Table, parquet_files

VERSION = 6  # of the files
BATCH = 1 << 20  # rows read at once, at most
BLOCK = 1 << 22  # rows of a block of codes, at most
PARTITION = 1 << 27  # bytes that work on one partition takes, at most
PER_ANNOTATION, PER_STATE = 48, 32  # bytes of that for an annotation, and for a class of an instance
GROWTH = 2  # times the memory of the ids, while they move to a larger place
FOOTER = 1 << 16  # bytes at the end of a file of which a checksum is made
SPILL = 16  # bytes on disk for an annotation while a table is prepared

CELL = 0xFFFFFFFF  # the half of an integer with annotator and label; the instance is in the other

Batch = tuple[npt.NDArray[Any], ...]  # codes of instances, annotators and labels, and weights where there are any


def prepare(
    path: Path,
    folder: Path,
    columns: Mapping[str, str | None],
    memory: int,
    threads: int,
    progress: Progress,
    format: str = AUTO,
) -> Store:
    """The store of ``path`` in ``folder``: the one that is there if it was made from the same files, or a new one.

    ``columns`` names the columns of the instance, annotator, label and weight; what is None is found by its usual names,
    which are those of a ``format``.
    """
    files = parquet_files(path)
    versions = [_version(file) for file in files]
    source = json.dumps([VERSION, versions, [columns.get(role) for role in (*ROLES, WEIGHT)], format, memory])
    ready = folder / f"table-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    with storing(ready):  # errors of reading have names of their own
        if not ready.exists():
            _clear(folder)
        try:
            return _prepared(ready, partial(Table, files, columns, format), memory, threads, progress)
        except ModelFileError as error:
            warnings.warn(f"{error}; the table is prepared again", CrowdwiseWarning, stacklevel=2)
            shutil.rmtree(ready)
            return _prepared(ready, partial(Table, files, columns, format), memory, threads, progress)


def _version(file: Path) -> list[Any]:
    """What tells a file from another one, or from what it held before.

    Size and time of change are not enough, as copies keep them: so the number of the file, the time when its entry changed,
    and a checksum of what the file says of itself at its end.
    """
    about = file.stat()
    with file.open("rb") as content:
        content.seek(max(0, about.st_size - FOOTER))
        footer = zlib.crc32(content.read())
    return [str(file.resolve()), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, footer]


def _clear(folder: Path) -> None:
    """Remove what belongs to a table that is no more."""
    for table in folder.glob("table*"):
        shutil.rmtree(table, ignore_errors=True)
    for state in folder.glob("state-*"):
        state.unlink()


def _prepared(folder: Path, table: partial[Table], memory: int, threads: int, progress: Progress) -> Store:
    """Make what ``folder`` lacks, and check what an earlier process has made."""
    for name in ("blocks", "parts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    begun = (folder / TABLE).exists()
    if not begun:
        _Encoding(folder, table(), memory, progress).run()
    store = Store.open(folder)
    finished = [store.path(number).exists() for number in range(len(store))]
    arrays = read_arrays(folder / TABLE)
    blocks, rank = arrays["blocks"].to_numpy().reshape(-1, 3), arrays["rank"].to_numpy()
    if begun and not all(finished):
        for number in range(len(blocks)):
            read_arrays(_block(folder, number), check=True)

    def finish(number: int) -> None:
        if not finished[number]:
            _sort(store, number, blocks, rank)
        progress.advance(store.load(number, check=finished[number]).n_annotations)

    progress.step("sorting", store.n_annotations)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(finish, range(len(store))))
    shutil.rmtree(folder / "blocks")
    return store


def _block(folder: Path, number: int) -> Path:
    return folder / "blocks" / f"{number:06d}.arrow"


class _Encoding:
    """The first pass; ``folder`` holds the blocks that an earlier process has finished.

    A block has ``rows`` (instance, and annotator * labels + label, in one integer: numpy sorts integers fast), their ``weight``
    where there is any, and the ids of each role that are new; how many rows of the table were ``read`` for it, of which those
    without a label are left out, and codes of annotators that are ``models``.
    """

    def __init__(self, folder: Path, table: Table, memory: int, progress: Progress) -> None:
        self.folder, self.table, self.memory, self.progress = folder, table, memory, progress
        self.ids = {role: Ids(table.kinds[role]) for role in ROLES}
        self.per_instance = np.zeros(0, np.uint32)  # annotations of every instance so far
        self.known = dict.fromkeys(ROLES, 0)  # ids in the blocks so far
        self.blocks: list[tuple[int, int, int]] = []  # first and last instance of each, and labels known by then
        self.kept = 0  # rows in the blocks so far
        self.models: set[int] = set()  # annotators that are models

    def run(self) -> None:
        """Write the codes of all rows in blocks, and then what is known of the table."""
        self._check_disk()
        self.progress.step("reading", self.table.rows)
        done = self._blocks_so_far()
        waiting: list[Batch] = []
        size = max(
            1, min(BATCH, self.memory // 4096)
        )  # a row with three ids is taken for half a kilobyte at most, twice
        with ThreadPoolExecutor(len(ROLES)) as pool:
            read = 0  # rows since the last block
            for columns in self.table.batches(done, size):
                rows = len(columns["label"].data)
                if waiting and sum(len(codes[0]) for codes in waiting) + rows > min(BLOCK, self.memory // 512):
                    self._write_block(waiting, read)
                    waiting, read = [], 0
                read += rows
                labelled = _labelled(columns)
                if len(labelled["label"].data):
                    codes = tuple(pool.map(self._codes, ROLES, [labelled[role] for role in ROLES]))
                    waiting.append(codes if WEIGHT not in labelled else (*codes, _weights(labelled[WEIGHT])))
                    self.models |= _models(codes[1], labelled.get(KIND))
                self._check_ids()
                self.progress.advance(rows)
        if waiting:
            self._write_block(waiting, read)
        if not self.kept:
            raise AnnotationError(
                f"{self.table.files[0]}: there are no annotations (left out: {self.table.rows:,} without a label)"
            )
        self._write_table()

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

    def _check_table(self) -> None:
        annotators, classes = self.ids["annotator"].size, self.ids["label"].size
        needed = 8 * annotators * classes
        if 4 * needed > self.memory or annotators * classes >= 2**32:
            raise DataError(
                f"{annotators:,} annotators by {classes:,} classes need tables of {needed / 1e9:.1f} GB each, and the "
                f"bound on memory is {self.memory / 1e9:.1f} GB; is {self.table.names['label']!r} the column of "
                f"labels? If so, allow more ({spelled('memory')})",
                parameter="memory",
            )

    def _check_ids(self) -> None:
        taken = GROWTH * (sum(ids.n_bytes for ids in self.ids.values()) + self.per_instance.nbytes)
        if taken > self.memory:
            number, many = max((ids.size, role) for role, ids in self.ids.items())
            raise DataError(
                f"{number:,} ids in {self.table.names[many]!r} and those of the other columns take {taken / 1e9:.2f} GB, "
                f"and the bound on memory is {self.memory / 1e9:.2f} GB; is it the column of the {many}? If so, "
                f"allow more ({spelled('memory')})",
                parameter="memory",
            )

    # blocks

    def _codes(self, role: str, column: Column) -> npt.NDArray[np.int32]:
        local, seen = factorise(column)
        return np.asarray(self.ids[role].codes(seen.arrow)[local])

    def _write_block(self, waiting: list[Batch], read: int) -> None:
        """Rows of some batches, sorted by instance, and the ids that were not known before."""
        self._check_table()
        labels = self.ids["label"].size  # so far
        rows = np.concatenate(
            [
                cells(annotator, labels, label) | (instance.astype(np.int64) << 32)
                for instance, annotator, label, *_ in waiting
            ]
        )
        arrays = {role: self.ids[role].since(self.known[role]) for role in ROLES}
        if self.table.weight is None:
            rows.sort()
        else:
            order = np.argsort(rows, kind="stable")
            rows, arrays["weight"] = rows[order], np.concatenate([codes[3] for codes in waiting])[order]
        more = {"read": np.array([read]), "models": np.array(sorted(self.models), np.int32)}
        write_arrays(_block(self.folder, len(self.blocks)), {"rows": rows, **arrays, **more})
        self._add_block(rows)

    def _blocks_so_far(self) -> int:
        """Take in the blocks that an earlier process has written; returns how many rows were read for them."""
        done = 0
        while (path := _block(self.folder, len(self.blocks))).exists():
            arrays = read_arrays(path, check=True)
            for role in ROLES:
                self.ids[role].codes(arrays[role])
            self._add_block(arrays["rows"].to_numpy())
            self.models.update(arrays["models"].to_pylist())
            read = int(arrays["read"][0].as_py())
            self.progress.advance(read)
            done += read
        return done

    def _add_block(self, rows: npt.NDArray[np.int64]) -> None:
        """A block is there; its rows are sorted."""
        instances = rows >> 32
        first = np.flatnonzero(np.diff(instances, prepend=-1))  # row of each instance
        self.per_instance = grown(self.per_instance, self.ids["instance"].size)
        self.per_instance[instances[first]] += np.diff(first, append=len(rows)).astype(np.uint32)
        self.blocks.append((int(instances[0]), int(instances[-1]), self.ids["label"].size))
        self.known = {role: ids.size for role, ids in self.ids.items()}
        self.kept += len(rows)

    # what is known in the end

    def _write_table(self) -> None:
        self._check_table()
        labels = Column(pa.chunked_array([_settled(self.ids["label"].since(0))]), self.table.names["label"])
        rank, classes = encode_classes(labels, None)  # the code of every label in ascending order
        n, annotators = self.ids["instance"].size, self.ids["annotator"].since(0)
        about = {
            "columns": self.table.names | ({} if self.table.weight is None else {WEIGHT: self.table.weight}),
            "n_annotations": self.kept,
            "n_blank": self.table.rows - self.kept,
            "n_models": len(self.models),
            "gold": self.table.gold,
            "n_instances": n,
            "n_annotators": len(annotators),
            "n_classes": classes.size,
            "borders": self._borders(n, classes.size),
        }
        ids = {"instances": self.ids["instance"].since(0), "annotators": annotators, "classes": classes.arrow}
        arrays = {"rank": rank, "blocks": np.array(self.blocks).ravel(), **ids}
        write_arrays(self.folder / TABLE, {"about": [json.dumps(about)], **arrays})

    def _borders(self, instances: int, classes: int) -> list[int]:
        """First instance of every partition, and the end."""
        annotations = np.cumsum(self.per_instance[:instances], dtype=np.int64) - self.per_instance[:instances]
        states = np.arange(instances, dtype=np.int64) * (PER_STATE * classes)
        number = (annotations * PER_ANNOTATION + states) // max(1, min(PARTITION, self.memory // 16))
        return [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), instances]


def _sort(store: Store, number: int, blocks: npt.NDArray[np.int64], rank: npt.NDArray[np.int32]) -> None:
    """Gather a partition from the blocks, sort it, and write it."""
    start, stop = store.borders[number], store.borders[number + 1]
    found, weights = [], []
    for k in np.flatnonzero((blocks[:, 0] < stop) & (blocks[:, 1] >= start)).tolist():
        arrays, labels = read_arrays(_block(store.folder, k)), blocks[k, 2]
        rows = arrays["rows"].to_numpy()
        taken = slice(*np.searchsorted(rows, np.array([start, stop]) << 32))
        rows = rows[taken]
        pair = rows & CELL
        annotator = pair // labels
        found.append(rows - pair + annotator * store.n_classes + rank[pair - annotator * labels])
        if "weight" in arrays:
            weights.append(arrays["weight"].to_numpy()[taken])
    packed, weight = np.concatenate(found), {}
    if weights:
        joined = np.concatenate(weights)
        order = np.lexsort((joined, packed))
        packed, weight = packed[order], {"weight": joined[order]}
    else:
        packed.sort()
    indptr = np.searchsorted(packed, np.arange(start, stop + 1, dtype=np.int64) << 32).astype(np.int64)
    write_arrays(store.path(number), {"indptr": indptr, "cells": (packed & CELL).astype(np.uint32), **weight})


def _labelled(columns: dict[str, Column]) -> dict[str, Column]:
    """The rows of a batch that have a label, by the rule of tables in memory."""
    given = np.concatenate([np.empty(0, bool), *(_given(chunk) for chunk in columns["label"].data.chunks)])
    if given.all():
        return columns
    rows = np.flatnonzero(given)
    return {role: column.take(rows) for role, column in columns.items()}


def _settled(labels: pa.Array) -> pa.Array:
    """Distinct labels under the names that they have in memory, which may be the same for several."""
    return pa.array(settled_texts(labels.to_pylist()), labels.type) if is_text(labels.type) else labels


def _given(labels: pa.Array) -> npt.NDArray[np.bool_]:
    """Which of some labels are any; each distinct value is looked at once."""
    codes = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
    said = np.array([not is_blank(value) for value in codes.dictionary.to_pylist()], bool)
    given: npt.NDArray[np.bool_] = np.append(said, False)[codes.indices.fill_null(len(said)).to_numpy()]
    return given


def _models(annotator: npt.NDArray[np.int32], kinds: Column | None) -> set[int]:
    """Codes of the annotators that a column of kinds marks as models, by the rule of tables in memory."""
    if kinds is None:
        return set()
    words = decoded(kinds.data).to_pylist()
    marked = np.array([word is not None and word.strip().lower() == MODEL for word in words], bool)
    return set(annotator[marked].tolist())


def _weights(column: Column) -> npt.NDArray[np.float32]:
    """Weights of a batch, all above 0; numbers may be written as texts, as in memory."""
    column = replace(column, data=decoded(column.data))
    weight = np.asarray(weights_of(column))
    if not weight.all():
        raise column.error(int(np.argmin(weight)), "weight 0 cannot be streamed; leave such rows out")
    return weight
