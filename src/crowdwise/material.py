"""What a training run is given, from a data set or from files, and what it is judged by afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import datasets, presets, simulate
from crowdwise.annotations import Annotations
from crowdwise.errors import ConfigError, DataError
from crowdwise.readers import TableRead, read, read_inputs, row_numbers, rows_of


@dataclass(frozen=True)
class Material:
    """Instances and annotations; the rest is for evaluation, and no method sees it. Class codes are positions."""

    message: str
    X: Any
    annotations: Annotations
    X_test: Any = None
    y_test: npt.NDArray[Any] | None = None
    gold: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None
    """Rows of the training instances whose true class is known, and these classes."""
    crowd: simulate.Crowd | None = None
    name: str = ""


def from_dataset(
    options: Mapping[str, Any],
    *,
    simulated: Mapping[str, Any],
    table: str | None = None,
    reading: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Material:
    """A public data set with its own crowd, with that of a file of annotations, or with a simulated one.

    ``reading`` are arguments of `crowdwise.read`, as in `from_files`.
    """
    data = load_dataset(options)
    if data.X_train is None:
        raise DataError(f"data set {data.name!r} has labels only: there are no instances to train a classifier on")
    crowd = None
    if table is not None:
        annotations = _of_dataset(read(table, **(reading or {}), details=False), data, table)
    elif simulated:
        crowd = simulated_crowd(data, {"random_state": seed} | dict(simulated))
        annotations = named(crowd.annotations, data.class_names)
    elif data.annotations is not None:
        annotations = data.annotations
    else:
        preset = f", --preset {data.name}" if data.name in presets.names() else ""
        raise ConfigError(
            f"data set {data.name!r} has no annotations: pass --annotations FILE (`crowdwise simulate {data.name}` "
            f"makes one){preset}, or --set simulate.noise_rate=0.4"
        )
    sizes = f"{len(annotations):,} labels of {len(data.X_train):,} instances by {annotations.n_annotators:,} annotators"
    message = f"{data.name}: {sizes}{' (simulated)' if crowd is not None else ''}"
    return Material(message, data.X_train, annotations, data.X_test, data.y_test, crowd=crowd, name=data.name)


def from_files(inputs: str, annotations: str, ids: str | None, reading: Mapping[str, Any] | None = None) -> Material:
    """Instances from an array file or a table, and a file of annotations, in any format, that refers to them."""
    instances = read_inputs(inputs, ids)
    export = read(annotations, **(reading or {}), details=False)
    rows = rows_of(export.annotations.instances, instances, Path(annotations).name)
    found = export.annotations
    crowd = Annotations.from_triples(
        rows[found.instance],
        found.annotator,
        found.label,
        n_instances=len(instances.X),
        instances=instances.ids,
        annotators=found.annotators,
        classes=found.classes,
    )
    gold = None
    if export.gold:
        at = rows[found.instance_codes(list(export.gold))]
        gold = at, np.array(list(export.gold.values()))
    return Material(f"{instances.message}\n{export.message}", instances.X, crowd, gold=gold, name=Path(inputs).stem)


def load_dataset(options: Mapping[str, Any]) -> datasets.Dataset:
    """`datasets.load` of the options in a preset's ``[data]``."""
    if "name" not in options:
        raise ConfigError(
            "no data: pass --data NAME, --inputs FILE with --annotations FILE, or a preset that names data"
        )
    return datasets.load(**options)


def simulated_crowd(data: datasets.Dataset, options: Mapping[str, Any]) -> simulate.Crowd:
    """An AIDN crowd for the training instances of a data set."""
    if data.X_train is None or data.y_train is None:
        raise DataError(f"data set {data.name!r} has no instances with known classes: no crowd can be simulated for it")
    return simulate.aidn(data.X_train, data.y_train, **({"n_classes": data.n_classes} | dict(options)))


def named(annotations: Annotations, class_names: tuple[str, ...]) -> Annotations:
    """Simulated annotations with the names of the classes instead of their codes."""
    return Annotations.from_triples(
        annotations.instance,
        annotations.annotator,
        annotations.label,
        n_instances=annotations.n_instances,
        n_annotators=annotations.n_annotators,
        classes=class_names,
    )


def _of_dataset(read: TableRead, data: datasets.Dataset, table: str) -> Annotations:
    """A table's annotations of a data set's training instances: rows by number, classes by name or by code."""
    found, what = read.annotations, Path(table).name
    said = [str(value) for value in found.classes.tolist()]
    codes = [str(code) for code in range(data.n_classes)]
    known = next((names for names in (list(data.class_names), codes) if set(said) <= set(names)), None)
    if known is None:
        strange = next(value for value in said if value not in data.class_names)
        raise DataError(
            f"{what}: label {strange!r} is no class of data set {data.name!r}: its classes are "
            f"{', '.join(map(repr, data.class_names))} (or their codes 0..{data.n_classes - 1})"
        )
    code = np.array([known.index(value) for value in said], dtype=np.int64)
    where = f"the training part of {data.name!r}"
    return Annotations.from_triples(
        row_numbers(found.instances, len(data.X_train), where, what)[found.instance],
        found.annotator,
        code[found.label],
        n_instances=len(data.X_train),
        annotators=found.annotators,
        classes=data.class_names,
    )
