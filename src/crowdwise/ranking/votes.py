"""Votes: which of two contestants each annotator preferred, as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.codes import Codes, checked_weights, count
from crowdwise.data.factorise import Column, Vocabulary, factorise
from crowdwise.data.types import Array, Floats, Ints
from crowdwise.errors import DataError, suggest

LEFT, RIGHT, TIE = 0, 1, 2
WORDS = {
    LEFT: ("left", "a", "model_a", "1", "1.0", "first", "option_1", "left wins", "a wins"),
    RIGHT: ("right", "b", "model_b", "2", "2.0", "second", "option_2", "right wins", "b wins"),
    TIE: ("tie", "draw", "both", "equal", "neither", "both_bad", "bothbad", "tie (bothbad)", "tie (both bad)"),
}
"""Outcome -> words for it in a column of winners; case does not matter."""
OUTCOMES = {word: outcome for outcome, words in WORDS.items() for word in words}


@dataclass(frozen=True, eq=False)
class Votes:
    """E comparisons of two contestants each.

    >>> votes = Votes.of(["cat", "cat", "dog"], ["dog", "eel", "eel"], ["cat", "tie", "right"])
    >>> votes
    Votes(3 votes on 3 contestants)
    >>> votes.outcome.tolist()
    [0, 2, 1]
    """

    left: Codes
    """(E,) int32: the contestant shown first."""
    right: Codes
    """(E,) int32."""
    outcome: Array
    """(E,) int8: 0 left, 1 right, 2 tie."""
    contestants: Vocabulary
    annotator: Codes | None = None
    """(E,) int32; None if nobody is named."""
    annotators: Vocabulary = field(default_factory=lambda: Vocabulary(0))
    instance: Codes | None = None
    """(E,) int32: the prompt, text or task on which the two were compared; None if unknown."""
    weight: Floats | None = None
    """(E,); None if every vote counts once."""
    skipped: int = 0
    """Rows that were left out: without a winner, or with the same contestant on both sides."""

    @classmethod
    def of(
        cls, left: Any, right: Any, winner: Any, *, annotator: Any = None, instance: Any = None, weight: Any = None
    ) -> Votes:
        """Votes from columns of the same length: arrays, lists, or columns of arrow, pandas or polars.

        ``winner`` holds a contestant's name, or a word such as left, right, tie, a, b, 1, 2, both_bad (`WORDS`). Rows
        without a winner and rows that compare a contestant with itself are left out, and counted in ``skipped``.
        """
        sides = [Column.of(left, "left"), Column.of(right, "right")]
        decided = Column.of(winner, "winner")
        size = len(decided.data)
        for column in sides:
            _same_length(column.name, len(column.data), size)
        both, contestants = factorise(_stacked(*sides))
        first, second = both[:size], both[size:]
        present = ~pc.is_null(decided.data).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(present & (first != second))
        if not rows.size:
            raise DataError(f"there are no comparisons: {_emptiness(size)}")
        outcome = _outcomes(decided, rows, first, second, contestants)
        people, annotators = _optional(annotator, "annotator", rows, size)
        items, _ = _optional(instance, "instance", rows, size)
        return cls(
            np.ascontiguousarray(first[rows]),
            np.ascontiguousarray(second[rows]),
            outcome,
            contestants,
            people,
            annotators,
            items,
            None if weight is None else checked_weights(weight, size)[rows].astype(np.float64),
            size - len(rows),
        )

    @property
    def size(self) -> int:
        """Contestants."""
        return self.contestants.size

    @property
    def weights(self) -> Floats:
        """(E,): how much each vote counts."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def take(self, rows: Ints | Sequence[int]) -> Votes:
        """Some votes; contestants and annotators keep their codes."""
        at = np.asarray(rows)
        return replace(
            self,
            left=self.left[at],
            right=self.right[at],
            outcome=self.outcome[at],
            annotator=None if self.annotator is None else self.annotator[at],
            instance=None if self.instance is None else self.instance[at],
            weight=None if self.weight is None else self.weight[at],
            skipped=0,
        )

    def __len__(self) -> int:
        return len(self.outcome)

    def __repr__(self) -> str:
        people = "" if self.annotator is None else f" by {count(self.annotators.size, 'annotators')}"
        return f"Votes({count(len(self), 'votes')} on {count(self.size, 'contestants')}{people})"


def _emptiness(size: int) -> str:
    if not size:
        return "there are no rows"
    return f"all {size:,} rows lack a winner, or name one contestant on both sides"


def _same_length(name: str, length: int, size: int) -> None:
    if length != size:
        raise DataError(f"{name} has {length:,} rows, but winner has {size:,}")


def _stacked(first: Column, second: Column) -> Column:
    """Both sides as one column, so that a name has one code; types that differ are compared as text."""
    a, b = first.data, second.data
    if a.type != b.type:
        a, b = a.cast(pa.large_string()), b.cast(pa.large_string())
    size = len(a)

    def where(row: int) -> str:
        return first.where(row) if row < size else second.where(row - size)

    return Column(pa.chunked_array([*a.chunks, *b.chunks], a.type), "left and right", where)


def _optional(values: Any, name: str, rows: Ints, size: int) -> tuple[Codes | None, Vocabulary]:
    if values is None:
        return None, Vocabulary(0)
    column = Column.of(values, name)
    _same_length(name, len(column.data), size)
    codes, vocabulary = factorise(column.take(rows))
    return codes, vocabulary


def _outcomes(winner: Column, rows: Ints, left: Codes, right: Codes, contestants: Vocabulary) -> Array:
    """Outcome (len(rows),) of each vote: by the contestant's name, else by a word."""
    codes, spellings = factorise(winner.take(rows))
    texts = [str(value) for value in spellings.arrow.to_pylist()]
    place = {str(name): code for code, name in enumerate(contestants.arrow.to_pylist())}
    named = np.array([place.get(text, -1) for text in texts])[codes]
    meant = np.array([OUTCOMES.get(text.strip().lower(), -1) for text in texts], np.int8)[codes]
    outcome = np.where(named == left[rows], LEFT, np.where(named == right[rows], RIGHT, meant))
    wrong = np.flatnonzero((outcome < 0) | ((named >= 0) & (named != left[rows]) & (named != right[rows])))
    if wrong.size:
        row = int(wrong[0])
        pair = [str(value) for value in contestants.take(np.array([left[rows[row]], right[rows[row]]])).to_pylist()]
        text = texts[codes[row]]
        raise winner.error(
            int(rows[row]),
            f"{text!r} is neither {pair[0]!r} nor {pair[1]!r}, nor a word such as left, right or tie"
            f"{suggest(text, [*pair, *OUTCOMES])}",
        )
    return outcome.astype(np.int8)
