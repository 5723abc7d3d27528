"""The vocabulary of labels: what is missing, renamed, merged or refused, and what looks alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.codes import count
from crowdwise.data.factorise import Column, Vocabulary, decoded, is_blank, is_plain, is_text
from crowdwise.data.frames import close_to
from crowdwise.errors import AnnotationError, ConfigError, spelled

LIKELY_MISSING = {
    *("n/a", "na", "nan", "none", "null", "-", "--", "?", "n.a.", "missing", "<na>"),
    *("#n/a", "#ref!", "#div/0!", "#value!", "#name?", "#null!", "#num!", "#nv", "#bezug!", "#wert!"),
}
"""Texts that say there is nothing, in lower case; those with # are errors of spreadsheets."""
ONE_MEANING = (("true", "1", "yes", "y", "t"), ("false", "0", "no", "n", "f"))
SHOWN = 3  # groups of similar values in a message
MOST = 500  # distinct labels among which similar ones are looked for
_BETWEEN = re.compile(r"(?<=[^\W\d])[-‐-―_/]+(?=\w)|(?<=\w)[-‐-―_/]+(?=[^\W\d])")
_WHOLE = re.compile(r"(-?\d+)\.0*", re.ASCII)  # a whole number as programs write it that have floats only
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_DIGITS = re.compile(r"\d+")
_UNSEEN = ("Cf", "Cc")  # categories of Unicode
_COMMA = re.compile(r"([+-]?\d+),(\d{1,2})", re.ASCII)  # a number with a decimal comma, and none of thousands
_JOINERS = "\u200c\u200d"  # invisible, but part of how some languages and emoji are written
_MARKS = re.compile(r"(?<!\d)[.,:;]|[.,:;](?!\d)|[!?'\"()\[\]{}«»‘’“”…`´]|(?<!\d)_|_(?!\d)")  # not those inside numbers


@dataclass(frozen=True)
class LabelRules:
    """What a user says about labels; `crowdwise.read` explains it."""

    clean: bool = False
    classes: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        clean: bool,
        classes: Sequence[str] | None,
        missing: Sequence[str] | str,
        map: Mapping[str, str] | None,
    ) -> LabelRules:
        """Checked."""
        listed = None if classes is None else tuple(str(name).strip() for name in classes)
        if listed is not None and (not all(listed) or len({alike(name) for name in listed}) < len(listed)):
            raise ConfigError(
                f"{spelled('classes')}: names must differ by more than case and punctuation, got "
                f"{', '.join(repr(name) for name in listed)}",
                parameter="classes",
            )
        absent = (missing,) if isinstance(missing, str) else tuple(str(text) for text in missing)
        renamed = {str(old).strip(): str(new).strip() for old, new in (map or {}).items()}
        return cls(clean, listed, tuple(text.strip().casefold() for text in absent), renamed)

    def resolve(
        self, labels: Mapping[Any, int], gold: Mapping[Any, int], *, sure: bool = True, checked: bool = False
    ) -> Resolution:
        """The class that each label, and each gold label, stands for; both are given with their counts.

        ``sure``: gold is what the user calls so, and must be among the classes, not a column that merely looks like it.
        ``checked``: a gold label that is probably a misspelt class is an error, also where no classes are listed.
        """
        counts: Counter[Any] = Counter(labels)
        counts.update(gold)
        found: dict[Any, Any] = {value: self._named(value) for value in counts}
        remarks = self._unused(counts)
        if self.classes is not None:
            found = {
                value: name if name is None else self._listed(name, counts[value], sure or value in labels)
                for value, name in found.items()
            }
        else:
            found, more = _settled(found, counts)
            remarks += more
            if self.clean:
                found, merged = _merged(found, counts)
                remarks += merged
            elif len(labels) <= MOST:
                remarks += _similar(found[value] for value in labels)
            if len(labels) <= MOST:
                remarks += _of_one_meaning(found[value] for value in labels)
        truths = {value: found[value] for value in gold}
        if self.classes is None and len(labels) <= MOST:
            known = {found[value] for value in labels} - {None}
            truths, read_as = _like_labels(truths, known)
            remarks += [*_stand_ins(found, labels), *read_as]
            remarks += _chosen_by_nobody(truths, gold, known, checked=sure and checked)
        return Resolution({value: found[value] for value in labels}, truths, remarks)

    def _unused(self, counts: Mapping[Any, int]) -> list[str]:
        """Remarks on names that no label has."""
        texts = {text for value in counts for text in (str(value).strip(), by_value(value))}
        return [f"no label is {old!r}" for old in self.map if not {old, by_value(old)} & texts]

    def names(self, text: str) -> bool:
        """Whether the user speaks of this label: as a class, one to rename, or one that means there is none."""
        spoken_of = (*(self.classes or ()), *self.map, *self.missing)
        return by_value(text) in map(by_value, spoken_of)

    def vocabulary(self, kind: pa.DataType) -> pa.Array | None:
        """The classes that the user lists, in the type of the labels."""
        if self.classes is None:
            return None
        listed = pa.array(self.classes, pa.large_string())
        try:
            return listed if is_text(kind) else listed.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise AnnotationError(
                f"{spelled('classes')} lists {', '.join(map(repr, self.classes))}, but labels are {kind}",
                parameter="classes",
            ) from error

    def _named(self, value: Any) -> Any:
        """A label under its new name, without blanks at its ends; None for one that is missing."""
        if is_blank(value):
            return None
        text, number = str(value).strip(), by_value(value)
        if {text.casefold(), number.casefold()} & self._missing:
            return None
        for spelling in (text, number):  # a spelling that the user names comes before an equal number
            if spelling in self.map:
                return self.map[spelling]
        if number in self._numbers:
            return self._numbers[number]
        return text if isinstance(value, str) else value

    @cached_property
    def _missing(self) -> set[str]:
        """Spellings of what is missing, and the numbers among them by value."""
        return {spelling for text in self.missing for spelling in (text, by_value(text))}

    @cached_property
    def _numbers(self) -> dict[str, str]:
        """New names of numbers, by value."""
        return {by_value(old): new for old, new in self.map.items()}

    def _listed(self, value: Any, times: int, required: bool) -> Any:
        """The class among those listed that a label stands for; where one is not required, perhaps the label itself."""
        assert self.classes is not None
        text = str(value).strip()
        if text in self.classes:
            return text if isinstance(value, str) else value
        same = next((name for name in self.classes if alike(name) == alike(text)), None)
        if same is None and not required:
            return value
        if same is None:
            raise AnnotationError(
                f"label {text!r} ({count(times, 'times')}) is none of the classes {', '.join(map(repr, self.classes))}"
                f"{close_to(text, self.classes)}; rename it with {spelled('map', f'{text}=CLASS')}, or leave it out with "
                f"{spelled('missing', text)}",
                parameter="classes",
            )
        return same


NO_RULES = LabelRules()


@dataclass(frozen=True)
class Resolution:
    """Label -> class, None where it is missing; the same of gold labels; and what a user should know."""

    labels: dict[Any, Any]
    gold: dict[Any, Any]
    remarks: list[str]


def by_value(value: Any) -> str:
    """A label as text, the same for equal whole numbers and truth values, whatever they are written as.

    >>> by_value(1.0), by_value("1.0"), by_value("-0"), by_value(True), by_value("01"), by_value("1.10")
    ('1', '1', '0', 'true', '01', '1.10')
    """
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    text = str(value).strip()
    whole = _WHOLE.fullmatch(text)
    text = whole[1] if whole else text
    return "0" if text == "-0" else text


def alike(value: Any) -> Any:
    """Equal for values that differ only in case, blanks, punctuation or Unicode form; numbers by their value.

    >>> alike("Real-Estate ") == alike("real estate"), alike("1.0") == alike("1"), alike("-1") == alike("1")
    (True, True, False)
    >>> alike("A-") == alike("A"), alike("v1.0") == alike("v10"), alike("1e3") == alike("1000")
    (False, False, False)
    """
    if not isinstance(value, str):
        return value
    text = _visible(unicodedata.normalize("NFKC", value)).casefold().strip()
    text = _COMMA.sub(r"\1.\2", text) if _COMMA.fullmatch(text) else text
    return Decimal(text) if _NUMBER.fullmatch(text) else _bare(text)


def _visible(text: str, kept: str = "") -> str:
    """A text without characters that nobody sees: of width zero, for control, or marks of the direction of writing."""
    if text.isprintable():
        return text
    return "".join(one for one in text if one in kept or one.isspace() or unicodedata.category(one) not in _UNSEEN)


def _bare(text: str) -> str:
    bare = "".join(_MARKS.sub("", _BETWEEN.sub(" ", text)).split())
    return bare or "".join(text.split())


def resolved(
    rules: LabelRules, label: Column, gold: Column | None, *, sure: bool = True, checked: bool = False
) -> tuple[Column, Column | None, list[str]]:
    """Columns of labels and gold in one vocabulary, null where there is none; and remarks."""
    differ = gold is not None and decoded(gold.data).type != decoded(label.data).type
    if rules != NO_RULES or differ:  # which speak of labels as texts, as one of two columns may do
        label = _as_text(label)
        gold = None if gold is None else _as_text(gold)
    mine, truth = _plain(label), None if gold is None else _plain(gold)
    if mine is None or (gold is not None and truth is None):
        return label, gold, []  # of a type that no class can have: who encodes it says so
    found = rules.resolve(_counts(mine), {} if truth is None else _counts(truth), sure=sure, checked=checked)
    changed = _replaced(label, mine, found.labels)
    if gold is None or truth is None:
        return changed, gold, found.remarks
    told = _replaced(gold, truth, found.gold)
    if not is_text(mine.dictionary.type) and not is_text(truth.dictionary.type):
        changed, told = _of_one_kind(changed, told)
    return changed, told, found.remarks


def labelled(label: Column, *, clean: bool, listed: bool) -> tuple[Column, npt.NDArray[np.int64] | None, list[str]]:
    """A column of labels by the rules for files, its rows that have one (None for all), and remarks.

    ``listed``: the user names all classes, so that a label is read as it is spelled.
    """
    found, _, remarks = resolved(LabelRules(clean=clean), label, None)
    given = found.data.is_valid().to_numpy()
    if listed and not clean:
        found, remarks = label, []
    if given.all():
        return found, None, remarks
    rows = np.flatnonzero(given)
    return found.take(rows), rows, [f"left out: {count(len(given) - len(rows), 'rows')} without a label", *remarks]


def similar_ids(vocabulary: Vocabulary, what: str) -> str | None:
    """A remark on ids that differ only in case, blanks, unseen characters or Unicode form; None if there are none."""
    ids = vocabulary.ids
    if ids is None or not is_text(ids.type):
        return None
    simple = pc.utf8_normalize(pc.utf8_lower(ids.cast(pa.large_string())), "NFKC")
    unseen = r"[\p{Cf}\x00-\x08\x0e-\x1b\x7f]+"
    simple = pc.replace_substring_regex(simple, unseen, "")
    simple = pc.utf8_trim_whitespace(pc.replace_substring_regex(simple, r"\s+", " "))
    codes = simple.dictionary_encode().indices.to_numpy()
    sizes = np.bincount(codes) if len(codes) else np.empty(0, np.int64)
    groups = np.flatnonzero(sizes > 1)
    if not groups.size:
        return None
    names = ids.take(pa.array(np.flatnonzero(codes == groups[0]))).to_pylist()
    more = f", and {len(groups) - 1:,} more such groups" if len(groups) > 1 else ""
    return f"{what} {_and([repr(name) for name in names[:4]])} may be the same one{more}"


def _merged(found: Mapping[Any, Any], counts: Mapping[Any, int]) -> tuple[dict[Any, Any], list[str]]:
    """Similar labels under the most frequent of their spellings."""
    sizes: dict[Any, Counter[Any]] = {}
    for value, name in found.items():
        if name is not None:
            sizes.setdefault(alike(name), Counter())[name] += counts[value]
    best = {key: max(names, key=lambda name: (names[name], str(name))) for key, names in sizes.items()}
    best = {key: _tidy(name) if isinstance(name, str) else name for key, name in best.items()}
    remarks = [
        f"{_and([repr(name) for name in sorted(names, key=str)])} {'are' if len(names) > 1 else 'is'} read as {best[key]!r}"
        for key, names in sizes.items()
        if set(names) != {best[key]}
    ]
    return {value: None if name is None else best[alike(name)] for value, name in found.items()}, _some(remarks)


def _tidy(name: str) -> str:
    """A name with single blanks, and nothing that is not seen but what joins letters or emoji."""
    return " ".join(_visible(name, _JOINERS).split())


def _settled(found: dict[Any, Any], counts: Mapping[Any, int]) -> tuple[dict[Any, Any], list[str]]:
    """Whole numbers with and without a point under one name, and remarks on that and on blanks that were left out."""
    names = {name for name in found.values() if isinstance(name, str)}
    short = {name: by_value(name) for name in names}
    times = Counter(short.values())
    short = {name: number for name, number in short.items() if number != name and times[number] > 1}
    blanks = sum(
        counts[value] for value, name in found.items() if isinstance(value, str) and name == value.strip() != value
    )
    remarks = [f"blanks at the ends of {count(blanks, 'labels')} are left out"] if blanks else []
    if not all(re.fullmatch(r"-?\d+", by_value(name), re.ASCII) for name in names):  # else they are read as numbers
        remarks += _some([f"{name!r} is read as {number!r}" for name, number in sorted(short.items())])
    return {value: short.get(name, name) if isinstance(name, str) else name for value, name in found.items()}, remarks


def unified(counts: Mapping[str, int], *, clean: bool) -> tuple[dict[str, str], list[str]]:
    """The name of each spelling of the labels of several files, by the rules for one; and remarks."""
    found, remarks = _settled({text: text.strip() for text in counts}, counts)
    if clean:
        found, more = _merged(found, counts)
    else:
        more = _similar(found.values()) if len(counts) <= MOST else []
    return found, remarks + more


def settled_texts(texts: Sequence[str]) -> list[str]:
    """Distinct labels as they are counted: without blanks at their ends, and 1.0 as 1 where both occur.

    >>> settled_texts(["cat ", "cat", "1.0", "1", "2.0"])
    ['cat', 'cat', '1', '1', '2.0']
    """
    found, _ = _settled({text: text.strip() for text in texts}, Counter(texts))
    return [found[text] for text in texts]


def _groups(names: Iterable[Any]) -> dict[Any, list[Any]]:
    """Different names that are alike."""
    groups: dict[Any, list[Any]] = {}
    for name in dict.fromkeys(name for name in names if name is not None):
        groups.setdefault(alike(name), []).append(name)
    return groups


def _similar(names: Iterable[Any]) -> list[str]:
    remarks = [
        f"{_and([repr(name) for name in sorted(group, key=str)])} look like one class"
        for group in _groups(names).values()
        if len(group) > 1
    ]
    return [*_some(remarks[:-1]), f"{remarks[-1]} ({spelled('clean')} merges them)"] if remarks else []


def _of_one_meaning(names: Iterable[Any]) -> list[str]:
    """A remark on yes and true, or no and 0, where these are all the labels there are."""
    known = {by_value(name).casefold(): name for name in names if name is not None}
    if len(known) < 3 or not set(known) <= {word for words in ONE_MEANING for word in words}:
        return []
    remarks = []
    for words in ONE_MEANING:
        same = [known[word] for word in words if word in known]
        if len(same) > 1:
            renamed = spelled("map", f"{by_value(same[1])}={by_value(same[0])}")
            remarks.append(f"{_and([repr(name) for name in same])} may be one class ({renamed} merges two)")
    return remarks


def _stand_ins(found: Mapping[Any, Any], labels: Mapping[Any, int]) -> list[str]:
    """Remarks on classes that are probably no classes."""
    said = Counter[Any]()
    for value, times in labels.items():
        said[found[value]] += times
    suspects = [name for name in said if isinstance(name, str) and name.strip().casefold() in LIKELY_MISSING]
    return [
        f"{name!r} counts as a class, with {count(said[name], 'labels')} ({spelled('missing', shown(name))} leaves it out)"
        for name in suspects[:SHOWN]
        if len(said) > 2
    ]


def shown(name: str) -> str:
    """A value as it is typed after an option."""
    return name if re.fullmatch(r"[\w/.+-]+", name) else f'"{name}"'


def _like_labels(truths: dict[Any, Any], known: set[Any]) -> tuple[dict[Any, Any], list[str]]:
    """Gold labels that nobody chose, but that are spelled almost like a class, as that class."""
    classes, taken = _groups(known), {}
    for value, name in truths.items():
        same = classes.get(alike(name), []) if name is not None and name not in known else []
        taken[value] = same[0] if len(same) == 1 and type(same[0]) is type(name) else name
    changed = {truths[value]: name for value, name in taken.items() if name != truths[value]}
    return taken, _some([f"gold {old!r} is read as {new!r}" for old, new in changed.items()])


def _chosen_by_nobody(
    truths: Mapping[Any, Any], gold: Mapping[Any, int], known: set[Any], *, checked: bool
) -> list[str]:
    """Remarks on gold labels that are no label of the crowd; if ``checked``, an error where they are probably mistakes."""
    times = Counter[Any]()
    for value, name in truths.items():
        if name is not None:
            times[name] += gold[value]
    strange = [name for name in times if name not in known]
    if not strange or not known:
        return []
    comparable = any(isinstance(name, str) == isinstance(strange[0], str) for name in known)
    checked = checked and comparable  # else who encodes them says that the types differ
    if checked and len(strange) == len(times):
        raise AnnotationError(
            f"none of the gold labels (such as {strange[0]!r}) is among the labels, which are {_some_of(known)}; rename "
            f"them with {spelled('map', f'{strange[0]}=CLASS')}, or list all classes with {spelled('classes')}",
            parameter="gold",
        )
    for name in strange:
        meant = misspelt(name, known) if checked else None
        if meant is not None:
            raise AnnotationError(
                f"gold label {name!r} ({count(times[name], 'times')}) is none of the labels; did you mean {meant!r}? "
                f"Rename it with {spelled('map', f'{name}={meant}')}, or list all classes with {spelled('classes')}",
                parameter="gold",
            )
    return _some([f"nobody chose {name!r}, which is gold of {count(times[name], 'rows')}" for name in strange])


def misspelt(name: Any, known: Iterable[Any]) -> Any:
    """The one that a name differs from by a letter, or by two in a long name; None if there is none. Digits must agree.

    >>> misspelt("postive", ["positive", "negative"]), misspelt("male", ["female"]), misspelt("grade 4", ["grade 3"])
    ('positive', None, None)
    """
    if not isinstance(name, str):
        return None
    for other in sorted(one for one in known if isinstance(one, str)):
        shorter = min(len(name), len(other))
        most = 0 if shorter < 4 else 1 if shorter < 8 else 2
        if _DIGITS.findall(name) == _DIGITS.findall(other) and _edits(name.casefold(), other.casefold(), most) <= most:
            return other
    return None


def _edits(one: str, other: str, most: int) -> int:
    """How many letters are to be put in, left out, changed or swapped with the next; more than ``most`` is ``most + 1``."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, above, row = row, before, [i]
        for j, b in enumerate(other, start=1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                least = min(least, above[j - 2] + 1)
            row.append(least)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _some_of(names: Iterable[Any], limit: int = 8) -> str:
    """The first of some names, in order, for a message."""
    listed = sorted(names, key=str)
    return ", ".join(map(repr, listed[:limit])) + (", ..." if len(listed) > limit else "")


def _plain(column: Column) -> pa.DictionaryArray | None:
    """A column of text, numbers or booleans, encoded; NaN is null."""
    data = decoded(column.data)
    kind = data.type
    if not is_plain(kind):
        return None
    data = data.cast(pa.large_string()) if is_text(kind) else data
    if pa.types.is_floating(kind):
        data = pc.if_else(pc.is_nan(data), pa.scalar(None, kind), data)
    found = data.combine_chunks()
    found = pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
    return found.dictionary_encode()


def _of_one_kind(label: Column, gold: Column) -> tuple[Column, Column]:
    """Labels and gold, which were numbers, both as texts if new names have made texts of one of them."""
    if is_text(label.data.type) == is_text(gold.data.type):
        return label, gold
    return _spelt_by_value(label), _spelt_by_value(gold)


def _spelt_by_value(column: Column) -> Column:
    values = _plain(column)
    if values is None or is_text(column.data.type):
        return column
    texts = pa.array([by_value(value) for value in values.dictionary.to_pylist()], pa.large_string())
    return replace(column, data=pa.chunked_array([texts.take(values.indices)]))


def _as_text(column: Column) -> Column:
    """Labels that are dates, decimals or the like as texts; others as they are."""
    data = decoded(column.data)
    if is_plain(data.type) or pa.types.is_nested(data.type):
        return column
    try:
        return replace(column, data=data.cast(pa.large_string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column  # of a type that no class can have: who encodes it says so


def _counts(column: pa.DictionaryArray) -> dict[Any, int]:
    codes = column.indices.drop_null().to_numpy()
    times = np.bincount(codes, minlength=len(column.dictionary))
    return dict(zip(column.dictionary.to_pylist(), times.tolist(), strict=True))


def _replaced(column: Column, values: pa.DictionaryArray, names: Mapping[Any, Any]) -> Column:
    old = values.dictionary.to_pylist()
    new = [names[value] for value in old]
    if new == old:
        return replace(column, data=pa.chunked_array([values.dictionary.take(values.indices)]))
    made = _of_one_type(new, values.dictionary.type)
    return replace(column, data=pa.chunked_array([made.take(values.indices)]))


def _of_one_type(names: list[Any], kind: pa.DataType) -> pa.Array:
    """Names of classes as they were, where new ones fit in; else as texts."""
    texts = [name for name in names if isinstance(name, str)]
    if is_text(kind) or not texts:
        return pa.array(names, kind)
    try:
        renamed = dict(zip(texts, pa.array(texts, pa.large_string()).cast(kind).to_pylist(), strict=True))
        return pa.array([renamed.get(name, name) if isinstance(name, str) else name for name in names], kind)
    except pa.ArrowInvalid:
        return pa.array([None if name is None else by_value(name) for name in names], pa.large_string())


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some(remarks: list[str]) -> list[str]:
    """The first of many remarks of one kind, and how many more there are."""
    return remarks if len(remarks) <= SHOWN else [*remarks[:SHOWN], f"{len(remarks) - SHOWN:,} more of that kind"]
