"""Integer codes: checked, frozen, selected and grouped; and the blocks in which large arrays are computed."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.types import Array, Ints
from crowdwise.errors import AnnotationError

Codes = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Selection = Sequence[int] | Sequence[bool] | Array  # codes, or a mask over all codes


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows grouped by a code (CSR): the rows of group g are ``order[indptr[g]:indptr[g + 1]]``, in input order.

    >>> rows = Grouped.of(np.array([1, 0, 1], np.int32), 3)
    >>> rows[1], rows[2]
    (array([0, 2]), array([], dtype=int64))
    """

    indptr: Ints  # (groups + 1,)
    order: Ints  # (E,)

    @classmethod
    def of(cls, codes: Codes, groups: int) -> Grouped:
        """Group ``codes`` (E,), all in ``0..groups-1``."""
        indptr = np.zeros(groups + 1, np.int64)
        np.cumsum(np.bincount(codes, minlength=groups), out=indptr[1:])
        return cls(freeze(indptr), freeze(stable_argsort(codes)))

    @property
    def counts(self) -> Ints:
        """Size of every group."""
        return np.diff(self.indptr)

    def __getitem__(self, group: int) -> Ints:
        return self.order[self.indptr[group] : self.indptr[group + 1]]


def stable_argsort(codes: Codes) -> Ints:
    """Rows by code, ties in input order; codes that already ascend are not sorted.

    Code and row are packed into one int64: numpy's sort of plain integers is several times faster than its argsort.
    """
    rows = np.arange(len(codes), dtype=np.int64)
    if bool(np.all(codes[1:] >= codes[:-1])):
        return rows
    packed = codes.astype(np.int64)
    packed <<= 32
    packed |= rows
    packed.sort()
    packed &= 0xFFFFFFFF
    return packed


def cells(rows: Array, width: int, columns: Array) -> Ints:
    """Position of each (row, column) in a table with ``width`` columns; in place, as there may be tens of millions."""
    positions = rows.astype(np.int64)
    positions *= width
    positions += columns
    return positions


def distinct_rows(keys: Ints, *, last: bool) -> Ints:
    """Rows, ascending, of the first (or last) occurrence of every key."""
    first = np.unique(keys[::-1] if last else keys, return_index=True)[1]
    return np.sort(len(keys) - 1 - first if last else first)


def row_blocks(rows: int, width: int, limit: int) -> Iterator[slice]:
    """Blocks of the rows of an array (rows, width), each with about ``limit`` numbers.

    >>> list(row_blocks(5, width=3, limit=6))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, limit // max(width, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def count(number: int, plural: str) -> str:
    """A number with its noun.

    >>> count(1, "classes"), count(2, "classes"), count(1200, "instances")
    ('1 class', '2 classes', '1,200 instances')
    """
    return f"{number:,} {plural if number != 1 else plural.removesuffix('es' if plural == 'classes' else 's')}"


def freeze(array: Array) -> Array:
    """The same array, made read-only."""
    array.setflags(write=False)
    return array


def integers(values: Any, name: str) -> Array:
    """Values as an integer array with one axis; an empty array may have any type."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = int(np.argmax(np.ma.getmaskarray(values)))
        raise AnnotationError(f"{name}, row {row}: the value is masked; leave such rows out")
    array = np.asarray(values)
    if array.ndim != 1:
        raise AnnotationError(f"{name} must have one axis, got shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise AnnotationError(
            f"{name} must hold integer codes, got {array.dtype} (row 0: {array[0]!r}); "
            "ids of other types go through Annotations.from_frame"
        )
    return array


def size_of(size: int | None, codes: Array, kind: str) -> int:
    """Number of instances, annotators or classes: as passed, else the largest code + 1."""
    if size is None:
        return int(codes.max()) + 1 if len(codes) else 0
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise AnnotationError(f"n_{kind} must be an integer of 0 or more, got {size!r}")
    return number


def checked(codes: Array, name: str, kind: str, size: int) -> Codes:
    """Codes as a read-only int32 array, all in ``0..size-1``."""
    if len(codes) and (codes.min() < 0 or codes.max() >= size):
        row = int(np.argmax((codes < 0) | (codes >= size)))
        bounds = f"{size} {kind} (0..{size - 1})" if size else f"no {kind}"
        raise AnnotationError(f"row {row}: {name} {codes[row]} is out of range: this crowd has {bounds}")
    if codes.dtype == np.int32 and not codes.flags.writeable:
        return codes
    return freeze(codes.astype(np.int32))  # a copy that nobody else can write to


def totals(codes: Any, weight: Any, size: int) -> Any:
    """How often each code occurs, or the sums of its weights, (size,); sums that are whole numbers, as integers."""
    if weight is None:
        return np.bincount(codes, minlength=size)
    total = np.bincount(codes, weight, minlength=size)
    whole = np.rint(total)
    return whole.astype(np.int64) if np.allclose(total, whole, rtol=1e-6, atol=1e-4) else total


def checked_weights(weight: Any, size: int) -> Weights:
    """Weights of annotations as a read-only float32 array, all above 0."""
    try:
        array = np.asarray(weight, np.float32)
    except (TypeError, ValueError):
        raise AnnotationError(f"weight must hold numbers, got {weight!r:.80}") from None
    if array.shape != (size,):
        raise AnnotationError(f"weight has shape {array.shape}, but there are {size} annotations")
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise AnnotationError(f"row {row}: weight {array[row]:g} must be a number above 0")
    return array if not array.flags.writeable else freeze(array.copy())


def selected(selection: Selection, name: str, size: int) -> Ints:
    """The codes of a selection (distinct codes, or a mask over all codes), in its order."""
    array = np.asarray(selection)
    if array.dtype == bool:
        if array.shape != (size,):
            raise AnnotationError(f"the {name} mask has shape {array.shape}, expected ({size},)")
        return np.flatnonzero(array)
    codes = checked(integers(array, name), name, name + "s", size).astype(np.int64)
    counts = np.bincount(codes, minlength=size)
    if counts.max(initial=0) > 1:
        raise AnnotationError(f"{name} {int(counts.argmax())} is selected {int(counts.max())} times; once is allowed")
    return codes
