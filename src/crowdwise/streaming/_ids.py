"""Ids that arrive in batches -> codes in order of first appearance, in little more memory than the ids themselves.

Arrow's hash tables encode one array at a time and take over a hundred bytes for an id. Here an open-addressing table
holds codes only, four bytes each, and the ids lie in one growing array (text: bytes and offsets) that they point to.
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
        self._text = is_text(kind)
        self._slots = np.full(1 << 10, -1, np.int32)
        self._offsets = np.zeros(2, np.int64)  # text: where each id begins in the bytes
        self._known: npt.NDArray[Any] = np.empty(0, np.uint8 if self._text else np.uint64)

    def codes(self, values: pa.Array) -> Codes:
        """Codes (k,) of ids without repeats or missing ones; new ids get the next codes."""
        if self.size + len(values) > MOST:
            raise DataError(f"more than {MOST:,} different ids do not fit into codes of 32 bits")
        found = np.empty(len(values), np.int32)
        self._reserve(len(values))
        if not self._text:
            keys = self._numbers(values)
            self._known = grown(self._known, self.size + len(keys))
            self.size = _find_numbers()(keys, self._slots, self._known, self.size, found)
            return found
        array = values.cast(pa.large_string())
        _, offset_buffer, data = array.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * 8)
        bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        self._offsets = grown(self._offsets, self.size + len(array) + 1)
        self._known = grown(self._known, int(self._offsets[self.size] + offsets[-1] - offsets[0]))
        number, known = len(array), (self._slots, self._offsets, self._known)
        self.size = _find_texts()(number, offsets, bytes_, *known, self.size, found)
        return found

    @property
    def n_bytes(self) -> int:
        """Memory that is taken."""
        return int(self._slots.nbytes + self._offsets.nbytes + self._known.nbytes)

    def arrow(self) -> pa.Array:
        """All ids in the order of their codes."""
        if self._text:
            end = int(self._offsets[self.size])
            buffers = [None, pa.py_buffer(self._offsets[: self.size + 1]), pa.py_buffer(self._known[:end])]
            return pa.Array.from_buffers(pa.large_string(), self.size, buffers)
        numbers = self._known[: self.size]
        if pa.types.is_boolean(self.kind):
            return pa.array(numbers.astype(bool))
        return plain(pa.array(numbers.view(self.kind.to_pandas_dtype())))

    def since(self, first: int) -> list[npt.NDArray[Any]]:
        """The ids from code ``first`` on, as arrays that `add` takes: numbers by their bits, or lengths and bytes of texts.

        >>> ids = Ids(pa.large_string())
        >>> _ = ids.codes(pa.array(["b", "a", "c"]))
        >>> again = Ids(pa.large_string())
        >>> again.add(ids.since(0))
        >>> again.codes(pa.array(["c", "b"]))
        array([2, 0], dtype=int32)
        """
        if not self._text:
            return [self._known[first : self.size]]
        offsets = self._offsets[first : self.size + 1]
        return [np.diff(offsets), self._known[offsets[0] : offsets[-1]]]

    def add(self, more: list[npt.NDArray[Any]]) -> None:
        """Take in ids that are not known yet, as `since` gave them: they get the next codes."""
        if self._text:
            offsets = np.concatenate([[0], np.cumsum(more[0])]).astype(np.int64)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(more[1]))]
            self.codes(pa.Array.from_buffers(pa.large_string(), len(more[0]), buffers))
            return
        self._reserve(len(more[0]))
        self._known = grown(self._known, self.size + len(more[0]))
        self.size = _find_numbers()(more[0], self._slots, self._known, self.size, np.empty(0, np.int32))

    def _numbers(self, values: pa.Array) -> npt.NDArray[np.uint64]:
        """Numbers by their bits."""
        if pa.types.is_boolean(self.kind):
            return values.cast(pa.uint64()).to_numpy()  # type: ignore[no-any-return]
        numbers = values.cast(self.kind).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(numbers).view(np.uint64)

    def _reserve(self, more: int) -> None:
        """Slots for ``more`` further ids; where there are too few, all known ids move to a larger table."""
        wanted = len(self._slots)
        while self.size + more > LOAD * wanted:
            wanted *= 2
        if wanted == len(self._slots):
            return
        self._slots, nobody = np.full(wanted, -1, np.int32), np.empty(0, np.int32)  # nobody asks for their codes
        if self._text:  # finding the known ids in their order gives them their codes again
            known = self._offsets, self._known
            _find_texts()(self.size, *known, self._slots, *known, 0, nobody)
        else:
            _find_numbers()(self._known[: self.size], self._slots, self._known, 0, nobody)


def grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array with room for ``size`` values; half as much again as it had where it must grow, new ones being 0."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, len(array) + len(array) // 2), array.dtype)
    larger[: len(array)] = array
    return larger


@functools.cache
def _find_numbers() -> Any:
    def find(values, slots, known, size, codes):  # type: ignore[no-untyped-def]
        mask = np.uint64(len(slots) - 1)
        for k in range(len(values)):
            h = (values[k] ^ (values[k] >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            place = (h ^ (h >> np.uint64(29))) & mask
            while True:
                code = slots[place]
                if code < 0:
                    code = size
                    slots[place] = code
                    known[code] = values[k]
                    size += 1
                    break
                if known[code] == values[k]:
                    break
                place = (place + np.uint64(1)) & mask
            if codes.size:
                codes[k] = code
        return size

    return jit()(find)


@functools.cache
def _find_texts() -> Any:
    def find(number, offsets, data, slots, starts, known, size, codes):  # type: ignore[no-untyped-def]
        mask = np.uint64(len(slots) - 1)
        for k in range(number):
            first, length = offsets[k], offsets[k + 1] - offsets[k]
            h = np.uint64(0xCBF29CE484222325)  # FNV-1a, with its high bits mixed in
            for b in range(first, first + length):
                h = (h ^ np.uint64(data[b])) * np.uint64(0x100000001B3)
            place = (h ^ (h >> np.uint64(29))) & mask
            while True:
                code = slots[place]
                if code < 0:
                    code = size
                    slots[place] = code
                    start = starts[code]
                    for b in range(length):
                        known[start + b] = data[first + b]
                    starts[code + 1] = start + length
                    size += 1
                    break
                start = starts[code]
                same = starts[code + 1] - start == length
                b = 0
                while same and b < length:
                    same = known[start + b] == data[first + b]
                    b += 1
                if same:
                    break
                place = (place + np.uint64(1)) & mask
            if codes.size:
                codes[k] = code
        return size

    return jit()(find)
