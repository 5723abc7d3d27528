"""Tables with columns of any kind: numbers scaled, categories as columns of 0 and 1, texts by tfidf."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from crowdwise.constraints import Interval, PositiveInt
from crowdwise.data.frames import frame_columns
from crowdwise.data.matching import count_rows
from crowdwise.data.types import Array
from crowdwise.encoders.base import ENCODERS, Encoder, need, restore_encoder
from crowdwise.encoders.tfidf import Tfidf
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError, NonFiniteError, shorten

_LIMIT = 10.0  # where scaled numbers are cut
_FEW = 20  # values up to which a column of short texts is always one of categories


@ENCODERS.register("table")
@dataclass(kw_only=True)
class TableEncoder(Encoder):
    """Columns side by side, each by its kind, which is learnt in training and may be set by ``kinds``.

    Numbers (and dates, in days) are centred at the median and divided by the interquartile range; a missing one becomes the
    median, and a further column says so. Categories, columns of few different values, get a column each; values that are
    rare or unknown share one. Texts are encoded by tfidf. Columns of short texts that hardly ever repeat (ids, for
    instance) are left out, with a warning.

    >>> frame = {"age": [20, 30, None, 50], "town": ["a", "b", "a", "a"]}
    >>> TableEncoder().fitted(frame).transform(frame).shape
    (4, 5)
    """

    name: ClassVar[str] = "table"
    takes: ClassVar[str] = "table"
    prepare: ClassVar[str] = "none"

    kinds: dict[str, str] | None = None
    """Columns whose kind is known: ``{"zip": "category", "note": "text", "id": "drop"}``."""
    categories: PositiveInt = 50
    """Most values of a category that get a column of their own."""
    width: Annotated[int, Interval(1, 10_000)] | None = None
    """Columns for each column of texts; None: as `Tfidf` chooses, shared by all of them."""

    def learn(self, rows: Any, seed: int) -> None:
        columns = {str(name): rows[name] for name in frame_columns(rows)}
        given = self.kinds or {}
        for name, kind in given.items():
            if name not in columns:
                raise DataError(
                    f"there is no column {name!r}; columns: {shorten(list(columns), 8)}", parameter="encoder"
                )
            if kind not in ("number", "category", "text", "drop"):
                raise DataError(f"column {name!r} cannot be {kind!r}; use number, category, text or drop")
        n, plan, dropped = count_rows(rows), [], []
        kinds = {name: given.get(name) or guess_kind(column) for name, column in columns.items()}
        texts = sum(kind == "text" for kind in kinds.values())
        for place, (name, kind) in enumerate(kinds.items()):
            entry: dict[str, Any] = {"name": name, "kind": kind}
            if kind == "number":
                self.arrays_[f"{place}/scale"] = _scale(_numbers(columns[name], name))
            elif kind == "category":
                strings = _strings(columns[name])
                entry["values"] = _frequent(strings, self.categories)
                entry["others"] = _share_of_others(strings, entry["values"])
            elif kind == "text":
                width = self.width if self.width is not None or texts == 1 else 300
                encoder = Tfidf(width=width).fitted(_strings(columns[name]), seed)
                entry["text"] = encoder.state()
                self.arrays_ |= {f"{place}/{key}": array for key, array in encoder.arrays_.items()}
            elif name not in given:
                dropped.append(name)
            plan.append(entry)
        if dropped:
            warnings.warn(
                f"left out of the table, as their values hardly ever repeat: {shorten(dropped, 8)} "
                "(TableEncoder(kinds={...: 'text'}) keeps them)",
                CrowdwiseWarning,
                stacklevel=2,
            )
        self.facts_ = {"columns": plan}
        if not n or all(entry["kind"] == "drop" for entry in plan):
            raise DataError(f"the table has no column to learn from; columns: {shorten(list(columns), 8)}")

    def departure(self, rows: Any) -> str:
        """The categories whose values are unknown in more rows than chance explains."""
        there, n = {str(name): name for name in frame_columns(rows)}, count_rows(rows)
        found = []
        for entry in self.facts_["columns"]:
            if entry["kind"] != "category":
                continue
            known = set(entry["values"])
            unknown = [value for value in _strings(rows[there[entry["name"]]]) if value not in known]
            usual = self._usual_share(entry)
            if len(unknown) > n * usual + 3 * math.sqrt(n * usual * (1 - usual)):
                some = [value or "(missing)" for value in dict.fromkeys(unknown)]
                found.append(
                    f"column {entry['name']!r} has values that the training data lacks in {len(unknown):,} of {n:,} rows: "
                    f"{shorten(some, 3)}"
                )
        return "; ".join(found)

    def _usual_share(self, entry: dict[str, Any]) -> float:
        """The share of the training rows that have no column of their own in a category."""
        if "others" in entry:
            return float(entry["others"])
        # models of earlier versions do not have it: it is 0 if every value found a place
        return 0.5 if len(entry["values"]) >= self.categories else 0.0

    def transform(self, rows: Any) -> Any:
        there = {str(name): name for name in frame_columns(rows)}
        used = [entry for entry in self.facts_["columns"] if entry["kind"] != "drop"]
        missing = [entry["name"] for entry in used if entry["name"] not in there]
        if missing:
            raise DataError(f"X lacks the columns {shorten(missing, 8)}")
        known = {entry["name"] for entry in self.facts_["columns"]}
        unknown = [name for name in there if name not in known]
        if unknown:
            raise DataError(f"X has the columns {shorten(unknown, 8)}, which the training data had not")
        parts = []
        for place, entry in enumerate(self.facts_["columns"]):
            name, kind = entry["name"], entry["kind"]
            if kind == "number":
                values = _numbers(rows[there[name]], name)
                _check_infinite(values, name)
                parts.append(_scaled(values, self.arrays_[f"{place}/scale"]))
            elif kind == "category":
                parts.append(_indicators(_strings(rows[there[name]]), entry["values"]))
            elif kind == "text":
                parts.append(self._text(place, entry).transform(_strings(rows[there[name]])))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _text(self, place: int, entry: dict[str, Any]) -> Encoder:
        prefix = f"{place}/"
        own = {key.removeprefix(prefix): array for key, array in self.arrays_.items() if key.startswith(prefix)}
        return restore_encoder(entry["text"], own)

    @property
    def about(self) -> str:
        kinds = [entry["kind"] for entry in self.facts_.get("columns", ())]
        return "table: " + ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))

    def check_state(self) -> None:
        for place, entry in enumerate(self.facts_["columns"]):
            if not isinstance(entry["name"], str) or entry["kind"] not in ("number", "category", "text", "drop"):
                raise ModelFileError(f"column {place} of its table is damaged")
            if entry["kind"] == "number":
                need(self, (f"{place}/scale", (2,), "f"))
            elif entry["kind"] == "category":
                if not all(isinstance(value, str) for value in entry["values"]):
                    raise ModelFileError(f"the values of column {entry['name']!r} are damaged")
                if not 0 <= self._usual_share(entry) <= 1:
                    raise ModelFileError(f"the values of column {entry['name']!r} are damaged")
            elif entry["kind"] == "text":
                self._text(place, entry)


def guess_kind(column: Any) -> str:
    """What a column holds.

    >>> guess_kind([1, 2, None]), guess_kind(["red", "blue", "red"]), guess_kind(["I liked it a lot", "not so much"])
    ('number', 'category', 'text')
    """
    values = _values(column)
    if values.dtype.kind in "iufbM":
        return "number"
    strings = _strings(column)
    present = [value for value in strings if value]
    if not present or all(_is_number(value) for value in present[:1000]):
        return "number"
    distinct = len(set(present))
    long = np.mean([len(value.split()) for value in present[:1000]]) >= 3 or np.mean([*map(len, present[:1000])]) > 40
    if long and distinct > min(_FEW, len(present) / 2):
        return "text"
    if distinct <= _FEW or distinct <= len(present) / 5:
        return "text" if long and distinct == len(present) else "category"
    spaced = np.mean([" " in value.strip() for value in present[:1000]]) > 0.5
    return "text" if spaced else "drop"


def _values(column: Any) -> Array:
    if isinstance(column, np.ndarray):
        return column
    if hasattr(column, "to_numpy"):
        try:
            return np.asarray(column.to_numpy())
        except (ValueError, TypeError):  # arrow with nulls
            return np.asarray(column.to_pylist(), object)
    values = list(column)
    if any(isinstance(value, str) for value in values):
        return np.array(values, object)
    if all(value is None or isinstance(value, int | float | np.number) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array(values, object)


def _strings(column: Any) -> list[str]:
    values = column.to_pylist() if hasattr(column, "to_pylist") else _values(column).tolist()
    return ["" if value is None or value != value else str(value) for value in values]


def _numbers(column: Any, name: str) -> Array:
    """As float64, NaN where a value is missing; dates become days."""
    values = _values(column)
    if values.dtype.kind == "M":
        days = values.astype("datetime64[s]").astype(np.float64) / 86400
        return np.where(np.isnat(values), np.nan, days)
    if values.dtype.kind in "iufb":
        return values.astype(np.float64)
    found = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        if value is None or value != value or value == "":
            continue
        try:
            found[row] = float(value)
        except (TypeError, ValueError):
            raise DataError(f"X, row {row}: column {name!r} holds {str(value)[:40]!r}, expected a number") from None
    return found


def _check_infinite(values: Array, name: str) -> None:
    """Refuse infinities, which are not missing values."""
    rows = np.flatnonzero(np.isinf(values))
    if len(rows):
        raise NonFiniteError(f"X, row {rows[0]}: column {name!r} is {values[rows[0]]}", rows.tolist())


def _is_number(value: str) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except ValueError:
        return False


def _scale(values: Array) -> Array:
    """Median and spread."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([0.0, 1.0])
    low, median, high = np.quantile(finite, [0.25, 0.5, 0.75])
    spread = (high - low) / 1.349
    spread = spread if spread > 1e-3 * finite.std() else finite.std()
    return np.array([median, spread if spread > 0 else 1.0])


def _scaled(values: Array, scale: Array) -> Array:
    finite = np.isfinite(values)
    scaled = np.clip((np.where(finite, values, scale[0]) - scale[0]) / scale[1], -_LIMIT, _LIMIT)
    return np.stack([scaled, ~finite], axis=1)


def _frequent(strings: list[str], most: int) -> list[str]:
    """The most frequent values, in their own order."""
    values, counts = np.unique(np.array(strings, object).astype(str), return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:most]
    return [str(value) for value in values[np.sort(kept)]]


def _share_of_others(strings: list[str], values: list[str]) -> float:
    """The share of the strings that are not among the values."""
    known = set(values)
    return sum(value not in known for value in strings) / max(len(strings), 1)


def _indicators(strings: list[str], values: list[str]) -> Array:
    """(n, values + 1): the last column is for all others."""
    places = {value: place for place, value in enumerate(values)}
    result = np.zeros((len(strings), len(values) + 1), np.float32)
    result[np.arange(len(strings)), [places.get(value, len(values)) for value in strings]] = 1
    return result
