"""Users' ids -> integer codes, by arrow's hash tables, and back.

A `Vocabulary` keeps the ids in arrow memory, where three million strings are two buffers, not three million objects;
numpy arrays are made on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.codes import Codes, freeze
from crowdwise.data.types import Array
from crowdwise.errors import AnnotationError

Ids = Sequence[Any] | Array  # ids as users pass them

# Ids up to this many characters become a fixed-width numpy string array, which needs no pickle to be stored;
# longer ones, such as whole sentences, would waste memory and become an array of str objects.
FIXED_WIDTH = 64
_NUMBER = re.compile(r"([0-9]{1,18})")


@dataclass(frozen=True, eq=False)
class Column:
    """A column of ids, and how to refer to it in an error."""

    data: pa.ChunkedArray
    name: str
    where: Callable[[int], str] = "row {}".format

    @classmethod
    def of(cls, values: Any, name: str, where: Callable[[int], str] = "row {}".format) -> Column:
        """Any one-dimensional array or sequence as a column; mixed types are refused."""
        try:
            data = _chunked(values)
            if _of_pandas(data.type):  # periods and intervals, which arrow has as numbers and records
                data = pa.chunked_array([_as_pandas_writes(chunk) for chunk in data.chunks], pa.large_string())
            if isinstance(data.type, pa.BaseExtensionType):  # uuid, for instance
                data = pa.chunked_array(
                    [pa.array([None if v is None else str(v) for v in data.to_pylist()], pa.string())]
                )
            return cls(data, name, where)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
            raise _mixed_types(values, name, where) or AnnotationError(
                f"{name}: cannot be read as ids ({error})"
            ) from error

    def take(self, rows: Any) -> Column:
        """Some rows of the column; errors still call them as before."""
        return Column(self.data.take(pa.array(rows)), self.name, lambda k: self.where(int(rows[k])))

    def error(self, row: int, problem: str) -> AnnotationError:
        """An error about ``row`` of this column."""
        return AnnotationError(f"{self.name}, {self.where(row)}: {problem}")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The ids that codes ``0..size-1`` stand for; without ``ids``, codes are their own ids."""

    size: int
    ids: pa.Array | None = None
    ordered: bool = False
    """Whether the user listed the ids in this order; False: they are numbered as they appeared."""

    @classmethod
    def of(cls, values: Ids, kind: str) -> Vocabulary:
        """The vocabulary a user lists in full; ids must be unique and not missing."""
        column = Column.of(values, kind, "entry {}".format)
        codes, vocabulary = factorise(column)
        repeated = np.flatnonzero(codes != np.arange(len(codes)))
        if repeated.size:
            row = int(repeated[0])
            raise column.error(row, f"{column.data[row].as_py()!r} is listed twice")
        return replace(vocabulary, ordered=True)

    @cached_property
    def values(self) -> Array:
        """The ids as a read-only numpy array."""
        if self.ids is None:
            return freeze(np.arange(self.size))
        array: Array = self.ids.to_numpy(zero_copy_only=False)
        return freeze(array.astype(str) if self.size and _fits_fixed_width(self.ids) else array)

    @property
    def arrow(self) -> pa.Array:
        """The ids as an arrow array."""
        return pa.array(np.arange(self.size)) if self.ids is None else self.ids

    def same_as(self, other: Vocabulary) -> bool:
        """Whether both have the same ids in the same order."""
        numbered = self.ids is None and other.ids is None
        return self.size == other.size and (numbered or not self.size or bool(self.arrow.equals(other.arrow)))

    def take(self, codes: Array) -> pa.Array:
        """The ids of ``codes``, as arrow."""
        return pa.array(codes.astype(np.int64)) if self.ids is None else self.ids.take(pa.array(codes))

    def subset(self, codes: Array) -> Vocabulary:
        """The vocabulary of some codes, in the order given."""
        whole = len(codes) == self.size and bool(np.array_equal(codes, np.arange(self.size)))
        return self if whole else Vocabulary(len(codes), self.take(codes), self.ordered or self.ids is None)

    def in_order_of_ids(self) -> Array | None:
        """The place of every code among the sorted ids; None where codes are in the order that the user gave."""
        if self.ids is None or self.ordered:
            return None
        return np.argsort(self.sorted_codes())

    def sorted_codes(self) -> Array:
        """Codes by ascending id; numbers in texts count as such: "p7" is before "p10"."""
        ids = self.arrow
        if not is_text(ids.type):
            return np.asarray(pc.array_sort_indices(ids).to_numpy(), np.int64)
        texts = ids.to_pylist()
        keys = [(*_natural(text), text) for text in texts]
        return np.array(sorted(range(len(texts)), key=keys.__getitem__), np.int64)

    def lookup(self, column: Column) -> Codes:
        """Codes of a column of ids, all of which must be in the vocabulary."""
        found, seen = factorise(column)
        if not seen.size:
            return found
        mine, theirs = self.arrow, seen.arrow
        if self.size and mine.type != theirs.type:
            raise AnnotationError(
                f"{column.name}: values such as {theirs[0].as_py()!r} are {theirs.type}, "
                f"but the known ids, such as {mine[0].as_py()!r}, are {mine.type}"
            )
        positions = pc.index_in(theirs, value_set=mine.cast(theirs.type))
        if positions.null_count:
            unknown = row_of(positions.is_null())
            known = ", ".join(map(repr, mine[:8].to_pylist())) + (", ..." if self.size > 8 else "")
            problem = f"{theirs[unknown].as_py()!r} is unknown; known: {known or 'none'}"
            raise column.error(int(np.argmax(found == unknown)), problem)
        return freeze(positions.to_numpy()[found])


def factorise(column: Column) -> tuple[Codes, Vocabulary]:
    """Codes (E,) of a column and its vocabulary, in order of first appearance."""
    data = decoded(column.data)
    kind = data.type
    if pa.types.is_nested(kind):
        raise AnnotationError(f"{column.name}: ids cannot be of type {kind}; use a column of strings or integers")
    if is_text(kind) and not pa.types.is_string(kind):  # older versions of arrow cannot hash string views
        data = data.cast(pa.large_string())
    if pa.types.is_floating(kind):
        data = pc.add(data.cast(pa.float64()), 0.0)  # -0.0 is 0.0
    _check_complete(replace(column, data=data))
    if len(data) == 0:
        return freeze(np.empty(0, np.int32)), Vocabulary(0)
    # arrow encodes all chunks with one hash table, so every chunk has the same, complete dictionary
    chunks = [chunk for chunk in data.dictionary_encode().chunks if len(chunk)]
    codes = [chunk.indices.to_numpy() for chunk in chunks]
    ids = plain(chunks[0].dictionary)
    return freeze(codes[0] if len(codes) == 1 else np.concatenate(codes)), Vocabulary(len(ids), ids)


def encode(column: Column, ids: Ids | None) -> tuple[Codes, Vocabulary]:
    """Codes (E,) of a column, and its vocabulary: ``ids`` if given, else in order of first appearance."""
    if ids is None:
        return factorise(column)
    vocabulary = Vocabulary.of(ids, f"known ids of {column.name}")
    return vocabulary.lookup(column), vocabulary


def encode_classes(column: Column, ids: Ids | None) -> tuple[Codes, Vocabulary]:
    """Codes (E,) of a column, and its vocabulary: ``ids`` if given, else ascending (strings of digits as numbers)."""
    codes, vocabulary = encode(column, ids)
    if ids is not None:
        return codes, vocabulary
    classes = vocabulary.arrow
    texts = classes.to_pylist() if is_text(classes.type) else []
    if texts and all(text.isdecimal() for text in texts):
        order = np.array(sorted(range(len(texts)), key=lambda code: (int(texts[code]), texts[code])))
    else:
        order = pc.array_sort_indices(classes).to_numpy()
    return freeze(np.argsort(order).astype(np.int32)[codes]), vocabulary.subset(order)


def merge(parts: Sequence[tuple[Codes, Vocabulary]], kind: str) -> tuple[Codes, Vocabulary]:
    """Codes of all parts, concatenated, in the union of their vocabularies; new ids are appended."""
    vocabularies = [vocabulary for _, vocabulary in parts if vocabulary.size]
    if all(vocabulary.ids is None for vocabulary in vocabularies):
        columns = [column for column, _ in parts]
        union = Vocabulary(max((vocabulary.size for vocabulary in vocabularies), default=0))
    else:
        arrays = [vocabulary.arrow for vocabulary in vocabularies]
        for array in arrays:
            if array.type != arrays[0].type:
                raise AnnotationError(
                    f"{kind} cannot be merged: ids such as {arrays[0][0].as_py()!r} are {arrays[0].type}, "
                    f"others such as {array[0].as_py()!r} are {array.type}"
                )
        numbers, union = factorise(Column(pa.chunked_array(arrays), kind))
        borders = np.cumsum([0] + [vocabulary.size for _, vocabulary in parts])
        columns = [numbers[start + column] for start, (column, _) in zip(borders[:-1], parts, strict=True)]
    return freeze(np.concatenate([np.empty(0, np.int32), *columns])), union


def weights_of(column: Column) -> Any:
    """A column of weights as float32 (E,); what is not a number of 0 or more is an error that names the row."""
    try:
        array = column.data.cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        text = column.data.to_pylist()
        row = next((k for k, value in enumerate(text) if not is_number(value)), 0)
        raise column.error(row, f"weight {text[row]!r} is not a number") from None
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise column.error(row, f"weight {column.data[row].as_py()!r} must be a number of 0 or more")
    return array.astype(np.float32)


def is_number(value: object) -> bool:
    """Whether a value is a number, or a text that stands for one.

    >>> is_number("1.5"), is_number("1_0"), is_number(""), is_number(None)
    (True, False, False, False)
    """
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return "_" not in str(value)


def is_text(kind: pa.DataType) -> bool:
    """Whether an arrow type is text, in any layout."""
    return str(kind) in ("string", "large_string", "string_view")


def is_plain(kind: pa.DataType) -> bool:
    """Whether an arrow type is one of classes: text, numbers or booleans."""
    return is_text(kind) or any(is_a(kind) for is_a in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def decoded(data: Any) -> Any:
    """Arrow data with categories, which may be unused, unsorted or differ by chunk, written out as values."""
    return data.cast(data.type.value_type) if pa.types.is_dictionary(data.type) else data


def plain(values: pa.Array) -> pa.Array:
    """One arrow type per kind of id (int64, double, large_string), so that equal ids from different sources are equal."""
    kind = values.type
    if pa.types.is_integer(kind) and (kind != pa.uint64() or pc.max(values).as_py() < 2**63):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    return values.cast(pa.large_string()) if is_text(kind) else values


def id_texts(ids: pa.Array) -> pa.Array:
    """Ids as text, by which those of different types are compared: 1 and 1.0 are "1", true and false in small letters.

    >>> id_texts(pa.array([1.0, 2.5])).to_pylist(), id_texts(pa.array([True])).to_pylist()
    (['1', '2.5'], ['true'])
    """
    if pa.types.is_floating(ids.type):
        whole = pc.and_(pc.equal(pc.floor(ids), ids), pc.less(pc.abs(ids), 2.0**63))
        numbers = pc.if_else(whole, ids, pa.scalar(0, ids.type)).cast(pa.int64()).cast(pa.large_string())
        return pc.if_else(whole, numbers, ids.cast(pa.large_string()))
    return ids if ids.type == pa.large_string() else ids.cast(pa.large_string())


def row_of(mask: pa.ChunkedArray | pa.Array) -> int:
    """Position of the first true value of a boolean arrow array; -1 if there is none."""
    return int(pc.index(mask, True).as_py())


def is_missing(value: Any) -> bool:
    """Whether a Python value is missing: None, NaN, or the missing value of pandas."""
    nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")  # pandas may not be installed


def is_blank(value: Any) -> bool:
    """Whether a value says nothing, as a label: missing, or a text of blanks.

    >>> [is_blank(value) for value in (None, float("nan"), "", " ", "no", 0)]
    [True, True, True, True, False, False]
    """
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _fits_fixed_width(ids: pa.Array) -> bool:
    """Whether ids are short texts without a final NUL, which numpy would drop."""
    short = is_text(ids.type) and pc.max(pc.utf8_length(ids)).as_py() <= FIXED_WIDTH
    return short and not pc.any(pc.ends_with(ids, "\0")).as_py()


def _natural(text: str) -> list[str | int]:
    """Text and numbers in turn."""
    return [int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(text))]


def _check_complete(column: Column) -> None:
    if column.data.null_count:
        raise column.error(row_of(column.data.is_null()), "the value is missing; leave such rows out")
    if pa.types.is_floating(column.data.type):
        row = row_of(pc.is_nan(column.data))
        if row >= 0:
            raise column.error(row, "the value is NaN; leave such rows out")


def _chunked(values: Any) -> pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, pa.Array):
        return pa.chunked_array([values])
    if isinstance(values, np.ma.MaskedArray):
        return pa.chunked_array([pa.array(values.data, mask=np.ma.getmaskarray(values), from_pandas=True)])
    values = np.asarray(values) if hasattr(values, "__array__") else list(values)
    objects = isinstance(values, list) or values.dtype.kind == "O"
    if objects and isinstance(next((value for value in values if not is_missing(value)), None), UUID):
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    try:
        array = pa.array(values, from_pandas=True)
    except OverflowError:  # numbers of 2**63 or more
        array = pa.array(values, pa.uint64(), from_pandas=True)
    if objects:
        _check_silent_mixtures(array, values)
    return pa.chunked_array([array])


def _check_silent_mixtures(array: pa.Array, values: Iterable[Any]) -> None:
    """Refuse what arrow reads without a word: truth values as 1 and 0 among numbers, and texts as bytes among bytes."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        other: set[type] = {bool, np.bool_}
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        other = {str}
    else:
        return
    if other & set(map(type, values)):
        raise pa.ArrowTypeError(f"values of several types among {kind}")


def _of_pandas(kind: pa.DataType) -> bool:
    """Whether values, or categories, are of a type that only pandas has."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(getattr(kind, "extension_name", "")).startswith("pandas.")


def _as_pandas_writes(values: pa.Array) -> pa.Array:
    """Values of such a type as text."""
    categories = values.dictionary if pa.types.is_dictionary(values.type) else values
    texts = [None if is_missing(value) else str(value) for value in pa.chunked_array([categories]).to_pandas()]
    written = pa.array(texts, pa.large_string())
    return written.take(values.indices) if pa.types.is_dictionary(values.type) else written


def _mixed_types(values: Any, name: str, where: Callable[[int], str]) -> AnnotationError | None:
    first: Any = None
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        if first is None:
            first = value
        elif _kind(value) != _kind(first):
            return AnnotationError(
                f"{name}, {where(row)}: {value!r} is a {_kind(value)}, but earlier values such as {first!r} are "
                f"{_kind(first)}; convert all to one type"
            )
    return None


def _kind(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "bool"
    return "number" if isinstance(value, int | float | np.number) else type(value).__name__
