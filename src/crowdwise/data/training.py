"""What a training run is given: instances matched with annotations, from a data set or from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import datasets, presets, simulate
from crowdwise.annotations import Annotations
from crowdwise.data.factorise import Vocabulary
from crowdwise.data.inputs import InputRows, read_inputs
from crowdwise.data.labelled import rows_of_export
from crowdwise.data.matching import POSITION, rows_by_id, rows_by_number, rows_in_order, with_sorted_annotators
from crowdwise.errors import ConfigError, DataError, spelled
from crowdwise.readers import Export, read


@dataclass(frozen=True)
class TrainingData:
    """Instances and annotations; the rest is for evaluation, and no method sees it. Class codes are positions."""

    message: str
    """What was read, a line for each file."""
    X: Any
    annotations: Annotations
    X_test: Any = None
    y_test: npt.NDArray[Any] | None = None
    y_train: npt.NDArray[Any] | None = None
    """True classes of a data set's training instances (n,); negative where unknown."""
    gold: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None
    """Rows of the training instances whose true class is known, and these classes."""
    crowd: simulate.SimulatedCrowd | None = None
    name: str = ""
    ids: npt.NDArray[Any] | None = None
    """Ids of the rows of X, where they have some."""


def from_dataset(
    options: Mapping[str, Any],
    *,
    simulated: Mapping[str, Any],
    annotations: str | None = None,
    reading: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> TrainingData:
    """A public data set with its own crowd, with that of a file of annotations, or with a simulated one.

    ``options`` are arguments of `datasets.load`, ``reading`` of `crowdwise.read`, ``simulated`` of `simulate.aidn`.
    """
    if "name" not in options:
        raise ConfigError(
            f"no data: pass {spelled('data', 'NAME')}, {spelled('annotations', 'FILE')} (with {spelled('inputs', 'FILE')}, or "
            "with texts of its own), or a preset that names data",
            parameter="data",
        )
    data = datasets.load(**options)
    if data.X_train is None:
        raise DataError(f"data set {data.name!r} has labels only: there are no instances to train a classifier on")
    crowd = None
    if annotations is not None:
        found = _of_dataset(read(annotations, **(reading or {}), details=False).annotations, data, annotations)
    elif simulated:
        crowd = simulated_crowd(data, {"random_state": seed} | dict(simulated))
        found = named(crowd.annotations, data.class_names)
    elif data.annotations is not None:
        found = named(data.annotations, data.class_names)
    else:
        preset = f", {spelled('preset', data.name)}" if data.name in presets.names() else ""
        raise ConfigError(
            f"data set {data.name!r} has no annotations: pass {spelled('annotations', 'FILE')} (`crowdwise simulate "
            f"{data.name}` makes one){preset}, or {spelled('settings', 'simulate.noise_rate=0.4')}",
            parameter="annotations",
        )
    sizes = f"{len(found):,} labels of {len(data.X_train):,} instances by {found.n_annotators:,} annotators"
    message = f"{data.name}: {sizes}{' (simulated)' if crowd is not None else ''}"
    return TrainingData(
        message, data.X_train, found, data.X_test, data.y_test, data.y_train, crowd=crowd, name=data.name
    )


def from_files(
    inputs: str | None,
    annotations: str,
    ids: str | None = None,
    reading: Mapping[str, Any] | None = None,
    *,
    text: str | None = None,
    image: str | None = None,
    root: str | None = None,
    expects: str = "",
    trained: Mapping[str, str] | None = None,
    as_they_appear: bool = False,
) -> TrainingData:
    """A file of annotations, in any format, and the instances it refers to.

    These are in ``inputs``, an array file, a table or a folder of pictures (see `read_inputs`), or without one in the file of
    annotations itself: its column ``text``, or that of pictures, ``image``, which lie below ``root``.

    Annotators are numbered by id, and rows that have ids are trained on in their order, so that the order of lines in the files
    changes nothing. ``as_they_appear``: as in the files, which is what earlier versions did. ``ids="position"``: the annotations
    list the rows in their order.
    """
    in_order = ids == POSITION
    export = read(annotations, **(reading or {}), details=inputs is None or Path(inputs).is_dir())
    columns = {"text": text, "image": image, "root": root}
    own_ids = None if in_order else ids
    instances = _matching_rows(export, Path(annotations), inputs, own_ids, columns, expects=expects, trained=trained)
    found = export.annotations if as_they_appear else with_sorted_annotators(export.annotations)
    what, where, n = Path(annotations).name, instances.path.name, instances.n
    if in_order:
        rows, known = rows_in_order(found, n), Vocabulary(n)
    elif instances.ids is None:
        rows, known = rows_by_number(found, n, what, where), Vocabulary(n)
    else:
        known = Vocabulary.of(instances.ids, "instances")
        rows = rows_by_id(found, known, what, where)
    gold = None
    if export.gold:
        at, truth = rows[found.instance_codes(list(export.gold))], np.array(list(export.gold.values()))
        gold = at[at >= 0], truth[at >= 0]
    return TrainingData(
        f"{instances.message}\n{export.message}",
        instances.X,
        found.recoded(instances=(rows, known)),
        gold=gold,
        name=Path(inputs or annotations).stem,
        ids=None if as_they_appear or in_order else instances.ids,
    )


def _matching_rows(
    export: Export, path: Path, inputs: str | None, ids: str | None, columns: dict[str, Any], **more: Any
) -> InputRows:
    """The instances of annotations that were read; ``columns`` and ``more`` are arguments of `read_inputs`."""
    if inputs is None:
        return rows_of_export(path, export, **columns)
    instances = read_inputs(inputs, ids, **columns, **more).called(export.annotations.instances)
    if Path(inputs).is_dir() and export.pictures is not None and instances.ids is not None:
        asked = set(map(str, export.annotations.instances.tolist()))
        if asked.isdisjoint(map(str, instances.ids.tolist())):  # the export has numbers, and says which file is whose
            return rows_of_export(path, export, image=columns["image"], root=inputs)
    return instances


def simulated_crowd(data: datasets.Dataset, options: Mapping[str, Any]) -> simulate.SimulatedCrowd:
    """An AIDN crowd for the training instances of a data set."""
    X, y = with_truth(data)
    return simulate.aidn(X, y, **({"n_classes": data.n_classes} | dict(options)))


def with_truth(data: datasets.Dataset) -> tuple[Any, npt.NDArray[Any]]:
    """The training instances of a data set and their true classes, for which a crowd can be simulated."""
    if data.X_train is None or data.y_train is None:
        raise DataError(f"data set {data.name!r} has no instances with known classes: no crowd can be simulated for it")
    return data.X_train, data.y_train


def named(annotations: Annotations, class_names: tuple[str, ...]) -> Annotations:
    """Simulated annotations with the names of the classes instead of their codes."""
    same = np.arange(annotations.n_classes)
    return annotations.recoded(classes=(same, Vocabulary.of(class_names, "classes")))


def _of_dataset(found: Annotations, data: datasets.Dataset, file: str) -> Annotations:
    """A file's annotations of a data set's training instances: rows by number, classes by name or by code."""
    what, n = Path(file).name, len(data.X_train)
    said = [str(value) for value in found.classes.tolist()]
    codes = [str(code) for code in range(data.n_classes)]
    known = next((names for names in (list(data.class_names), codes) if set(said) <= set(names)), None)
    if known is None:
        strange = next(value for value in said if value not in data.class_names)
        raise DataError(
            f"{what}: label {strange!r} is no class of data set {data.name!r}: its classes are "
            f"{', '.join(map(repr, data.class_names))} (or their codes 0..{data.n_classes - 1})"
        )
    rows = rows_by_number(found, n, what, f"the training part of {data.name!r}", certain=True)
    code = np.array([known.index(value) for value in said], dtype=np.int64)
    return found.recoded(instances=(rows, Vocabulary(n)), classes=(code, Vocabulary.of(data.class_names, "classes")))
