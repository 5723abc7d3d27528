"""Ids that arrive in batches -> codes in order of first appearance, in little more memory than the ids themselves.

Arrow's hash tables encode one array at a time and take over a hundred bytes for an id. Here an open-addressing table
holds codes only, four bytes each, and the ids lie in one growing array that they point to: numbers, or the bytes of texts
with an array of where each begins.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.aggregation.core.kernels import jit
from crowdwise.data.codes import Codes
from crowdwise.data.factorise import is_text, plain
from crowdwise.errors import AnnotationError, DataError

LOAD = 0.6  # share of the slots that may be taken
MOST = 2**31 - 1  # codes are int32


def kind_of(name: str, kind: pa.DataType) -> pa.DataType:
    """The type in which a column's ids are compared: int64, uint64, float64, bool or large_string.

    >>> kind_of("task", pa.int16()), kind_of("task", pa.dictionary(pa.int8(), pa.string()))
    (DataType(int64), DataType(large_string))
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind):
        return pa.large_string()
    if pa.types.is_boolean(kind) or kind == pa.uint64():
        return kind
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    raise AnnotationError(f"column {name!r}: ids of type {kind} cannot be streamed; use strings or integers")


class Ids:
    """A vocabulary that grows.

    >>> ids = Ids(pa.large_string())
    >>> ids.codes(pa.array(["b", "a"])), ids.codes(pa.array(["c", "a"]))
    (array([0, 1], dtype=int32), array([2, 1], dtype=int32))
    >>> ids.since(0).to_pylist(), ids.since(2).to_pylist()
    (['b', 'a', 'c'], ['c'])
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.size = 0
        self._slots = np.full(1 << 10, -1, np.int32)
        self._starts = np.zeros(1 if is_text(kind) else 0, np.int64)  # of texts among the values, and their end
        self._values = np.empty(0, np.uint8 if is_text(kind) else np.uint64)  # bytes of texts, or numbers by their bits

    @property
    def n_bytes(self) -> int:
        """Memory that is taken."""
        return int(self._slots.nbytes + self._starts.nbytes + self._values.nbytes)

    def codes(self, values: pa.Array) -> Codes:
        """Codes (k,) of ids without repeats or missing ones; new ids get the next codes."""
        most, found = self.size + len(values), np.empty(len(values), np.int32)
        if most > MOST:
            raise DataError(f"more than {MOST:,} different ids do not fit into codes of 32 bits")
        starts, content = self._content(values)
        self._values = grown(self._values, self._end(self.size) + len(content))
        if is_text(self.kind):
            self._starts = grown(self._starts, most + 1)
        if most > LOAD * len(self._slots):  # finding the known ids in their order gives them their codes again
            self._slots = np.full(1 << int(np.ceil(np.log2(most / LOAD))), -1, np.int32)
            self._find(self.size, self._starts, self._values, 0, np.empty(0, np.int32))
        self.size = self._find(len(values), starts, content, self.size, found)
        return found

    def since(self, first: int) -> pa.Array:
        """The ids from code ``first`` on."""
        content = self._values[self._end(first) : self._end(self.size)]
        if is_text(self.kind):
            starts = self._starts[first : self.size + 1] - self._starts[first]
            buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
            return pa.Array.from_buffers(pa.large_string(), self.size - first, buffers)
        if pa.types.is_boolean(self.kind):
            return pa.array(content.astype(bool))
        return plain(pa.array(content.view(self.kind.to_pandas_dtype())))

    def _end(self, code: int) -> int:
        """How many values the ids before ``code`` take."""
        return int(self._starts[code]) if is_text(self.kind) else code

    def _content(self, values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Ids as they are kept: where texts begin, and their end, and bytes; or numbers alone."""
        if not is_text(self.kind):
            kind = pa.uint64() if pa.types.is_boolean(self.kind) else self.kind
            numbers = np.ascontiguousarray(values.cast(kind).to_numpy(zero_copy_only=False))
            return np.empty(0, np.int64), numbers.view(np.uint64)
        _, starts, data = values.cast(pa.large_string()).buffers()
        starts = np.frombuffer(starts, np.int64, len(values) + 1, values.offset * 8)
        data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        return starts - starts[0], data[starts[0] : starts[-1]]

    def _find(self, number: int, starts: Any, content: Any, size: int, found: Codes) -> int:
        """Look ids up among the first ``size``, and take in those that are new; returns how many there are then.

        Their codes are written to ``found`` where it is not empty.
        """
        known = self._slots, self._starts, self._values
        return int(_kernel(is_text(self.kind))(number, starts, content, *known, size, found))


def grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array with room for ``size`` values; half as much again as it had where it must grow, new ones being 0."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, len(array) + len(array) // 2), array.dtype)
    larger[: len(array)] = array
    return larger


@functools.cache
def _kernel(texts: bool) -> Any:
    """The search, with what numbers and texts do differently built into the code."""

    def find(number, starts, content, slots, known_starts, known, size, codes):  # type: ignore[no-untyped-def]
        mask = np.uint64(len(slots) - 1)
        for k in range(number):
            first = starts[k] if texts else k
            length = starts[k + 1] - first if texts else 1
            h = np.uint64(0xCBF29CE484222325)  # FNV-1a
            for b in range(first, first + length):
                h = (h ^ np.uint64(content[b])) * np.uint64(0x100000001B3)
            h = (h ^ (h >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            place = (h ^ (h >> np.uint64(29))) & mask
            code = slots[place]
            while code >= 0:
                start = known_starts[code] if texts else code
                same = not texts or known_starts[code + 1] - start == length
                b = 0
                while same and b < length:
                    same = known[start + b] == content[first + b]
                    b += 1
                if same:
                    break
                place = (place + np.uint64(1)) & mask
                code = slots[place]
            if code < 0:
                code = size
                size += 1
                slots[place] = code
                start = known_starts[code] if texts else code
                for b in range(length):
                    known[start + b] = content[first + b]
                if texts:
                    known_starts[code + 1] = start + length
            if codes.size:
                codes[k] = code
        return size

    return jit()(find)
