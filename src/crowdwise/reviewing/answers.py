"""Answers of reviewers: what the journal holds, and what holds after all of it was played back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from crowdwise.annotations import Annotations
from crowdwise.constraints import shown
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.types import Array, Ints
from crowdwise.errors import DataError, suggest

VERSION = 1
HEADER = {"journal": "crowdwise review", "version": VERSION}
Action = Literal["label", "skip", "comment", "undo"]
COMMENT = 2_000  # characters
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_ID, _NUMBER = (str, int, float, type(None)), (int, float, type(None))
_KINDS: dict[str, Any] = {"reviewer": str, "comment": str, "key": str, "time": (int, float)}
_KINDS |= {"item": _ID, "label": _ID, "consensus": _ID, "seconds": _NUMBER, "confidence": _NUMBER, "promised": _NUMBER}


@dataclass(frozen=True)
class Answer:
    """What a reviewer did with an item; a record of the journal."""

    reviewer: str
    action: Action
    item: Any = None
    """Id of the item; None for an undo."""
    label: Any = None
    """Id of the class."""
    comment: str = ""
    time: float = 0.0
    """Seconds since 1970."""
    seconds: float | None = None
    """How long the item was looked at."""
    consensus: Any = None
    """The most likely class before this answer, and its probability, where that can be told."""
    confidence: float | None = None
    promised: float | None = None
    """What was to be expected of the most likely class; the same probability, but for journals of older versions."""
    key: str = ""
    """Names the request; with its content it tells whether a request has come before, so that it counts once."""

    @classmethod
    def of(cls, place: str, record: Mapping[str, Any]) -> Answer:
        """From a record of the journal."""
        try:
            answer = cls(**record)
        except TypeError as error:
            raise DataError(f"{place}: {error}") from error
        if answer.action not in get_args(Action):
            raise DataError(f"{place}: unknown action {answer.action!r}{suggest(str(answer.action), get_args(Action))}")
        for name, kinds in _KINDS.items():
            if not isinstance(getattr(answer, name), kinds):
                raise DataError(f"{place}: {name} cannot be {shown(getattr(answer, name))}")
        return answer

    def record(self) -> dict[str, Any]:
        """As the journal keeps it."""
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


class IdFinder:
    """Finds the codes of ids as answers keep them, also after the ids of the file have changed their type.

    A column of numbers becomes one of texts as soon as one of its values is no number. An id that is not found as it is, is
    looked for as text, where whole numbers such as 1.0 are written 1; texts that several ids share find none of them.

    >>> codes = IdFinder(Vocabulary.of(["7", "8.0", "x9"], "instances"))
    >>> codes.find("x9"), codes.find(7), codes.find(8), codes.find(9)
    (2, 0, 1, None)
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = vocabulary.arrow.to_pylist()
        self._exact = {one: code for code, one in enumerate(ids)}
        self._text: dict[str, int | None] = {}
        for code, one in enumerate(ids):
            text = spelled_out(one)
            self._text[text] = None if text in self._text else code

    def find(self, one: Any) -> int | None:
        """The code of an id; None where there is none."""
        code = self._exact.get(one)
        return self._text.get(spelled_out(one)) if code is None else code


def spelled_out(one: Any) -> str:
    """An id as text, the same for a number and for the text that stands for it.

    >>> spelled_out(1.0), spelled_out("1.0"), spelled_out("01"), spelled_out(0.5), spelled_out(True), spelled_out("True")
    ('1', '1', '01', '0.5', 'true', 'true')
    """
    text = str(one)
    if text in ("True", "False"):
        return text.lower()
    whole = _WHOLE.fullmatch(text)
    return text if whole is None else whole[1]


def kept(one: Any) -> Any:
    """An id as the journal keeps it: texts and numbers as they are, others, such as dates, as text."""
    return one if isinstance(one, str | int | float) else str(one)


@dataclass(frozen=True)
class Verdict:
    """The label of an item by a reviewer."""

    label: int
    answer: Answer


class Asked(NamedTuple):
    """What a reviewer asks for, in the codes of a crowd: two requests with the same key are one only if all this is equal."""

    reviewer: str
    action: Action
    item: int | None
    label: int | None
    comment: str

    @classmethod
    def of(cls, reviewer: str, action: Action, item: int | None, label: int | None, comment: str) -> Asked:
        """Without what the action does not look at: an undo is about the last answer, whatever else is sent with it."""
        if action == "undo":
            return cls(reviewer, action, None, None, "")
        return cls(reviewer, action, item, label if action == "label" else None, comment)


@dataclass
class Answers:
    """The state after some answers, in the codes of a crowd. Not safe for threads."""

    crowd: Annotations
    labels: dict[tuple[str, int], Verdict] = field(default_factory=dict)
    """By reviewer and item, in the order in which they were given."""
    skipped: dict[str, dict[int, float]] = field(default_factory=dict)
    """Of every reviewer: items put aside, and when."""
    comments: dict[tuple[str, int], str] = field(default_factory=dict)
    last: dict[str, list[tuple[int, Answer, dict[str, Any]]]] = field(default_factory=dict)
    """Of every reviewer: what can be undone, with the state of the item before."""
    strange: int = 0
    """Answers about items or classes that the crowd does not have."""

    def __post_init__(self) -> None:
        self._items = IdFinder(self.crowd.instance_vocabulary)
        self._classes = IdFinder(self.crowd.class_vocabulary)
        self._requests: dict[str, tuple[Asked, int | None]] = {}  # the latest of each key, and the item it touched
        self.reviewed = np.zeros(self.crowd.n_instances, np.int32)  # labels by reviewers, (n,)

    def repeated(self, key: str, request: Asked) -> bool:
        """Whether the latest request of this key is the same one: it has come again, and is no new answer."""
        return bool(key) and key in self._requests and self._requests[key][0] == request

    def touched(self, key: str) -> int | None:
        """The item that the latest request of this key was about."""
        return self._requests[key][1]

    def play(self, answer: Answer) -> int | None:
        """Apply an answer; the code of its item, or None where there is none."""
        item = None if answer.action == "undo" else self._items.find(answer.item)
        label = self._classes.find(answer.label) if answer.action == "label" else None
        request = Asked.of(answer.reviewer, answer.action, item, label, answer.comment)
        touched = self._undo(answer.reviewer) if answer.action == "undo" else self._apply(answer, item, label)
        if answer.key:
            self._requests[answer.key] = request, touched
        return touched

    def _apply(self, answer: Answer, item: int | None, label: int | None) -> int | None:
        if item is None or (answer.action == "label" and label is None):
            self.strange += 1
            return None
        who = answer.reviewer
        self.last.setdefault(who, []).append((item, answer, self._state(who, item)))
        if label is not None:
            self._set(who, item, {"label": Verdict(label, answer), "skipped": None})
        elif answer.action == "skip":
            self._set(who, item, {"skipped": answer.time})
        if answer.comment or answer.action == "comment":
            self._set(who, item, {"comment": answer.comment or None})
        return item

    def undone(self, reviewer: str) -> tuple[int, Answer] | None:
        """What the next undo of a reviewer would take back."""
        history = self.last.get(reviewer)
        return history[-1][:2] if history else None

    def _undo(self, who: str) -> int | None:
        if not self.last.get(who):
            return None
        item, _, before = self.last[who].pop()
        self._set(who, item, before)
        return item

    def _state(self, who: str, item: int) -> dict[str, Any]:
        return {
            "label": self.labels.get((who, item)),
            "skipped": self.skipped.get(who, {}).get(item),
            "comment": self.comments.get((who, item)),
        }

    def _set(self, who: str, item: int, state: Mapping[str, Any]) -> None:
        """Put parts of an item's state in place; None removes them."""
        stores: dict[str, tuple[dict[Any, Any], Any]] = {
            "label": (self.labels, (who, item)),
            "skipped": (self.skipped.setdefault(who, {}), item),
            "comment": (self.comments, (who, item)),
        }
        for name, value in state.items():
            store, key = stores[name]
            if name == "label":
                self.reviewed[item] += int(value is not None) - int(key in store)
            store.pop(key, None)  # a later answer goes to the end
            if value is not None:
                store[key] = value

    def triples(self) -> tuple[Ints, list[str], Ints, list[Answer]]:
        """Items (k,), reviewers, labels (k,), and the answers they come from."""
        keys, verdicts = list(self.labels), list(self.labels.values())
        items = np.array([item for _, item in keys], np.int64)
        codes = np.array([verdict.label for verdict in verdicts], np.int64)
        return items, [who for who, _ in keys], codes, [verdict.answer for verdict in verdicts]

    def agreed(self) -> Array:
        """The label (n,) of items on which all of their reviewers agree, else -1."""
        found = np.full(self.crowd.n_instances, -1, np.int32)
        items, _, labels, _ = self.triples()
        found[items] = labels
        found[items[found[items] != labels]] = -1
        return found
