"""Parquet files that are one table: which they are, that their columns agree, and their rows, batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crowdwise.data.factorise import Column, is_text
from crowdwise.data.frames import choose_columns, find_column, known_column
from crowdwise.errors import AnnotationError, DataError, spelled
from crowdwise.readers import FORMATS, recognised
from crowdwise.readers.crowd_kit import usual_columns
from crowdwise.readers.long_table import DETAILS
from crowdwise.readers.table import GOLD
from crowdwise.storage.limits import too_large, unpack_limit
from crowdwise.streaming._ids import kind_of

SUFFIXES = (".parquet", ".pq")
AUTO, CROWD_KIT = "auto", "crowd-kit"
STREAMED = ("table", CROWD_KIT)  # formats with a row per annotation
ROLES = ("instance", "annotator", "label")
WEIGHT, KIND = "weight", "kind"
DECODED = 1 << 28  # bytes that the texts of a batch may take, each written out; larger batches are divided
_PREFIXES, _STEP = "DELTA_BYTE_ARRAY", 256  # an encoding whose values may be longer than the file; rows read at once


def parquet_files(path: Path) -> list[Path]:
    """A Parquet file, or those of a folder and its folders in the order of their names; hidden ones are left out."""
    if path.is_dir():
        found = [file for file in _visible(path) if file.suffix.lower() in SUFFIXES]
        if not found:
            raise DataError(f"{path}: the folder has no Parquet files ({', '.join(SUFFIXES)})")
        _check_once(found)
        return found
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path}: only Parquet ({', '.join(SUFFIXES)}) can be streamed; convert the table")
    return [path]


def _check_once(files: Sequence[Path]) -> None:
    """Refuse a file that a folder holds under two names, since its labels would count twice."""
    seen: dict[tuple[int, int], Path] = {}
    for file in files:
        about = file.stat()
        other = seen.setdefault((about.st_dev, about.st_ino), file)
        if other != file:
            raise DataError(f"{file}: this is the same file as {other}, and its labels would count twice")


def other_tables(path: Path, own: Collection[Path] = ()) -> list[Path]:
    """Tables in a folder that are not Parquet, and so are not read; without the user's ``own`` files and folders."""
    if not path.is_dir():
        return []
    known = {f".{suffix}" for suffix in FORMATS} - set(SUFFIXES)
    left_out = {file.resolve() for file in own}
    return [
        file
        for file in _visible(path)
        if known & {suffix.lower() for suffix in file.suffixes}
        and not left_out & {file.resolve(), *file.resolve().parents}
    ]


def _visible(folder: Path) -> list[Path]:
    """The files in a folder and its folders, in the order of their names, but for hidden ones."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(name.startswith((".", "_")) for name in file.relative_to(folder).parts)
    )


def count_rows(path: Path) -> int:
    """Rows of a Parquet file or of a folder of such files, by their footers."""
    return sum(_open(file).metadata.num_rows for file in parquet_files(path))


class Table:
    """Files with the columns of the first one: their ``names``, the ``kinds`` of their ids, and all ``rows``.

    ``weight`` is the column of weights, if there is one. Files may have a column that says which annotators are models
    (``marks``), and one that looks like ``gold``, which is not used.
    """

    def __init__(self, files: Sequence[Path], columns: Mapping[str, str | None], format: str = AUTO) -> None:
        self.files, self.format = files, format
        self.names: dict[str, str] = {}
        self.kinds: dict[str, pa.DataType] = {}
        self.weight: str | None = None
        self.gold: str | None = None
        self.marks: dict[Path, str] = {}
        self.rows = sum(self._check(file, columns) for file in files)
        if not self.rows:
            raise DataError(f"{files[0]}: the table has columns but no rows")

    def _check(self, file: Path, columns: Mapping[str, str | None]) -> int:
        """Rows of a file, whose columns must be those of the first one."""
        parquet = _open(file)
        names = parquet.schema_arrow.names
        limit, about = unpack_limit(file), parquet.metadata
        if any(about.row_group(group).total_byte_size > limit for group in range(about.num_row_groups)):
            raise too_large(file, limit)
        try:
            if not self.names:
                self.names = choose_columns(names, self._roles(file, names, columns))
                self.weight = self._weight(names, columns.get(WEIGHT))
            elif self._weight(names, columns.get(WEIGHT)) != self.weight:
                there, missing = (file, self.files[0]) if self.weight is None else (self.files[0], file)
                raise AnnotationError(
                    f"{there.name} has a column {self.weight or WEIGHT!r} of weights, and {missing.name} has none: give "
                    "every file one, or none of them"
                )
            for role, name in self.names.items():
                if name not in names:
                    raise AnnotationError(f"no column {name!r} for the {role}, which {self.files[0].name} has")
                kind = kind_of(name, parquet.schema_arrow.field(name).type)
                if kind != self.kinds.setdefault(role, kind):
                    raise AnnotationError(
                        f"column {name!r} holds {kind}, but {self.kinds[role]} in {self.files[0].name}"
                    )
        except AnnotationError as error:
            problem = str(error).removeprefix(f"{file}: ")
            raise AnnotationError(f"{file}: {problem}", parameter=error.parameter) from error
        free = [name for name in names if name not in (*self.names.values(), self.weight)]
        self.gold = self.gold or find_column(GOLD, free)
        kind = find_column(DETAILS[KIND], [name for name in free if name != self.gold])
        if kind is not None and _is_text(parquet.schema_arrow.field(kind).type):
            self.marks[file] = kind
        return int(parquet.metadata.num_rows)

    def _roles(self, file: Path, names: Sequence[str], columns: Mapping[str, str | None]) -> dict[str, str | None]:
        """The columns that the user names, or the format of the table, which is recognised as `crowdwise.read` does."""
        chosen = {role: columns.get(role) for role in ROLES}
        found, why = self.format, "asked for"
        if found == AUTO:
            found, why = recognised(file, weight=columns.get(WEIGHT), **chosen)
        if found not in STREAMED:
            raise AnnotationError(
                f"this is read as {found}, as {why}, and only tables with a row per annotation can be streamed; "
                f"{spelled('format', STREAMED[0])} takes it for one",
                parameter="format",
            )
        usual = usual_columns(names) if found == CROWD_KIT else {}
        return {role: usual.get(role) if name is None else name for role, name in chosen.items()}

    def _weight(self, names: Sequence[str], chosen: str | None) -> str | None:
        """The column of weights of a file: the one that the user names, or one of that name."""
        if chosen is not None:
            return str(known_column(chosen, WEIGHT, names))
        return WEIGHT if WEIGHT in names and WEIGHT not in self.names.values() else None

    def batches(self, start: int, size: int) -> Iterator[dict[str, Column]]:
        """Batches of ``size`` rows or fewer from row ``start`` on, which is where a batch began before.

        A batch has a column for each role, for the weight if the table has any, and for what marks models if the file has it.
        """
        done = 0
        for file in self.files:
            columns = dict(self.names)
            columns |= {} if self.weight is None else {WEIGHT: self.weight}
            columns |= {KIND: self.marks[file]} if file in self.marks else {}
            names = list(columns.values())
            stepwise = _stepwise(file, names)
            parquet, first = _open(file, [] if stepwise else names), done
            for group in range(parquet.num_row_groups):
                about = parquet.metadata.row_group(group)
                if done + about.num_rows <= start:
                    done += about.num_rows
                    continue
                try:
                    for batch in parquet.iter_batches(_STEP if stepwise else size, row_groups=[group], columns=names):
                        for part in _parts(batch):
                            if done >= start:
                                before = done - first
                                yield {role: _column(file, part, columns[role], group, before) for role in columns}
                            done += part.num_rows
                except (pa.ArrowException, OSError) as error:
                    raise DataError(f"{file}, row group {group}: cannot be read as parquet: {error}") from error


def _is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts, perhaps as categories."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _column(file: Path, batch: pa.RecordBatch, name: str, group: int, before: int) -> Column:
    """A column of a batch that has ``before`` rows before it in its file."""
    data = pa.chunked_array([batch.column(name)])
    return Column(data, f"{file}: column {name!r}", lambda row: f"row group {group}, record {before + row + 1}")


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch, divided where its texts, of which the file has each value once, would take too much when written out."""
    size = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and is_text(column.type.value_type) and len(column.dictionary):
            lengths = pc.binary_length(column.dictionary.cast(pa.large_string())).to_numpy(zero_copy_only=False)
            size += np.nan_to_num(lengths)[pc.fill_null(column.indices, 0).to_numpy()].astype(np.int64)
    if size.sum() <= DECODED:
        yield batch
        return
    place = np.cumsum(size) // DECODED
    borders = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(borders):
        yield batch.slice(begin, end - begin)


def _stepwise(path: Path, names: Sequence[str]) -> bool:
    """Whether values are stored as what differs from the one before, so that they may be far longer than the file."""
    file, found = _open(path), False
    places = [at for at in range(file.metadata.num_columns) if file.schema.column(at).path in names]
    for group in range(file.num_row_groups):
        try:  # where metadata are damaged, to ask for a column would end the process
            next(file.iter_batches(1, row_groups=[group], columns=names), None)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}, row group {group}: cannot be read as parquet: {error}") from error
        about = file.metadata.row_group(group)
        found = found or any(_PREFIXES in about.column(at).encodings for at in places)
    return found


def _open(path: Path, columns: Sequence[str] = ()) -> pq.ParquetFile:
    """A file whose texts, in the given ``columns``, are read as a vocabulary and codes."""
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    try:
        file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
        texts = [name for name in columns if is_text(file.schema_arrow.field(name).type)]
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=texts) if texts else file
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from error
