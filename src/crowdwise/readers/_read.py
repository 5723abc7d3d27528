"""`read`: a file of any known format -> `Export`."""

from __future__ import annotations

import csv
import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdwise.annotations import Duplicates
from crowdwise.constraints import check_value
from crowdwise.errors import AnnotationError, ConfigError, DataError, ReadError, spelled
from crowdwise.readers._export import READERS, Export, ReadOptions, Several
from crowdwise.readers._source import ARCHIVES, InputFile

AUTO = "auto"
TABLE = "table"  # if no format is recognised, the error of this one says best what is missing


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str = AUTO,
    question: str | None = None,
    *,
    instance: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    gold: str | None = None,
    weight: str | None = None,
    classes: Sequence[Any] | None = None,
    duplicates: Duplicates | None = None,
    several: Several = "error",
    models: bool = True,
    details: bool = True,
) -> Export:
    """Read a file of annotations: the export of an annotation tool, a table or a matrix; or a list of files.

    Several files are about the same instances, such as labels of people and answers of models: see `read_together`.

    ``format`` is one of `crowdwise.readers.READERS`, or "auto" to recognise it by content; the message of the result
    says what was found. ``question`` chooses one if the export has the answers to several.

    ``instance``, ``annotator``, ``label``, ``gold`` and ``weight`` name columns of tables. ``classes`` are looked for in what
    models said. ``duplicates`` decides what happens to repeated labels of an instance by the same annotator: by default they
    are kept, but those of a model that was asked several times share one label ("share"). ``several`` is for annotations with
    more than one choice: an error, the first, or skip them. ``models=False`` leaves out labels given by models;
    ``details=False``, everything that aggregation does not need: times, durations, texts and pictures.

    >>> import json, tempfile
    >>> record = {"text": "hi", "id": 1, "mood": "good", "annotator": 3, "annotation_id": 9, "lead_time": 4.2}
    >>> path = Path(tempfile.mkdtemp()) / "export.json"
    >>> _ = path.write_text(json.dumps([record]))
    >>> export = read(path)
    >>> export.format, export.annotations, export.durations, export.texts.to_pylist()
    ('label-studio', Annotations(1 instance, 1 annotator, 1 class, 1 annotation), array([4.2]), ['hi'])
    """
    if isinstance(path, list | tuple):
        from crowdwise.readers._together import read_together

        columns = {"instance": instance, "annotator": annotator, "label": label, "gold": gold, "weight": weight}
        rules: dict[str, Any] = {"duplicates": duplicates, "several": several, "models": models, "details": details}
        return read_together(path, format, question=question, classes=classes, **columns, **rules)
    path = Path(path)  # type: ignore[arg-type]
    repeats: Duplicates = "keep" if duplicates is None else duplicates
    options = ReadOptions(
        question, instance, annotator, label, gold, repeats, several, models, details, weight, _known(classes)
    )
    check_value("several", several, Several)
    check_value("duplicates", repeats, Duplicates)
    if label is not None and question is not None:
        raise ConfigError(
            f"{spelled('label')} and {spelled('question')} both choose what is read; pass only one of them",
            parameter="question",
        )
    if format != AUTO:
        _check_columns(format, options)
    try:
        source = InputFile(path)
        name, evidence = _detected(source, options) if format == AUTO else (format, "as asked for")
        if READERS[name].answers and duplicates is None:
            options = replace(options, duplicates="share")
        export = READERS[name]().read(source, options)
    except (AnnotationError, DataError) as error:
        message = str(error)
        message = message if message.startswith(str(path)) else f"{path}: {message}"
        raise ReadError(message, parameter=error.parameter) from error
    except (pa.ArrowException, csv.Error, OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{path}: cannot be read: {error}") from error
    found = f"{path.name}: {name}"
    if format == AUTO:
        found += f", as {evidence} ({spelled('format', 'NAME')} reads it otherwise)"
    return replace(export, format=name, message=f"{found}: {export.message}")


def detected(path: str | os.PathLike[str], **options: Any) -> str:
    """The format of a file, by its content."""
    path = Path(path)
    known = {
        key: value for key, value in options.items() if key in ("question", "label", "several", "models", "details")
    }
    try:
        return _detected(InputFile(path), ReadOptions(**known))[0]
    except (AnnotationError, DataError) as error:
        message = str(error)
        raise ReadError(
            message if message.startswith(str(path)) else f"{path}: {message}", parameter=error.parameter
        ) from error
    except (pa.ArrowException, csv.Error, OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{path}: cannot be read: {error}") from error


def formats() -> dict[str, str]:
    """The formats `read` knows, each in a few words."""
    return {name: READERS[name].summary for name in READERS}


def _named(options: ReadOptions) -> list[str]:
    roles = ("instance", "annotator", "label", "gold", "weight")
    return [role for role in roles if getattr(options, role) is not None]


def _known(classes: Sequence[Any] | None) -> list[Any] | None:
    """Classes as plain values; one name or none at all is an error."""
    if classes is None:
        return None
    if isinstance(classes, str) or not len(classes):
        raise ConfigError(f"classes must be a list of names, got {classes!r}", parameter="classes")
    return [one.item() if isinstance(one, np.generic) else one for one in classes]


def _check_columns(name: str, options: ReadOptions) -> None:
    for role in _named(options):
        if role not in READERS[name].takes:
            raise ConfigError(
                f"{spelled(role)} names a column of a table, but format {name!r} has fixed fields", parameter=role
            )


def _detected(source: InputFile, options: ReadOptions) -> tuple[str, str]:
    """The format of a file, and why."""
    named = set(_named(options))
    readers = {name: READERS[name] for name in READERS if source.kind in READERS[name].kinds}
    readers = {name: reader for name, reader in readers.items() if named <= {*reader.takes}}
    for rank in sorted({reader.rank for reader in readers.values()}):
        evidence = {name: reader().detect(source) for name, reader in readers.items() if reader.rank == rank}
        found = {name: why for name, why in evidence.items() if why is not None}
        if len(found) > 1:
            both = ", ".join(f"{name} ({why})" for name, why in found.items())
            raise ReadError(
                f"the file could be of several formats: {both}; choose one with {spelled('format', 'NAME')}",
                parameter="format",
            )
        if found:
            return next(iter(found.items()))
    if source.kind in ARCHIVES:
        raise ReadError(f"the {source.kind} holds no known export; known formats: {', '.join(READERS)}")
    return TABLE, "no other format is recognised"
