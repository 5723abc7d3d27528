"""Parquet and arrow files, whose decoded size is known before they are decoded: small files must not fill the memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.errors import DataError
from crowdwise.storage.limits import too_large, unpack_limit

Choose = Callable[[Sequence[str]], Sequence[str]]  # names of all columns -> names of the wanted ones
CELL = 4  # bytes that a value takes in memory, at least
_ROWS = 256  # of a batch, where values may be much longer than what they take in the file
_PREFIXES = "DELTA_BYTE_ARRAY"  # the encoding that stores only what differs from the value before
_DICTIONARY, _RECORDS = 2, 3  # kinds of messages in an arrow file


def read_parquet(path: Path, choose: Choose) -> dict[str, pa.ChunkedArray]:
    """The columns that ``choose`` picks."""
    import pyarrow.parquet as pq

    limit = unpack_limit(path)
    with pq.ParquetFile(path) as file:
        wanted = list(choose(file.schema_arrow.names))
        _check_names(path, file.schema_arrow.names, wanted)
        about, fields = file.metadata, {name: file.schema_arrow.field(name).type for name in wanted}
        places = [at for at in range(about.num_columns) if file.schema.column(at).path.partition(".")[0] in fields]
        for group in range(about.num_row_groups):
            if about.row_group(group).total_byte_size <= limit:  # damaged metadata are an error here, and would end the
                next(file.iter_batches(1, row_groups=[group], columns=wanted), None)  # process below
        chunks = [about.row_group(group).column(at) for group in range(about.num_row_groups) for at in places]
        size = sum(max(chunk.total_uncompressed_size, 0) for chunk in chunks)
        if max(size, CELL * about.num_rows * len(wanted)) > limit:  # a repeated value takes no space
            raise too_large(path, limit)
        stepwise = any(_PREFIXES in chunk.encodings for chunk in chunks)
    texts = [name for name, kind in fields.items() if _is_text(kind)]
    with pq.ParquetFile(path, read_dictionary=[] if stepwise else texts) as file:  # each value once
        if not stepwise:
            table = file.read(columns=wanted)
        else:
            batches, size = [], 0
            for batch in file.iter_batches(_ROWS, columns=wanted):
                size += batch.nbytes
                if size > limit:
                    raise too_large(path, limit)
                batches.append(batch)
            table = pa.Table.from_batches(batches, file.schema_arrow if not batches else None)
    table.validate(full=True)  # text that is not UTF-8 would fail later
    return {name: _plain(path, table.column(name), fields[name], limit) for name in wanted}


def read_arrow(path: Path, choose: Choose) -> dict[str, pa.ChunkedArray]:
    """The columns that ``choose`` picks, of a file or a stream of arrow."""
    limit = unpack_limit(path)
    with pa.memory_map(str(path)) as source:
        start = _stream_start(source)
        expected = pa.ipc.open_file(source).num_record_batches if start else None
        source.seek(start)
        size = found = 0
        for message in pa.ipc.MessageReader.open_stream(source):
            size += _decoded_size(message)
            found += message.type == "record batch"
            if size > limit:
                raise too_large(path, limit)
        if expected not in (None, found):
            raise pa.ArrowInvalid(f"it has {found} batches, its footer says {expected}")
        source.seek(start)
        table = pa.ipc.open_stream(source).read_all()
        table.validate(full=True)  # damaged offsets would crash later
    wanted = choose(table.column_names)
    _check_names(path, table.column_names, wanted)
    return {name: _plain(path, table.column(name), table.schema.field(name).type, limit) for name in wanted}


def _check_names(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a name that several columns have."""
    for name in wanted:
        if list(names).count(name) > 1:
            raise DataError(f"{path}: several columns are called {name!r}: rename all but one")


def parquet_names(path: Path) -> list[str]:
    """Names of columns."""
    import pyarrow.parquet as pq

    return list(pq.read_schema(path).names)


def arrow_names(path: Path) -> list[str]:
    """Names of columns."""
    with pa.memory_map(str(path)) as source:
        source.seek(_stream_start(source))
        return list(pa.ipc.open_stream(source).schema.names)


def _stream_start(source: Any) -> int:
    """Where the stream begins in an arrow file: behind the mark of the file format, if it has one."""
    return 8 if source.read(6) == b"ARROW1" else 0


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _plain(path: Path, column: pa.ChunkedArray, kind: pa.DataType, limit: int) -> pa.ChunkedArray:
    """A column with every value written out, if that takes no more than ``limit`` bytes."""
    if pa.types.is_run_end_encoded(column.type):
        raise DataError(f"{path}: columns of type {column.type} cannot be read")
    views = str(column.type) in ("string_view", "binary_view")
    if not views and not pa.types.is_dictionary(column.type):
        return column
    size = 0
    for chunk in column.chunks:
        values = chunk if views else chunk.dictionary
        if views or _is_text(values.type) or str(values.type) in ("string_view", "binary_view", "large_binary"):
            lengths = pc.binary_length(values).cast(pa.int64())
            size += pc.sum(lengths if views else lengths.take(chunk.indices)).as_py() or 0
    if size > limit:
        raise too_large(path, limit)
    if views:
        return column.cast(pa.large_string() if str(column.type) == "string_view" else pa.large_binary())
    return column if kind == column.type else column.cast(kind)


def _decoded_size(message: Any) -> int:
    """Bytes that the buffers of a message take once they are unpacked, by what its header says of them."""
    head = memoryview(message.metadata)
    try:
        root = _Table(head, struct.unpack_from("<I", head, 0)[0])
        kind, records = root.number(1, "<B"), root.table(2)
        if kind == _DICTIONARY and records is not None:
            records = records.table(1)
        if kind not in (_DICTIONARY, _RECORDS) or records is None:
            return 0
        body = message.body
        found = 0
        for offset, length in records.pairs(2):
            packed = records.table(3) is not None and length >= 8
            size = struct.unpack("<q", body.slice(offset, 8).to_pybytes())[0] if packed else length
            found += length if size < 0 else size  # -1: this buffer is not packed
        return found
    except (struct.error, IndexError, ValueError, pa.ArrowException) as error:
        raise pa.ArrowInvalid(f"a message is damaged: {error}") from error


class _Table:
    """A table of a flatbuffer, of which arrow's headers are made."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at
        self.entries = at - struct.unpack_from("<i", data, at)[0]
        self.count = (struct.unpack_from("<H", data, self.entries)[0] - 4) // 2

    def _place(self, field: int) -> int | None:
        offset = struct.unpack_from("<H", self.data, self.entries + 4 + 2 * field)[0] if field < self.count else 0
        return self.at + offset if offset else None

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers: the buffers, as offset and length."""
        place = self._place(field)
        if place is None:
            return []
        start = place + struct.unpack_from("<I", self.data, place)[0]
        count = struct.unpack_from("<I", self.data, start)[0]
        return [struct.unpack_from("<qq", self.data, start + 4 + 16 * k) for k in range(count)]
