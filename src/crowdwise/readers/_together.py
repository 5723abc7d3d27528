"""`read_together`: several files about the same instances -> one `Export`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.annotations import Annotations
from crowdwise.data.codes import cells, count
from crowdwise.data.factorise import Column, Vocabulary, encode_classes, id_texts
from crowdwise.data.label_rules import by_value, unified
from crowdwise.data.types import Array, Ints
from crowdwise.errors import AnnotationError, ConfigError, ReadError, spelled
from crowdwise.readers._collector import kinds_of, plain_column, without_repeats
from crowdwise.readers._export import MODEL, READERS, Export
from crowdwise.readers._read import AUTO, LAYOUTS, ROLES, Request, detected, kind_of, read
from crowdwise.readers.gold import with_gold
from crowdwise.readers.kinds import check_kinds

VOCABULARIES = {"instances": "instance_vocabulary", "annotators": "annotator_vocabulary", "classes": "class_vocabulary"}
TRUTH_VALUES = ("false", "true")


def read_together(paths: Sequence[str | os.PathLike[str]], format: str = AUTO, **options: Any) -> Export:
    """Read files of annotations of the same instances, such as the labels of people and the answers of models.

    Instances and annotators are matched by id; labels by value, numbers and truth values as such. ``format`` is that of the
    first file; the others are recognised. Options are those of `read`. One applies to every file of a kind that has such a
    thing: names of columns to tables, ``sheet`` to spreadsheets; what no file can use is an error. ``duplicates`` holds for the
    labels of all files together. The classes of all other files are looked for in what models said.
    """
    files = [Path(path) for path in paths]
    if not files:
        raise ConfigError("there are no files to read")
    if len(files) == 1:
        return read(files[0], format, **options)
    if len({file.resolve() for file in files}) < len(files):
        raise ConfigError("a file is named twice")
    request = Request.of(options)
    usable = _usable(files, options)
    options |= {"kinds": request.options.kinds}  # read once
    own = [{name: value for name, value in options.items() if name in names} for names in usable]
    formats = [
        format if not k and format != AUTO else detected(file, given)
        for k, (file, given) in enumerate(zip(files, own, strict=True))
    ]
    exports = _read_all(files, formats, own, options)
    check_kinds(request.options.kinds, chain.from_iterable(export.annotations.annotators for export in exports))
    answers = [READERS[name].answers for name in formats]
    merged = _Merged(files, exports, request)
    if request.options.duplicates == "share" or (request.shares and any(answers)):
        shared = [request.options.duplicates == "share" or answer for answer in answers]
        if merged.repeats_across(shared):  # what repeats within and across files shares one label
            own = [given | ({"duplicates": "keep"} if each else {}) for given, each in zip(own, shared, strict=True)]
            merged = _Merged(files, _read_all(files, formats, own, options), request)
            return _with_gold_table(merged.export(shared), request)
    return _with_gold_table(merged.export(None), request)


def _with_gold_table(export: Export, request: Request) -> Export:
    """With gold from a table of its own, if that is asked for."""
    if request.gold_file is None:
        return export
    named = replace(request.options, label=request.options.label or export.columns.get("label"))
    return with_gold(export, request.gold_file, named, request.gold_column)


def _usable(files: Sequence[Path], options: Mapping[str, Any]) -> list[set[str]]:
    """The options that each file can use, by its kind; one that none of them can is an error."""
    kinds = [kind_of(file) for file in files]
    usable = [{name for name in options if name not in LAYOUTS or kind in LAYOUTS[name]} for kind in kinds]
    for name, fitting in LAYOUTS.items():
        if options.get(name) is not None and not any(name in names for names in usable):
            raise ReadError(
                f"{spelled(name)} is for {', '.join(fitting)}, but the files are {', '.join(dict.fromkeys(kinds))}",
                parameter=name,
            )
    return usable


def _read_all(
    files: Sequence[Path], formats: Sequence[str], own: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> list[Export]:
    """All files; in what models said, classes of the others are looked for."""
    exports: dict[int, Export] = {}
    classes = options.get("classes")
    for answers in (False, True):
        known = classes
        if answers and classes is None and exports:
            read_so_far = [files[k] for k in exports]
            _, names, _ = _with_one_kind_of_labels(
                [one.annotations for one in exports.values()], read_so_far, clean=False
            )
            known = list(dict.fromkeys(name for each in names for name in each.values()))
        for k, (file, name) in enumerate(zip(files, formats, strict=True)):
            if READERS[name].answers == answers:
                given = {key: value for key, value in own[k].items() if key not in ROLES or key in READERS[name].takes}
                for table in ("gold", "gold_column") if Request.of(options).gold_file else ():
                    given.pop(table, None)  # read for all files at once
                if "gold" not in READERS[name].takes:
                    given.pop("gold_column", None)
                exports[k] = read(file, name, **{**given, "classes": known})
    return [exports[k] for k in range(len(files))]


class _Merged:
    """The annotations of several files in one vocabulary, a row for each, and what is known of them."""

    def __init__(self, files: Sequence[Path], exports: Sequence[Export], request: Request) -> None:
        self.files, self.exports, self.request = list(files), list(exports), request
        crowds = [export.annotations for export in exports]
        for role in ("instances", "annotators"):
            crowds = _with_one_kind_of_ids(crowds, role)
        rules = request.options.rules
        clean = rules.clean and rules.classes is None  # classes that are listed keep their names
        crowds, self.names, remarks = _with_one_kind_of_labels(crowds, self.files, clean=clean)
        told = [export.message for export in exports]
        self.remarks = [one for one in remarks if not any(one in message for message in told)]
        self.crowds = crowds
        self.all = _in_order(Annotations.concat(crowds), request.options.rules.classes)
        self.places = [self.all.instance_codes(one.instance_vocabulary.arrow) for one in crowds]
        self.people = [self.all.annotator_codes(one.annotator_vocabulary.arrow) for one in crowds]
        self.file_of = np.repeat(np.arange(len(crowds)), [len(one) for one in crowds])

    def repeats_across(self, shared: Sequence[bool]) -> bool:
        """Whether an annotator labels an instance in two of the files whose repeats share one label."""
        rows = np.flatnonzero(np.array(shared)[self.file_of])
        pairs = cells(self.all.instance, self.all.n_annotators, self.all.annotator)[rows]
        distinct, number = np.unique(pairs, return_inverse=True)
        first = np.full(len(distinct), len(self.files))
        last = np.full(len(distinct), -1)
        np.minimum.at(first, number, self.file_of[rows])
        np.maximum.at(last, number, self.file_of[rows])
        return bool((first < last).any())

    def export(self, shared: Sequence[bool] | None) -> Export:
        """Everything in one; of files that are ``shared``, the repeats of an annotator share one label."""
        self._check_instances()
        models = self._models()
        crowd, rows = self._without_repeats(shared)
        gold, dropped = self._gold()
        common = sum(np.bincount(np.concatenate([np.unique(place) for place in self.places])) == len(self.files))
        machines = "1 of them a model" if len(models) == 1 else f"{len(models)} of them models"
        together = (
            f"together: {count(len(crowd), 'annotations')} of {count(crowd.n_instances, 'instances')} by "
            f"{count(crowd.n_annotators, 'annotators')}, {machines}; {common:,} instances are in all files"
        )
        together += "".join(f"; {remark}" for remark in [*self._about_repeats(crowd), *dropped, *self.remarks])
        exports, size = self.exports, crowd.n_instances
        return replace(
            exports[0],
            annotations=crowd,
            gold=gold or None,
            n_rows=sum(export.n_rows for export in exports),
            message="\n".join([*(export.message for export in exports), together]),
            columns={role: name for export in reversed(exports) for role, name in export.columns.items()},
            question=next((export.question for export in exports if export.question is not None), None),
            control=next((export.control for export in exports if export.control is not None), None),
            kinds=kinds_of(crowd.n_annotators, models),
            timestamps=_rows([one.timestamps for one in exports], self.crowds, np.datetime64("NaT", "us"), rows),
            durations=_rows([one.durations for one in exports], self.crowds, np.nan, rows),
            confidences=_rows([one.confidences for one in exports], self.crowds, np.nan, rows),
            texts=_texts([one.texts for one in exports], self.places, size),
            pictures=_texts([one.pictures for one in exports], self.places, size),
            items=_of_instances([one.items for one in exports], self.places, size, {}),
            extra=_extra([one.extra for one in exports], self.crowds, rows),
        )

    def _check_instances(self) -> None:
        """Refuse a file that is about other instances."""
        ids = self.all.instance_vocabulary.arrow
        for file, place in zip(self.files[1:], self.places[1:], strict=True):
            if not np.isin(place, self.places[0]).any():
                raise ReadError(
                    f"{file}: none of its {count(len(place), 'instances')} (such as {ids[int(place[0])].as_py()!r}) is in "
                    f"{self.files[0].name}, whose instances are such as {ids[int(self.places[0][0])].as_py()!r}"
                )

    def _models(self) -> set[int]:
        """Codes of the annotators that are models; one that is a person elsewhere is an error."""
        models: set[int] = set()
        people: set[int] = set()
        for codes, export in zip(self.people, self.exports, strict=True):
            models.update(codes[export.kinds == MODEL].tolist())
            people.update(codes[export.kinds != MODEL].tolist())
        if models & people:
            both = self.all.annotator_vocabulary.arrow[min(models & people)].as_py()
            raise ReadError(f"annotator {both!r} is a person in one file and a model in another")
        return models

    def _without_repeats(self, shared: Sequence[bool] | None) -> tuple[Annotations, Ints | None]:
        """The annotations that the policy for repeats keeps, over all files, and their rows; None for all of them."""
        policy = self.request.options.duplicates
        if shared is None and policy == "share":  # none repeats in another file
            return self.all, None
        if shared is None:
            try:
                return without_repeats(self.all, policy, self._row_name)
            except AnnotationError as error:
                raise ReadError(str(error), parameter=error.parameter) from error
        ours = np.array(shared)[self.file_of]
        mine, rows = without_repeats(self.all.where(ours), "share", self._row_name)
        if rows is None:
            return self.all, None
        others = self.all.where(~ours)
        kept = np.concatenate([np.flatnonzero(ours)[rows], np.flatnonzero(~ours)])
        order = np.argsort(kept)
        joined = Annotations.concat([mine, others])
        weight = None if joined.weight is None else joined.weight[order]
        plain = self.all.where(np.isin(np.arange(len(self.all)), kept))
        return replace(plain, weight=weight), kept[order]

    def _row_name(self, row: int) -> str:
        """The file of a row, for messages."""
        return self.files[int(self.file_of[row])].name

    def _about_repeats(self, crowd: Annotations) -> list[str]:
        """What became of labels of the same instance by the same annotator in several files."""
        across = self.all.n_duplicates - sum(one.n_duplicates for one in self.crowds)
        if not across:
            return []
        if len(crowd) < len(self.all):
            return [f"dropped {count(len(self.all) - len(crowd), 'repeats')}"]
        return [f"kept {count(crowd.n_duplicates, 'repeats')}, {across:,} of them of labels in another file"]

    def _gold(self) -> tuple[dict[Any, Any], list[str]]:
        """Gold of all files; if files contradict each other, an error or, where nobody asked for gold, a remark."""
        found: dict[Any, tuple[Any, Path]] = {}
        contradicted = set()
        ids = self.all.instance_vocabulary.arrow.to_pylist()
        for file, export, names, place in zip(self.files, self.exports, self.names, self.places, strict=True):
            code = dict(zip(export.annotations.instance_vocabulary.arrow.to_pylist(), place.tolist(), strict=True))
            for instance, truth in (export.gold or {}).items():
                one, label = ids[code[instance]], names[truth]
                before, where = found.setdefault(one, (label, file))
                if before == label:
                    continue
                if self.request.options.gold is not None:
                    raise ReadError(
                        f"{file}: instance {one!r} has gold {label!r}, but {before!r} in {where.name}", parameter="gold"
                    )
                contradicted.add(one)
        gold = {one: label for one, (label, _) in found.items() if one not in contradicted}
        about = count(len(contradicted), "instances")
        return gold, [f"gold contradicts itself for {about} and is dropped there"] if contradicted else []


def _with_one_kind_of_ids(crowds: list[Annotations], role: str) -> list[Annotations]:
    """The same annotations with ids of one type: where they differ, all as text."""
    known: list[Vocabulary] = [getattr(crowd, VOCABULARIES[role]) for crowd in crowds]
    if len({vocabulary.arrow.type for vocabulary in known if vocabulary.size}) < 2:
        return crowds
    made = []
    for crowd, vocabulary in zip(crowds, known, strict=True):
        change: dict[str, Any] = {role: (_same_codes(vocabulary), Vocabulary.of(id_texts(vocabulary.arrow), role))}
        made.append(crowd.recoded(**change))
    return made


def _same_codes(vocabulary: Vocabulary) -> Ints:
    return np.arange(vocabulary.size, dtype=np.int32)


def _with_one_kind_of_labels(
    crowds: Sequence[Annotations], files: Sequence[Path], *, clean: bool
) -> tuple[list[Annotations], list[dict[Any, Any]], list[str]]:
    """The same annotations with labels of one type, by value; of every file, class -> its new name; and remarks."""
    old = [crowd.class_vocabulary.arrow for crowd in crowds]
    kinds = {array.type for array in old if len(array)}
    texts = [id_texts(array).to_pylist() for array in old]
    remarks: list[str] = []
    made: list[list[Any]]
    if all(map(_is_number, kinds)):
        whole = all(text.removeprefix("-").isdecimal() for each in texts for text in each)
        number = int if whole else float
        made = [[number(text) for text in each] for each in texts]
    elif kinds == {pa.bool_()}:
        made = [array.to_pylist() for array in old]
    elif pa.bool_() in kinds and all(text.lower() in TRUTH_VALUES for each in texts for text in each):
        made = [[text.lower() == "true" for text in each] for each in texts]
    else:
        _check_truth_values(texts, files)
        counts = Counter[str]()
        for crowd, names in zip(crowds, texts, strict=True):
            times = np.bincount(crowd.label, minlength=len(names)).tolist()
            counts.update(dict(zip(names, times, strict=True)))
        found, remarks = unified(counts, clean=clean)
        made = [[found[text] for text in each] for each in texts]
    recoded = [_renamed(crowd, names) for crowd, names in zip(crowds, made, strict=True)]
    renamed = [dict(zip(array.to_pylist(), names, strict=True)) for array, names in zip(old, made, strict=True)]
    return recoded, renamed, remarks


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _check_truth_values(texts: Sequence[Sequence[str]], files: Sequence[Path]) -> None:
    """Refuse true and false beside 0 and 1 in another file: they are probably the same classes."""
    by_kind = {
        kind: [
            file for file, names in zip(files, texts, strict=True) if names and {*map(str.lower, names)} <= {*values}
        ]
        for kind, values in (("words", TRUTH_VALUES), ("numbers", ("0", "1")))
    }
    if by_kind["words"] and by_kind["numbers"]:
        raise ReadError(
            f"{by_kind['numbers'][0]}: labels are 0 and 1, but true and false in {by_kind['words'][0].name}; make them the "
            f"same with {spelled('map', '1=true')} and {spelled('map', '0=false')}",
            parameter="map",
        )


def _renamed(crowd: Annotations, names: list[Any]) -> Annotations:
    """The annotations with other names of their classes; those with the same name become one."""
    distinct = list(dict.fromkeys(names))
    vocabulary = Vocabulary.of(distinct, "classes") if distinct else Vocabulary(0)
    if vocabulary.same_as(crowd.class_vocabulary):
        return crowd
    codes = np.array([distinct.index(name) for name in names], np.int32)
    return crowd.recoded(classes=(codes, vocabulary))


def _in_order(crowd: Annotations, listed: Sequence[str] | None) -> Annotations:
    """With classes in the order that the user lists, else in ascending order."""
    vocabulary = crowd.class_vocabulary
    rank, ascending = encode_classes(Column(pa.chunked_array([vocabulary.arrow]), "classes"), None)
    if listed is None or not vocabulary.size:
        return crowd if np.array_equal(rank, np.arange(len(rank))) else crowd.recoded(classes=(rank, ascending))
    texts = id_texts(vocabulary.arrow).to_pylist()
    places = [listed.index(text) if text in listed else len(listed) + code for code, text in enumerate(texts)]
    order = np.argsort(places, kind="stable")
    return crowd.recoded(classes=(np.argsort(order).astype(np.int32), vocabulary.subset(order)))


def _rows(arrays: list[Any], crowds: list[Annotations], missing: Any, rows: Ints | None) -> Any:
    """A detail of the annotations that are kept; None if no file has it."""
    if all(array is None for array in arrays):
        return None
    parts = [
        np.full(len(crowd), missing) if array is None else array for array, crowd in zip(arrays, crowds, strict=True)
    ]
    joined: Array = np.concatenate(parts)
    return joined if rows is None else joined[rows]


def _of_instances(columns: list[Any], places: list[Any], n: int, unknown: Any) -> tuple[Any, ...] | None:
    """Of every instance, what the first file says that says something; None if none does."""
    found = [unknown] * n
    for values, place in zip(columns, places, strict=True):
        for code, value in zip(place.tolist(), () if values is None else values, strict=False):
            if found[code] == unknown:
                found[code] = value
    return tuple(found) if any(value != unknown for value in found) else None


def _texts(columns: list[Any], places: list[Any], n: int) -> pa.Array | None:
    found = _of_instances([None if column is None else column.to_pylist() for column in columns], places, n, None)
    return None if found is None else pa.array(found, pa.large_string())


def _extra(tables: list[pa.Table | None], crowds: list[Annotations], rows: Ints | None) -> pa.Table | None:
    """The other columns of all files, a row for each annotation that is kept; empty where a file does not have one."""
    names = list(dict.fromkeys(name for table in tables if table is not None for name in table.column_names))
    if not names:
        return None
    joined = {}
    for name in names:
        parts = [
            pa.nulls(len(crowd)) if table is None or name not in table.column_names else table.column(name)
            for table, crowd in zip(tables, crowds, strict=True)
        ]
        kinds = {part.type for part in parts if part.null_count < len(part)}
        joined[name] = _one_column(parts, kinds)
    table = pa.table(joined)
    return table if rows is None else table.take(pa.array(rows))


def _one_column(parts: Sequence[pa.Array | pa.ChunkedArray], kinds: set[pa.DataType]) -> pa.ChunkedArray:
    """Parts of a column, as text where their types differ."""
    if len(kinds) > 1:
        return plain_column(
            [None if value is None else by_value(value) for part in parts for value in part.to_pylist()]
        )
    kind = next(iter(kinds), pa.null())
    chunks: list[pa.Array] = []
    for part in parts:
        cast = part.cast(kind)
        chunks += [cast] if isinstance(cast, pa.Array) else cast.chunks
    return pa.chunked_array(chunks, kind)
