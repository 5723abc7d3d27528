"""What reading a file gives (`Export`), what can be asked for (`Request`), and how readers gather it (`Collector`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.annotations import Annotations, Duplicates
from crowdwise.data.codes import cells, count, distinct_rows
from crowdwise.data.factorise import Column, encode_classes
from crowdwise.errors import ReadError, spelled, suggest
from crowdwise.readers._node import Id, Label, Node, seconds, ticks
from crowdwise.readers._source import Source
from crowdwise.readers.table import TableRead, describe, integers
from crowdwise.registry import Registry

Several = Literal["error", "first", "skip"]
PERSON, MODEL = "person", "model"
_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".svg", ".avif")
PICTURE_FIELDS = ("image", "picture", "photo", "img", "imageurl", "pictureurl", "filename", "thumbnail")
TEXT_FIELDS = ("text", "content", "sentence", "document", "question", "prompt", "title", "html", "body", "review")


@dataclass(frozen=True, kw_only=True)
class Export(TableRead):
    """What `crowdwise.read` found in a file."""

    format: str
    """Name of the format, as in `READERS`."""
    question: str | None
    """The question whose answers were read, where the format has questions."""
    kinds: npt.NDArray[np.str_]
    """Whether each annotator is a "person" or a "model", (R,)."""
    timestamps: npt.NDArray[np.datetime64] | None = None
    """When every annotation was given, (E,), UTC in microseconds, NaT where unknown; None where all are."""
    durations: npt.NDArray[np.float64] | None = None
    """Seconds that every annotation took, (E,), NaN where unknown; None where all are."""
    texts: pa.Array | None = None
    """Text of every instance, (n,), null where unknown; None where all are."""
    pictures: pa.Array | None = None
    """Path or address of the picture of every instance, (n,), null where unknown; None where all are."""
    items: Sequence[Mapping[str, Any]] | None = None
    """All that the export says about every instance, (n,), where it says more than its text or picture."""
    control: Mapping[str, str] | None = None
    """How Label Studio calls the question: from_name, to_name, type."""


@dataclass(frozen=True)
class Request:
    """What a user asked `crowdwise.read` for."""

    question: str | None = None
    instance: str | None = None
    annotator: str | None = None
    label: str | None = None
    gold: str | None = None
    duplicates: Duplicates = "keep"
    several: Several = "error"
    models: bool = True
    details: bool = True

    def choose(self, questions: Sequence[str]) -> str:
        """The question that is meant, among those that an export has."""
        asked = self.question
        listed = ", ".join(map(repr, questions))
        if asked is not None:
            if asked in questions:
                return asked
            close = suggest(asked, questions)
            hint = close if "did you mean" in close else ""
            raise ReadError(f"there is no question {asked!r}{hint}; questions: {listed or 'none'}")
        if not questions:
            raise ReadError("nobody answered a question with one choice among several")
        if len(questions) > 1:
            raise ReadError(
                f"{len(questions)} questions were answered: {listed}; choose one with {spelled('question', 'NAME')}",
                parameter="question",
            )
        return questions[0]

    def one(self, choices: Sequence[Node], where: Node) -> Label | None:
        """The one label among the choices of an annotator, None where there is none."""
        if len(choices) <= 1 or self.several == "first":
            return choices[0].label() if choices else None
        if self.several == "skip":
            return None
        raise where.error(
            f"{len(choices)} choices, but one label is read from each annotation; "
            f"take the first with {spelled('several', 'first')}, or leave such annotations out with "
            f"{spelled('several', 'skip')}"
        )


class Reader:
    """A format: how to tell it, and how to read it."""

    summary: ClassVar[str]
    """The format in a few words."""
    rank: ClassVar[int] = 0
    """Formats that more files could be of have a higher rank: they are tried later."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Which of the columns instance, annotator, label and gold a user may name."""

    def detect(self, source: Source) -> str | None:
        """What tells that a file is of this format, in words; None where nothing does."""
        raise NotImplementedError

    def read(self, source: Source, request: Request) -> Export:
        """The content of a file."""
        raise NotImplementedError


READERS: Registry[type[Reader]] = Registry("format", "crowdwise.readers")


class Collector:
    """Gathers annotations, gold and items one by one, and makes an `Export` of them."""

    def __init__(self, source: Source, request: Request) -> None:
        self.source, self.request = source, request
        self.left_out: Counter[str] = Counter()
        """What was left out, by reason."""
        self._nodes: list[Node] = []
        self._instance: list[Id] = []
        self._annotator: list[Id] = []
        self._label: list[Label] = []
        self._time: list[Any] = []
        self._seconds: list[Any] = []
        self._models: set[Id] = set()
        self._gold: dict[Id, tuple[Label, Node]] = {}
        self._contradicted: set[Id] = set()
        self._items: dict[Id, Mapping[str, Any]] = {}

    def add(
        self,
        node: Node,
        instance: Id,
        annotator: Id,
        label: Label | None,
        *,
        time: Any = None,
        duration: Any = None,
        model: bool = False,
    ) -> None:
        """One annotation, which stands at ``node``; without label it is left out."""
        if label is None:
            self.left_out["without a label"] += 1
            return
        if model and not self.request.models:
            self.left_out["by models"] += 1
            return
        self._nodes.append(node)
        self._instance.append(instance)
        self._annotator.append(annotator)
        self._label.append(label)
        self._time.append(time)
        self._seconds.append(duration)
        if model:
            self._models.add(annotator)

    def gold(self, node: Node, instance: Id, label: Label | None) -> None:
        """The true class of an instance; one that contradicts an earlier one makes the instance lose its gold."""
        if label is not None and self._gold.setdefault(instance, (label, node))[0] != label:
            self._contradicted.add(instance)

    def item(self, instance: Id, fields: Mapping[str, Any]) -> None:
        """What an export says about an instance: its text, its picture."""
        self._items.setdefault(instance, fields)

    def export(
        self,
        question: str | None,
        *,
        columns: Mapping[str, str] | None = None,
        control: Mapping[str, str] | None = None,
        remark: str = "",
    ) -> Export:
        """All that was gathered."""
        if not self._label:
            reasons = f" ({self._left_out()})" if self.left_out else ""
            raise ReadError(f"there are no annotations{reasons}")
        every, truths, where = self._encoded()
        rows = kept_rows(every, self.request.duplicates, where)
        annotations = every if rows is None else every.where(np.isin(np.arange(len(every)), rows))
        annotators = dict(zip(self._annotator, every.annotator.tolist(), strict=True))
        models = {annotators[name] for name in self._models}
        details = self.request.details
        items: list[Mapping[str, Any]] = [{}] * every.n_instances
        codes = dict(zip(self._instance, every.instance.tolist(), strict=True))
        for instance, code in codes.items() if details else ():
            items[code] = self._items.get(instance, {})
        notes = [
            describe(annotations, len(every), columns or {}, truths or None),
            f"question {question!r}" if question is not None and not columns else "",
            f"{count(len(models), 'models')} among the annotators" if models else "",
            self._left_out() if self.left_out else "",
            f"gold contradicts itself for {count(len(self._contradicted), 'instances')}, which have none"
            if self._contradicted
            else "",
            remark,
        ]
        return Export(
            annotations=annotations,
            columns=dict(columns or {}),
            gold=truths or None,
            n_rows=len(every),
            message="; ".join(filter(None, notes)),
            format="",
            question=question,
            kinds=kinds_of(every.n_annotators, models),
            timestamps=times_of(self._time, rows) if details else None,
            durations=durations_of(self._seconds, rows) if details else None,
            texts=contents(items, text_of),
            pictures=contents(items, picture_of),
            items=tuple(items) if details and any(items) else None,
            control=control,
        )

    def _encoded(self) -> tuple[Annotations, dict[Any, Any], Callable[[int], str]]:
        """All annotations, the gold of their instances, and where a row of them stands in the file."""
        gold = {key: value for key, value in self._gold.items() if key not in self._contradicted}
        seen = set(self._instance)
        known = [instance for instance in gold if instance in seen]
        nodes = [*self._nodes, *(gold[instance][1] for instance in known)]

        def where(row: int) -> str:
            return nodes[row].where

        # Gold and labels are typed together: they must compare, and gold may name classes that nobody chose.
        i = self._typed(self._instance, "instance", where)
        j = self._typed(self._annotator, "annotator", where)
        y = Column.of([*self._label, *(gold[instance][0] for instance in known)], "label", where)
        if self.source.is_text_table:
            y = integers(y, whole=True)
        _, classes = encode_classes(y, None)
        e = len(self._label)
        every = Annotations._from_columns(i, j, Column(y.data.slice(0, e), y.name, where), classes=classes.arrow)
        codes = dict(zip(self._instance, every.instance.tolist(), strict=True))
        truths = {
            every.instance_vocabulary.arrow[codes[instance]].as_py(): y.data[e + k].as_py()
            for k, instance in enumerate(known)
        }
        return every, truths, where

    def _left_out(self) -> str:
        return f"left out: {', '.join(f'{number:,} {reason}' for reason, number in self.left_out.items())}"

    def _typed(self, values: list[Id], name: str, where: Any) -> Column:
        """Ids as integers where all are, else as text."""
        plain = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values)
        column = Column.of(values if plain else [str(value) for value in values], name, where)
        return integers(column, whole=False) if self.source.is_text_table and not plain else column


def kinds_of(size: int, models: set[int]) -> npt.NDArray[np.str_]:
    """The kind of every annotator, (R,), from the codes of those that are models."""
    return np.array([MODEL if code in models else PERSON for code in range(size)], dtype="<U6")


def kept_rows(annotations: Annotations, policy: Duplicates, where: Any) -> npt.NDArray[np.int64] | None:
    """The rows that a policy for repeats leaves, None for all."""
    if annotations._deduplicated(policy, where) is annotations:
        return None
    pairs = cells(annotations.instance, annotations.n_annotators, annotations.annotator)
    return np.sort(distinct_rows(pairs, last=policy == "last"))


def times_of(values: Sequence[Any], rows: npt.NDArray[np.int64] | None) -> npt.NDArray[np.datetime64] | None:
    """Times as an array; None where none is known."""
    parsed = [ticks(value) for value in values]
    if all(value is None for value in parsed):
        return None
    missing = np.iinfo(np.int64).min  # NaT
    array = np.array([missing if value is None else value for value in parsed], np.int64).view("datetime64[us]")
    return array if rows is None else array[rows]


def durations_of(values: Sequence[Any], rows: npt.NDArray[np.int64] | None) -> npt.NDArray[np.float64] | None:
    """Seconds as an array; None where none is known."""
    array = np.array([seconds(value) for value in values], np.float64)
    if np.isnan(array).all():
        return None
    return array if rows is None else array[rows]


def contents(items: Sequence[Mapping[str, Any]], pick: Any) -> pa.Array | None:
    """What ``pick`` finds in every item; None where it finds nothing in any."""
    found = [pick(item) for item in items]
    return pa.array(found, pa.large_string()) if any(one is not None for one in found) else None


def picture_of(item: Mapping[str, Any]) -> str | None:
    """The path or address of a picture among the fields of an item."""
    texts = {name: value for name, value in item.items() if isinstance(value, str) and value and _storable(value)}
    for name, value in texts.items():
        if is_picture(value) or simple(name) in PICTURE_FIELDS:
            return value
    return None


def text_of(item: Mapping[str, Any]) -> str | None:
    """The text among the fields of an item: by its usual names, else the first text that is no picture."""
    texts = {
        simple(name): value
        for name, value in item.items()
        if isinstance(value, str) and value and _storable(value) and simple(name) not in PICTURE_FIELDS
    }
    for name in TEXT_FIELDS:
        if name in texts:
            return texts[name]
    return next((value for value in texts.values() if not is_picture(value)), None)


def is_picture(value: str) -> bool:
    """Whether text is the path or address of a picture, or a picture itself."""
    return value.startswith("data:image/") or value.split("?")[0].split("#")[0].lower().endswith(_PICTURES)


def simple(name: str) -> str:
    """The name of a field without case and punctuation."""
    return "".join(filter(str.isalnum, name.lower()))


def _storable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
