"""Answers of reviewers: what the journal holds, and what holds after all of it was played back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from crowdwise.annotations import Annotations
from crowdwise.constraints import shown
from crowdwise.data.types import Array, Ints
from crowdwise.errors import DataError, suggest

VERSION = 1
HEADER = {"journal": "crowdwise review", "version": VERSION}
Action = Literal["label", "skip", "comment", "undo"]
COMMENT = 2_000  # characters
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
    """Names the request, so that one which is sent again counts once."""

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


@dataclass(frozen=True)
class Verdict:
    """The label of an item by a reviewer."""

    label: int
    answer: Answer


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
        ids = (self.crowd.instance_vocabulary, self.crowd.class_vocabulary)
        self._items, self._classes = ({one: code for code, one in enumerate(each.arrow.to_pylist())} for each in ids)
        self._keys: set[str] = set()
        self.reviewed = np.zeros(self.crowd.n_instances, np.int32)  # labels by reviewers, (n,)

    def seen(self, key: str) -> bool:
        """Whether an answer of this key has been played."""
        return bool(key) and key in self._keys

    def play(self, answer: Answer) -> int | None:
        """Apply an answer; the code of its item, or None where there is none."""
        if answer.key:
            self._keys.add(answer.key)
        if answer.action == "undo":
            return self._undo(answer.reviewer)
        item = self._items.get(answer.item)
        label = self._classes.get(answer.label) if answer.action == "label" else None
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
