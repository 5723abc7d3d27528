"""`read_together`: several files about the same instances -> one `Export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.annotations import Annotations
from crowdwise.data.codes import count
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.label_rules import LabelRules
from crowdwise.errors import ConfigError, ReadError
from crowdwise.readers._collector import kinds_of
from crowdwise.readers._export import MODEL, READERS, Export, ReadOptions
from crowdwise.readers._read import AUTO, ROLES, detected, gold_file, read
from crowdwise.readers.gold import with_gold

VOCABULARIES = {"instances": "instance_vocabulary", "annotators": "annotator_vocabulary", "classes": "class_vocabulary"}


def read_together(paths: Sequence[str | os.PathLike[str]], format: str = AUTO, **options: Any) -> Export:
    """Read files of annotations of the same instances, such as the labels of people and the answers of models.

    Instances, annotators and classes are matched by id. ``format`` is that of the first file; the others are recognised.
    Options are those of `read`: names of columns apply to every file that has columns to name. The classes of all other
    files are looked for in what models said.
    """
    files = [Path(path) for path in paths]
    if not files:
        raise ConfigError("there are no files to read")
    if len(files) == 1:
        return read(files[0], format, **options)
    if len({file.resolve() for file in files}) < len(files):
        raise ConfigError("a file is named twice")
    names = [format if not k and format != AUTO else detected(file, **options) for k, file in enumerate(files)]
    exports: dict[int, Export] = {}
    classes = options.pop("classes", None)
    truths, options["gold"] = gold_file(options.get("gold"))
    for answers in (False, True):
        known = classes
        if answers and classes is None and exports:
            labels = _alike([one.annotations for one in exports.values()], "classes")
            known = list(dict.fromkeys(name for crowd in labels for name in crowd.class_vocabulary.arrow.to_pylist()))
        for k, (file, name) in enumerate(zip(files, names, strict=True)):
            if READERS[name].answers == answers:
                taken = {key: value for key, value in options.items() if key not in ROLES or key in READERS[name].takes}
                exports[k] = read(file, name, classes=known, **taken)
    merged = _merged(files, [exports[k] for k in range(len(files))])
    if truths is None:
        return merged
    rules = LabelRules.of(False, classes, options.get("missing", ()), options.get("map"))
    named = ReadOptions(instance=options.get("instance"), label=options.get("label"), rules=rules)
    return with_gold(merged, truths, named)


def _merged(files: list[Path], exports: list[Export]) -> Export:
    crowds = [export.annotations for export in exports]
    for role in VOCABULARIES:
        crowds = _alike(crowds, role)
    crowd = _sorted_classes(Annotations.concat(crowds))
    places = [crowd.instance_codes(one.instance_vocabulary.arrow) for one in crowds]
    for file, place in zip(files[1:], places[1:], strict=True):
        if not np.isin(place, places[0]).any():
            raise ReadError(
                f"{file}: none of its {len(place):,} instances (such as {crowd.instances[place[0]]!r}) is in {files[0].name}, "
                f"whose instances are such as {crowd.instances[places[0][0]]!r}"
            )
    who = [crowd.annotator_codes(one.annotator_vocabulary.arrow) for one in crowds]
    models, people = (
        {int(j) for codes, one in zip(who, exports, strict=True) for j in codes[(one.kinds == MODEL) == model]}
        for model in (True, False)
    )
    if models & people:
        both = crowd.annotator_vocabulary.arrow[min(models & people)].as_py()
        raise ReadError(f"annotator {both!r} is a person in one file and a model in another")
    common = sum(np.bincount(np.concatenate([np.unique(place) for place in places])) == len(files))
    machines = "1 of them a model" if len(models) == 1 else f"{len(models)} of them models"
    together = (
        f"together: {count(len(crowd), 'annotations')} of {count(crowd.n_instances, 'instances')} by "
        f"{count(crowd.n_annotators, 'annotators')}, {machines}; {common:,} instances are in all files"
    )
    gold = {key: value for one, export in zip(crowds, exports, strict=True) for key, value in _gold(one, export)}
    return replace(
        exports[0],
        annotations=crowd,
        gold=gold or None,
        n_rows=sum(export.n_rows for export in exports),
        message="\n".join([*(export.message for export in exports), together]),
        kinds=kinds_of(crowd.n_annotators, models),
        timestamps=_rows([one.timestamps for one in exports], crowds, np.datetime64("NaT", "us")),
        durations=_rows([one.durations for one in exports], crowds, np.nan),
        confidences=_rows([one.confidences for one in exports], crowds, np.nan),
        texts=_texts([one.texts for one in exports], places, crowd.n_instances),
        pictures=_texts([one.pictures for one in exports], places, crowd.n_instances),
        items=_of_instances([one.items for one in exports], places, crowd.n_instances, {}),
    )


def _alike(crowds: list[Annotations], role: str) -> list[Annotations]:
    """The same annotations with ids of one type: where they differ, all as text."""
    known: list[Vocabulary] = [getattr(crowd, VOCABULARIES[role]) for crowd in crowds]
    if len({vocabulary.arrow.type for vocabulary in known if vocabulary.size}) < 2:
        return crowds
    made = []
    for crowd, vocabulary in zip(crowds, known, strict=True):
        text = Vocabulary.of([str(one) for one in vocabulary.arrow.to_pylist()], role)
        change: dict[str, Any] = {role: (np.arange(vocabulary.size, dtype=np.int32), text)}
        made.append(crowd.recoded(**change))
    return made


def _sorted_classes(crowd: Annotations) -> Annotations:
    names = crowd.class_vocabulary.arrow.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    if order == list(range(len(names))):
        return crowd
    rank = np.argsort(order).astype(np.int32)
    return crowd.recoded(classes=(rank, Vocabulary.of([names[k] for k in order], "classes")))


def _gold(crowd: Annotations, export: Export) -> list[tuple[Any, Any]]:
    """Gold in the ids of the merged crowd."""
    if not export.gold:
        return []
    own, new = export.annotations, crowd
    ids = dict(zip(own.instance_vocabulary.arrow.to_pylist(), new.instance_vocabulary.arrow.to_pylist(), strict=True))
    names = dict(zip(own.class_vocabulary.arrow.to_pylist(), new.class_vocabulary.arrow.to_pylist(), strict=True))
    return [(ids[key], names.get(value, value)) for key, value in export.gold.items() if key in ids]


def _rows(arrays: list[Any], crowds: list[Annotations], missing: Any) -> Any:
    if all(array is None for array in arrays):
        return None
    parts = [
        np.full(len(crowd), missing) if array is None else array for array, crowd in zip(arrays, crowds, strict=True)
    ]
    return np.concatenate(parts)


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
