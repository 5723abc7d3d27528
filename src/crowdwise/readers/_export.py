"""What reading a file returns (`Export`), how it is read (`ReadOptions`), and what a format is (`Reader`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crowdwise.annotations import Duplicates
from crowdwise.data.frames import close_to
from crowdwise.data.label_rules import NO_RULES, LabelRules
from crowdwise.data.types import Floats
from crowdwise.errors import ReadError, spelled
from crowdwise.readers._node import Label, Node
from crowdwise.readers._source import TABLES, InputFile
from crowdwise.readers._text import PLAIN, Layout
from crowdwise.readers.table import TableRead
from crowdwise.registry import Registry

Several = Literal["error", "first", "skip"]
PERSON, MODEL = "person", "model"
KIND_COLUMNS = ("kind", "annotatorkind", "annotatortype")
PICTURE_FIELDS = ("image", "picture", "photo", "img", "imageurl", "pictureurl", "filename", "thumbnail")
TEXT_FIELDS = ("text", "content", "sentence", "document", "question", "prompt", "title", "html", "body", "review")


@dataclass(frozen=True, kw_only=True)
class Export(TableRead):
    """What `crowdwise.read` found in a file."""

    format: str = ""
    """Name of the format, as in `READERS`."""
    question: str | None = None
    """The question whose answers were read, if the format has questions."""
    kinds: npt.NDArray[np.str_]
    """Whether each annotator is a "person" or a "model", (R,)."""
    timestamps: npt.NDArray[np.datetime64] | None = None
    """Time of every annotation, (E,), UTC in microseconds, NaT where unknown; None if all are."""
    durations: Floats | None = None
    """Seconds every annotation took, (E,), NaN where unknown; None if all are."""
    confidences: Floats | None = None
    """How sure the annotator was of every annotation, (E,), NaN where unknown; None if all are. Such are the scores of
    models, and probabilities that they gave their answers."""
    texts: pa.Array | None = None
    """Text of every instance, (n,), null where unknown; None if all are."""
    pictures: pa.Array | None = None
    """Path or URL of the picture of every instance, (n,), null where unknown; None if all are."""
    items: Sequence[Mapping[str, Any]] | None = None
    """All fields of every instance, (n,), if the export has any."""
    control: Mapping[str, str] | None = None
    """The question in the terms of Label Studio: from_name, to_name, type."""
    extra: pa.Table | None = None
    """All other columns of a table (comments, costs, ...), a row for every annotation, (E,); None if there are none."""
    layout: Layout = PLAIN
    """How the file was read, so that it can be read again."""

    @property
    def models(self) -> list[Any]:
        """Ids of the annotators that are models."""
        return list(np.asarray(self.annotations.annotators)[self.kinds == MODEL].tolist())


@dataclass(frozen=True)
class ReadOptions:
    """The arguments of `crowdwise.read`."""

    question: str | None = None
    instance: str | None = None
    annotator: str | None = None
    label: str | None = None
    gold: str | None = None
    duplicates: Duplicates = "keep"
    several: Several = "error"
    models: bool = True
    kinds: Mapping[str, str] | None = None
    """Kinds of annotators by their ids, as text; None if nobody says so."""
    details: bool = True
    rules: LabelRules = NO_RULES
    weight: str | None = None
    classes: Sequence[Label] | None = None
    """The classes to find in free text; None if they are not known."""

    def choose(self, questions: Iterable[str]) -> str:
        """The question to read, among those of an export."""
        known = list(dict.fromkeys(questions))
        listed = ", ".join(map(repr, known))
        if self.question in known:
            return self.question
        if self.question is not None:
            hint = close_to(self.question, known)
            raise ReadError(f"there is no question {self.question!r}{hint}; questions: {listed or 'none'}")
        if not known:
            raise ReadError("no question was answered by choosing a class")
        if len(known) > 1:
            raise ReadError(
                f"{len(known)} questions were answered: {listed}; choose one with {spelled('question', 'NAME')}",
                parameter="question",
            )
        return known[0]

    def label_of(self, answer: Node | None) -> Label | None:
        """The label in an answer, which may be a list of choices; None if there is none."""
        return None if answer is None else self.one_label(answer.each(), answer)

    def one_label(self, choices: Sequence[Node], where: Node) -> Label | None:
        """The label among the choices of an annotator; None if there is none."""
        if len(choices) <= 1 or self.several == "first":
            return choices[0].label() if choices else None
        if self.several == "skip":
            return None
        raise where.error(
            f"{len(choices)} choices, but one label is read from each annotation; "
            f"take the first with {spelled('several', 'first')}, or skip such annotations with "
            f"{spelled('several', 'skip')}"
        )


class Reader:
    """A format: how to recognise it, and how to read it.

    A new format is one module with one registered subclass; nothing else needs to know of it.
    """

    summary: ClassVar[str]
    """The format in a few words."""
    kinds: ClassVar[tuple[str, ...]] = (*TABLES, "json")
    """Kinds of file, as in `InputFile.kind`, that may be of this format: only these are shown to `detect`."""
    rank: ClassVar[int] = 0
    """Generic formats, which match more files, have a higher rank and are tried later."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Which of the columns instance, annotator, label, gold and weight a user may name."""
    answers: ClassVar[bool] = False
    """Whether a file holds what models said, in which the classes of other files are looked for."""

    def detect(self, source: InputFile) -> str | None:
        """Why a file seems to be of this format, in words; None if it does not."""
        raise NotImplementedError

    def read(self, source: InputFile, options: ReadOptions) -> Export:
        """The content of a file."""
        raise NotImplementedError


READERS: Registry[type[Reader]] = Registry("format", "crowdwise.readers")
