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
    >>> ids.arrow().to_pylist()
    ['b', 'a', 'c']
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.size = 0
        self._texts = is_text(kind)
        self._slots = np.full(1 << 10, -1, np.int32)
        self._starts = np.zeros(1, np.int64)  # of texts among the values, and their end
        self._values = np.empty(0, np.uint8 if self._texts else np.uint64)  # bytes of texts, or numbers by their bits

    def codes(self, values: pa.Array) -> Codes:
        """Codes (k,) of ids without repeats or missing ones; new ids get the next codes."""
        found = np.empty(len(values), np.int32)
        if self._texts:
            _, starts, data = values.cast(pa.large_string()).buffers()
            starts = np.frombuffer(starts, np.int64, len(values) + 1, values.offset * 8)
            data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
            self._find(starts, data, found)
            return found
        bits = pa.uint64() if pa.types.is_boolean(self.kind) else self.kind
        numbers = np.ascontiguousarray(values.cast(bits).to_numpy(zero_copy_only=False))
        self._find(np.empty(0, np.int64), numbers.view(np.uint64), found)
        return found

    @property
    def n_bytes(self) -> int:
        """Memory that is taken."""
        return int(self._slots.nbytes + self._starts.nbytes + self._values.nbytes)

    def arrow(self) -> pa.Array:
        """All ids in the order of their codes."""
        starts, values = self.since(0)
        if self._texts:
            buffers = [None, pa.py_buffer(starts), pa.py_buffer(values)]
            return pa.Array.from_buffers(pa.large_string(), self.size, buffers)
        if pa.types.is_boolean(self.kind):
            return pa.array(values.astype(bool))
        return plain(pa.array(values.view(self.kind.to_pandas_dtype())))

    def since(self, first: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """The ids from code ``first`` on, as `add` takes them: where texts begin, and values.

        >>> ids = Ids(pa.large_string())
        >>> _ = ids.codes(pa.array(["b", "a", "c"]))
        >>> again = Ids(pa.large_string())
        >>> again.add(*ids.since(0))
        >>> again.codes(pa.array(["c", "b"]))
        array([2, 0], dtype=int32)
        """
        if not self._texts:
            return np.empty(0, np.int64), self._values[first : self.size]
        starts = self._starts[first : self.size + 1]
        return starts - starts[0], self._values[starts[0] : starts[-1]]

    def add(self, starts: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        """Take in ids that are not known yet, as `since` gave them: they get the next codes."""
        self._find(starts, values, np.empty(0, np.int32))

    def _find(self, starts: npt.NDArray[np.int64], values: npt.NDArray[Any], found: npt.NDArray[np.int32]) -> None:
        """Look ids up, and take in those that are new; their codes are written to ``found`` where it is not empty."""
        number = len(starts) - 1 if self._texts else len(values)
        if self.size + number > MOST:
            raise DataError(f"more than {MOST:,} different ids do not fit into codes of 32 bits")
        self._reserve(number)
        room = self.size + number
        if self._texts:
            self._starts = grown(self._starts, room + 1)
            room = int(self._starts[self.size] + starts[-1] - starts[0])
        self._values = grown(self._values, room)
        known = self._slots, self._starts, self._values
        self.size = _kernel(self._texts)(number, starts, values, *known, self.size, found)

    def _reserve(self, more: int) -> None:
        """Slots for ``more`` further ids; where there are too few, all known ids move to a larger table."""
        wanted = len(self._slots)
        while self.size + more > LOAD * wanted:
            wanted *= 2
        if wanted > len(self._slots):  # finding the known ids in their order gives them their codes again
            self._slots, known = np.full(wanted, -1, np.int32), (self._starts, self._values)
            _kernel(self._texts)(self.size, *known, self._slots, *known, 0, np.empty(0, np.int32))


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

    def find(number, starts, values, slots, known_starts, known, size, codes):  # type: ignore[no-untyped-def]
        mask = np.uint64(len(slots) - 1)
        for k in range(number):
            if texts:
                first, length = starts[k], starts[k + 1] - starts[k]
                h = np.uint64(0xCBF29CE484222325)  # FNV-1a
                for b in range(first, first + length):
                    h = (h ^ np.uint64(values[b])) * np.uint64(0x100000001B3)
            else:
                bits = np.uint64(values[k])
                h = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            place = (h ^ (h >> np.uint64(29))) & mask
            while True:
                code = slots[place]
                if code < 0:
                    code = size
                    slots[place] = code
                    size += 1
                    if texts:
                        start = known_starts[code]
                        for b in range(length):
                            known[start + b] = values[first + b]
                        known_starts[code + 1] = start + length
                    else:
                        known[code] = values[k]
                    break
                if texts:
                    start = known_starts[code]
                    same = known_starts[code + 1] - start == length
                    b = 0
                    while same and b < length:
                        same = known[start + b] == values[first + b]
                        b += 1
                else:
                    same = known[code] == values[k]
                if same:
                    break
                place = (place + np.uint64(1)) & mask
            if codes.size:
                codes[k] = code
        return size

    return jit()(find)
