"""The vocabulary of labels: what is missing, renamed, merged or refused, and what looks alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdwise.data.codes import count
from crowdwise.data.factorise import Column, Vocabulary, decoded, is_blank, is_plain, is_text
from crowdwise.data.frames import close_to
from crowdwise.errors import AnnotationError, ConfigError, spelled

LIKELY_MISSING = {"n/a", "na", "nan", "none", "null", "-", "--", "?", "#n/a", "n.a.", "missing", "<na>"}
SHOWN = 3  # groups of similar values in a message
MOST = 500  # distinct labels among which similar ones are looked for
_BETWEEN = re.compile(r"(?<=[^\W\d])[-‐-―_/]+(?=\w)|(?<=\w)[-‐-―_/]+(?=[^\W\d])")
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

    def resolve(self, labels: Mapping[Any, int], gold: Mapping[Any, int], *, sure: bool = True) -> Resolution:
        """The class that each label, and each gold label, stands for; both are given with their counts.

        ``sure``: gold is what the user calls so, and must be among the classes, not a column that merely looks like it.
        """
        counts: Counter[Any] = Counter(labels)
        counts.update(gold)
        found: dict[Any, Any] = {value: self._named(value) for value in counts}
        remarks = [f"no label is {old!r}" for old in self.map if old not in {str(value).strip() for value in counts}]
        if self.classes is not None:
            found = {
                value: name if name is None else self._listed(name, counts[value], sure or value in labels)
                for value, name in found.items()
            }
        elif self.clean:
            found, merged = _merged(found, counts)
            remarks += merged
        elif len(labels) <= MOST:
            remarks += _similar(found[value] for value in labels)
        truths = {value: found[value] for value in gold}
        if self.classes is None and len(labels) <= MOST:
            truths, read_as = _like_labels(truths, {found[value] for value in labels})
            remarks += [*_stand_ins(found, labels), *read_as]
        return Resolution({value: found[value] for value in labels}, truths, remarks)

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
        """A label under its new name; None for one that is missing."""
        text = str(value).strip()
        if is_blank(value) or text.casefold() in self.missing:
            return None
        return self.map.get(text, value)

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


def alike(value: Any) -> Any:
    """Equal for values that differ only in case, blanks, punctuation or Unicode form; numbers by their value.

    >>> alike("Real-Estate ") == alike("real estate"), alike("1.0") == alike("1"), alike("-1") == alike("1")
    (True, True, False)
    >>> alike("A-") == alike("A"), alike("v1.0") == alike("v10")
    (False, False)
    """
    if not isinstance(value, str):
        return value
    text = unicodedata.normalize("NFKC", value).casefold().strip()
    try:
        return float(text) if text[:1] in "+-.0123456789" else _bare(text)
    except ValueError:
        return _bare(text)


def _number(value: Any) -> bool:
    """Whether a label is a number: 1.0 and 1 are made one where numbers are read, without a word."""
    return not isinstance(alike(value), str)


def _bare(text: str) -> str:
    bare = "".join(_MARKS.sub("", _BETWEEN.sub(" ", text)).split())
    return bare or "".join(text.split())


def resolved(
    rules: LabelRules, label: Column, gold: Column | None, *, sure: bool = True
) -> tuple[Column, Column | None, list[str]]:
    """Columns of labels and gold in one vocabulary, null where there is none; and remarks."""
    mine, truth = _plain(label), None if gold is None else _plain(gold)
    if mine is None or (gold is not None and truth is None):
        return label, gold, []  # of a type that no class can have: who encodes it says so
    found = rules.resolve(_counts(mine), {} if truth is None else _counts(truth), sure=sure)
    changed = _replaced(label, mine, found.labels)
    return changed, gold if gold is None or truth is None else _replaced(gold, truth, found.gold), found.remarks


def similar_ids(vocabulary: Vocabulary, what: str) -> str | None:
    """A remark on ids that differ only in case, blanks or Unicode form; None if there are none."""
    ids = vocabulary.ids
    if ids is None or not is_text(ids.type):
        return None
    simple = pc.utf8_normalize(pc.utf8_lower(ids.cast(pa.large_string())), "NFKC")
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
    best = {key: " ".join(name.split()) if isinstance(name, str) else name for key, name in best.items()}
    remarks = [
        f"{_and([repr(name) for name in sorted(names, key=str)])} {'are' if len(names) > 1 else 'is'} read as {best[key]!r}"
        for key, names in sizes.items()
        if set(names) != {best[key]}
    ]
    return {value: None if name is None else best[alike(name)] for value, name in found.items()}, _some(remarks)


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
        if len(group) > 1 and not _number(group[0])
    ]
    return [*_some(remarks[:-1]), f"{remarks[-1]} ({spelled('clean')} merges them)"] if remarks else []


def _stand_ins(found: Mapping[Any, Any], labels: Mapping[Any, int]) -> list[str]:
    """Remarks on classes that are probably no classes."""
    said = Counter[Any]()
    for value, times in labels.items():
        said[found[value]] += times
    suspects = [name for name in said if isinstance(name, str) and name.strip().casefold() in LIKELY_MISSING]
    return [
        f"{name!r} counts as a class, with {said[name]:,} labels ({spelled('missing', shown(name))} leaves it out)"
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
    changed = {truths[value]: name for value, name in taken.items() if name != truths[value] and not _number(name)}
    return taken, _some([f"gold {old!r} is read as {new!r}" for old, new in changed.items()])


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


def _counts(column: pa.DictionaryArray) -> dict[Any, int]:
    codes = column.indices.drop_null().to_numpy()
    times = np.bincount(codes, minlength=len(column.dictionary))
    return dict(zip(column.dictionary.to_pylist(), times.tolist(), strict=True))


def _replaced(column: Column, values: pa.DictionaryArray, names: Mapping[Any, Any]) -> Column:
    old = values.dictionary.to_pylist()
    new = [names[value] for value in old]
    if new == old:
        return replace(column, data=pa.chunked_array([values.dictionary.take(values.indices)]))
    if len({type(name) for name in new if name is not None}) > 1:
        new = [None if name is None else str(name) for name in new]
    kind = None if any(name is not None for name in new) else values.dictionary.type
    return replace(column, data=pa.chunked_array([pa.array(new, kind).take(values.indices)]))


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some(remarks: list[str]) -> list[str]:
    """The first of many remarks of one kind, and how many more there are."""
    return remarks if len(remarks) <= SHOWN else [*remarks[:SHOWN], f"{len(remarks) - SHOWN:,} more of that kind"]
