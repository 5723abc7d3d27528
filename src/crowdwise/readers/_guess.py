"""Which column of a long table is which, by content: for headers that no usual name explains."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.codes import count
from crowdwise.data.factorise import decoded, is_text
from crowdwise.data.frames import ALIASES, listing
from crowdwise.data.types import Floats, Ints
from crowdwise.errors import AnnotationError, spelled

MOST = 12  # columns among which is guessed
ROWS = 20  # fewer tell nothing
CLEAR = 3.5  # standard deviations from chance
BLANK = 0.2  # share of empty cells that a column of ids may have
UNIQUE = 0.9  # share of rows whose instance and annotator occur nowhere else
CLASSES = 1000
MARGIN = 0.1  # by which labels of an instance agree more than those of an annotator, where the numbers do not tell
ROLES = tuple(ALIASES)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A column that may be of any role."""

    name: str
    codes: Ints
    size: int
    width: float
    """Mean length of its texts: of an id and a text that go together, the id is shorter."""

    def pairs(self, other: _Candidate) -> int:
        """How many pairs of values there are."""
        return len(_times(self, other))

    def tells(self, other: _Candidate) -> bool:
        """Whether a value of this column is found with one value of the other only."""
        return self.pairs(other) == self.size

    def meetings(self, other: _Candidate) -> tuple[float, float, float]:
        """Pairs of rows with the same value here; how many also agree in the other column, and how many by chance."""
        own, both = (float((times * (times - 1)).sum()) / 2 for times in (_sizes(self), _times(self, other)))
        return own, both, own * float(np.square(_sizes(other) / len(other.codes)).sum())

    def avoids(self, other: _Candidate) -> bool:
        """Whether equal values here meet equal values there clearly less than by chance: nobody labels a thing twice."""
        _, both, chance = self.meetings(other)
        return chance - both > CLEAR * math.sqrt(chance)

    def excess(self, other: _Candidate) -> float:
        """How far rows with the same value here agree in the other column beyond chance; 0 if not clearly."""
        own, both, chance = self.meetings(other)
        clear = both - chance > CLEAR * math.sqrt(chance)
        return (both - chance) / own if clear else 0.0


def _sizes(column: _Candidate) -> Floats:
    return np.bincount(column.codes, minlength=column.size).astype(np.float64)


@lru_cache(maxsize=2 * MOST**2)
def _times(one: _Candidate, other: _Candidate) -> Floats:
    """How often each pair of values of two columns occurs."""
    times: Floats = np.unique(one.codes * other.size + other.codes, return_counts=True)[1].astype(np.float64)
    return times


Triple = tuple[_Candidate, _Candidate, _Candidate]


def guess_columns(
    columns: Mapping[str, Any], known: Mapping[str, str], gold: Collection[str | None] = (), *, text: bool
) -> tuple[dict[str, str], str]:
    """Role -> column, and the guess in words; ``known`` roles stand, the rest is told by content or refused.

    Columns of ``gold`` have no other role.

    Annotators label an instance once, labels are few, and labels of an instance agree more than those of an annotator:
    all three must be clear, beyond chance. A column that the instance decides is a fact about it, not a label.
    """
    free = [name for name in columns if name not in (*known.values(), *gold)]
    if text:
        _check_header(columns, known)
    if len(free) + len(known) < 3:
        raise _unclear(columns, known, "three columns are needed")
    found = {name: _candidate(name, columns[name]) for name in [*free, *known.values()]}
    usable = [each for name in free if (each := found[name]) is not None and _repeats(each)]
    if len(usable) > MOST:
        raise _unclear(columns, known, f"with {len(usable)} columns that repeat, none is guessed")
    length = len(next(iter(columns.values())))
    if length < ROWS:
        raise _unclear(columns, known, f"{count(length, 'rows')} tell too little about content")
    fixed = {role: each for role, name in known.items() if (each := found[name]) is not None}
    if len(fixed) < len(known):
        raise _unclear(columns, known, "a named column is empty in places")
    choices = _finest([triple for triple in _triples(usable, fixed) if _plausible(triple, length)])
    _times.cache_clear()
    if not choices:
        raise _unclear(columns, known, "no columns repeat like instances, people and a few labels")
    for place, role in enumerate(ROLES):
        names = sorted({triple[place].name for triple in choices}, key=list(columns).index)
        if len(names) > 1:
            raise _unclear(columns, known, f"{' or '.join(map(repr, names))} could be the {role}", role)
    chosen = dict(zip(ROLES, choices[0], strict=True))
    said = ", ".join(f"{each.size:,} values in {each.name!r}" for role, each in chosen.items() if role not in known)
    override = ", ".join(spelled(role, "COLUMN") for role in ROLES if role not in known)
    return {role: each.name for role, each in chosen.items()}, f"guessed by content: {said}; to correct it: {override}"


def _triples(usable: Sequence[_Candidate], fixed: Mapping[str, _Candidate]) -> Iterator[Triple]:
    """All ways to fill the roles that are not fixed."""
    for picked in permutations(usable, len(ROLES) - len(fixed)):
        free = iter(picked)
        item, annotator, label = (fixed[role] if role in fixed else next(free) for role in ROLES)
        yield item, annotator, label


def _plausible(triple: Triple, length: int) -> bool:
    item, annotator, label = triple
    if not 2 <= label.size <= min(CLASSES, max(2, length // 5)) or 2 * label.size > item.size or annotator.size < 2:
        return False
    if item.pairs(annotator) < UNIQUE * length or not item.avoids(annotator):
        return False
    if annotator.tells(label) or item.tells(annotator) or item.tells(label):
        return False
    ahead = item.excess(label) - max(annotator.excess(label), 0)
    return ahead > (0 if item.size >= 2 * annotator.size else MARGIN)


def _finest(triples: list[Triple]) -> list[Triple]:
    """Without what another column tells better: a category of the instances, the country of the annotators, a text."""

    def better(one: _Candidate, other: _Candidate) -> bool:
        """Whether ``other`` is told by ``one``, and not the other way round; of equals, the shorter."""
        if not one.tells(other):
            return False
        return not other.tells(one) or (one.width, one.name) < (other.width, other.name)

    kept = []
    for triple in triples:
        rivals = [other for other in triples if sum(a is not b for a, b in zip(triple, other, strict=True)) == 1]
        pairs = [(a, b) for other in rivals for a, b in zip(other, triple, strict=True) if a is not b]
        if not any(better(one, mine) for one, mine in pairs):
            kept.append(triple)
    return kept


def _repeats(column: _Candidate) -> bool:
    return 1 < column.size < 0.95 * len(column.codes)


def _candidate(name: str, column: Any) -> _Candidate | None:
    """A column as codes; None for one that holds no ids."""
    try:
        data = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])
        data = decoded(data)
        if pa.types.is_nested(data.type) or data.null_count > BLANK * len(data):
            return None
        if is_text(data.type):
            data = data.cast(pa.large_string())
        encoded = data.combine_chunks().dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    size = len(encoded.dictionary)
    codes = pc.fill_null(encoded.indices, size).to_numpy().astype(np.int64)
    width = pc.mean(pc.utf8_length(data)).as_py() if pa.types.is_large_string(data.type) and len(data) else 0.0
    return _Candidate(name, codes, size + bool(encoded.null_count), width or 0.0)


def _check_header(columns: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuse a file whose first line is data: what stands there occurs again below."""
    if known or not columns:
        return
    again = [name for name, column in columns.items() if name in pc.unique(column).to_pylist()]
    numbers = all(name.strip().lstrip("-").replace(".", "", 1).isdecimal() for name in columns)
    if numbers or len(again) >= min(2, len(columns)):
        raise AnnotationError(
            f"the file seems to have no header: its first line is {', '.join(map(repr, columns))}; name the columns "
            f"with {spelled('columns', 'item,annotator,label')}, in their order, or, if every column is an annotator, say "
            f"{spelled('format', 'dense')}",
            parameter="columns",
        )


def _unclear(
    columns: Mapping[str, Any], known: Mapping[str, str], why: str, role: str | None = None
) -> AnnotationError:
    missing = [each for each in ROLES if each not in known]
    options = ", ".join(spelled(each, "COLUMN") for each in missing)
    matrix = "annotator" in missing and "label" in missing
    dense = f", or, if every column is an annotator, say {spelled('format', 'dense')}" if matrix else ""
    return AnnotationError(
        f"no column for the {missing[0]}: looked for {', '.join(ALIASES[missing[0]])}; {why}; columns: "
        f"{listing(list(columns))}; name it with {options}{dense}",
        parameter=role or missing[0],
    )
