"""How readers collect annotations, gold and items one by one (`Collector`), and the columns that become of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.annotations import Annotations, Duplicates
from crowdwise.data.codes import count
from crowdwise.data.factorise import Column, decoded, encode_classes
from crowdwise.data.frames import simple_name
from crowdwise.data.types import Ints
from crowdwise.errors import ReadError
from crowdwise.readers._export import MODEL, PERSON, PICTURE_FIELDS, TEXT_FIELDS, Export, ReadOptions
from crowdwise.readers._node import Id, Label, Node, probability, seconds, storable, ticks
from crowdwise.readers._source import InputFile
from crowdwise.readers.table import describe, integers, look_alikes

_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".svg", ".avif")


class _Row(NamedTuple):
    """An annotation, where it stands, and what else is known of it."""

    node: Node
    instance: Id
    annotator: Id
    label: Label
    time: Any = None
    duration: Any = None
    extra: Mapping[str, Any] | None = None
    weight: float = 1.0
    confidence: Any = None


class Collector:
    """Collects annotations, gold and items one by one into an `Export`."""

    def __init__(self, source: InputFile, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.left_out: Counter[str] = Counter()
        """Number of annotations left out, by reason."""
        self._rows: list[_Row] = []
        self._models: set[Id] = set()
        self._gold: dict[Id, tuple[Label, Node]] = {}
        self._contradicted: set[Id] = set()
        self._items: dict[Id, Mapping[str, Any]] = {}

    def add(
        self, node: Node, instance: Id, annotator: Id, label: Label | None, *, model: bool = False, **more: Any
    ) -> None:
        """Add the annotation at ``node``, and ``more`` fields of a row; without a label it is left out."""
        if label is None:
            self.left_out["without a label"] += 1
            return
        if self.options.kinds is not None:
            model = self.options.kinds.get(str(annotator), MODEL if model else PERSON) == MODEL
        if model and not self.options.models:
            self.left_out["by models"] += 1
            return
        self._rows.append(_Row(node, instance, annotator, label, **more))
        if model:
            self._models.add(annotator)

    def __len__(self) -> int:
        return len(self._rows)

    def gold(self, node: Node, instance: Id, label: Label | None) -> None:
        """Set the true class of an instance; contradictory gold is dropped."""
        if label is not None and self._gold.setdefault(instance, (label, node))[0] != label:
            self._contradicted.add(instance)

    def item(self, instance: Id, fields: Mapping[str, Any]) -> None:
        """Set the fields of an instance, such as its text or picture."""
        self._items.setdefault(instance, fields)

    def export(
        self,
        question: str | None,
        *,
        columns: Mapping[str, str] | None = None,
        control: Mapping[str, str] | None = None,
        remark: str = "",
    ) -> Export:
        """Everything collected."""
        remarks = self._settle_labels()
        if not self._rows:
            raise ReadError(f"there are no annotations{f' ({self.reasons})' if self.left_out else ''}")
        every, truths, where = self._encoded()
        annotations, rows = without_repeats(every, self.options.duplicates, where)
        codes = {row.annotator: code for row, code in zip(self._rows, every.annotator.tolist(), strict=True)}
        models = {codes[name] for name in self._models if name in codes}  # others' labels are all left out
        details = self.options.details
        ids = {code: row.instance for row, code in zip(self._rows, every.instance.tolist(), strict=True)}
        items = [self._items.get(ids[code], {}) if details else {} for code in range(every.n_instances)]
        notes = [
            describe(annotations, len(every), columns or {}, truths or None),
            f"question {question!r}" if question is not None and not columns else "",
            f"{count(len(models), 'models')} among the annotators" if models else "",
            self.reasons if self.left_out else "",
            f"gold contradicts itself for {count(len(self._contradicted), 'instances')} and is dropped there"
            if self._contradicted
            else "",
            remark,
            *remarks,
            *look_alikes(every),
        ]
        return Export(
            annotations=annotations,
            columns=dict(columns or {}),
            gold=truths or None,
            n_rows=len(every),
            message="; ".join(filter(None, notes)),
            question=question,
            kinds=kinds_of(every.n_annotators, models),
            timestamps=array_of("timestamp", [row.time for row in self._rows], rows) if details else None,
            durations=array_of("duration", [row.duration for row in self._rows], rows) if details else None,
            confidences=array_of("confidence", [row.confidence for row in self._rows], rows),
            texts=contents(items, text_of),
            pictures=contents(items, picture_of),
            items=tuple(items) if details and any(items) else None,
            control=control,
            extra=extra_columns([row.extra or {} for row in self._rows], rows) if details else None,
        )

    def _settle_labels(self) -> list[str]:
        """Bring labels and gold into the vocabulary that the user wants; what a user should know of it."""
        truths = {instance: label for instance, (label, _) in self._gold.items()}
        found = self.options.rules.resolve(Counter(row.label for row in self._rows), Counter(truths.values()))
        kept = [row for row in self._rows if found.labels[row.label] is not None]
        if len(kept) < len(self._rows):
            self.left_out["without a label"] += len(self._rows) - len(kept)
        self._rows = [row._replace(label=found.labels[row.label]) for row in kept]
        self._gold = {
            instance: (found.gold[label], node)
            for instance, (label, node) in self._gold.items()
            if found.gold[label] is not None
        }
        return found.remarks

    def _encoded(self) -> tuple[Annotations, dict[Any, Any], Callable[[int], str]]:
        """All annotations, the gold of their instances, and the place of each row in the file."""
        gold = {key: value for key, value in self._gold.items() if key not in self._contradicted}
        instances = [row.instance for row in self._rows]
        seen = set(instances)
        known = [instance for instance in gold if instance in seen]
        nodes = [*(row.node for row in self._rows), *(gold[instance][1] for instance in known)]

        def where(row: int) -> str:
            return nodes[row].where

        # Gold and labels are typed together: they must be comparable, and gold may have classes that nobody chose.
        i = self._typed(instances, "instance", where)
        j = self._typed([row.annotator for row in self._rows], "annotator", where)
        truths = [gold[instance][0] for instance in known]
        y = Column.of([*(row.label for row in self._rows), *truths], "label", where)
        if self.source.is_text_table:
            y = integers(y, whole=True)
        _, classes = encode_classes(y, self.options.rules.vocabulary(y.data.type))
        e = len(self._rows)
        weight = np.array([row.weight for row in self._rows], np.float32)
        labels = Column(y.data.slice(0, e), y.name, where)
        every = Annotations.from_columns(
            i, j, labels, classes=classes.arrow, weight=None if np.all(weight == 1) else weight
        )
        codes = dict(zip(instances, every.instance.tolist(), strict=True))
        known_classes = {
            every.instance_vocabulary.arrow[codes[instance]].as_py(): y.data[e + k].as_py()
            for k, instance in enumerate(known)
        }
        return every, known_classes, where

    @property
    def reasons(self) -> str:
        """What was left out, in words."""
        return f"left out: {', '.join(f'{number:,} {reason}' for reason, number in self.left_out.items())}"

    def _typed(self, values: list[Id], name: str, where: Any) -> Column:
        """Ids as integers if all of them are, else as text."""
        plain = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values)
        column = Column.of(values if plain else [str(value) for value in values], name, where)
        return integers(column, whole=False) if self.source.is_text_table and not plain else column


def kinds_of(size: int, models: set[int]) -> npt.NDArray[np.str_]:
    """The kind of every annotator, (R,), from the codes of the models."""
    return np.array([MODEL if code in models else PERSON for code in range(size)], dtype="<U6")


def without_repeats(
    annotations: Annotations, policy: Duplicates, where: Callable[[int], str]
) -> tuple[Annotations, Ints | None]:
    """The annotations that a policy for repeats keeps, and their rows; None for all rows."""
    kept = annotations.deduplicated(policy, where)
    return kept, None if kept is annotations else annotations.rows_without_repeats(policy)[0]


_PARSED: dict[str, tuple[Callable[[Any], float | None], str]] = {
    "timestamp": (ticks, "datetime64[us]"),
    "duration": (seconds, "float64"),
    "confidence": (probability, "float64"),
}


def array_of(detail: str, values: Sequence[Any], rows: Ints | None) -> npt.NDArray[Any] | None:
    """A detail of annotations as an array, NaT or NaN where it is not understood; None if it never is."""
    parse, kind = _PARSED[detail]
    parsed = [parse(value) for value in values]
    if all(value is None for value in parsed):
        return None
    array = np.array(parsed, kind)
    return array if rows is None else array[rows]


def extra_columns(fields: Sequence[Mapping[str, Any]], rows: Ints | None) -> pa.Table | None:
    """Fields of every annotation, or of every instance, as columns; None if there are none."""
    chosen = fields if rows is None else [fields[row] for row in rows.tolist()]
    names = dict.fromkeys(name for one in chosen for name, value in one.items() if value not in (None, ""))
    return pa.table({name: plain_column([one.get(name) for one in chosen]) for name in names}) if names else None


def plain_column(values: Any) -> pa.ChunkedArray:
    """A column of any content: what arrow has no type for, or no other file would, is text."""
    if isinstance(values, pa.ChunkedArray) and not pa.types.is_nested(values.type):
        return decoded(values)
    values = values.to_pylist() if isinstance(values, pa.ChunkedArray) else values
    try:
        made = pa.array(values)
        if not pa.types.is_nested(made.type):
            return pa.chunked_array([made])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
        pass
    known = (
        value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    )
    return pa.chunked_array([pa.array([None if text is None else storable(text) for text in known], pa.string())])


def contents(items: Sequence[Mapping[str, Any]], pick: Any) -> pa.Array | None:
    """What ``pick`` finds in every item; None if it never finds anything."""
    found = [pick(item) for item in items]
    return pa.array(found, pa.large_string()) if any(one is not None for one in found) else None


def _texts(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of an item that are text which can be stored, by their simple names."""
    for name, value in item.items():
        if isinstance(value, str) and value and storable(value) == value:
            yield simple_name(name), value


def picture_of(item: Mapping[str, Any]) -> str | None:
    """The path or URL of a picture among the fields of an item."""
    return next((value for name, value in _texts(item) if is_picture(value) or name in PICTURE_FIELDS), None)


def text_of(item: Mapping[str, Any]) -> str | None:
    """The text among the fields of an item: a field with a usual name, else the first text that is not a picture."""
    texts = {name: value for name, value in _texts(item) if name not in PICTURE_FIELDS}
    usual = (texts[name] for name in TEXT_FIELDS if name in texts)
    return next(chain(usual, (value for value in texts.values() if not is_picture(value))), None)


def is_picture(value: str) -> bool:
    """Whether text is the path or URL of a picture, or an embedded picture."""
    return value.startswith("data:image/") or value.split("?")[0].split("#")[0].lower().endswith(_PICTURES)
