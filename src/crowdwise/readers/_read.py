"""`read`: a file of any format that is known -> `Export`."""

from __future__ import annotations

import csv
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from crowdwise.annotations import Duplicates
from crowdwise.errors import AnnotationError, ConfigError, DataError, ReadError, check_choice, spelled
from crowdwise.readers._export import READERS, Export, Request, Several
from crowdwise.readers._source import Source

AUTO = "auto"
TABLE = "table"  # the format whose error tells best what is missing, where no format is told


def read(
    path: str | os.PathLike[str],
    format: str = AUTO,
    question: str | None = None,
    *,
    instance: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    gold: str | None = None,
    duplicates: Duplicates = "keep",
    several: Several = "error",
    models: bool = True,
    details: bool = True,
) -> Export:
    """Read a file of annotations: the export of an annotation tool, a table or a matrix.

    ``format`` is one of `crowdwise.readers.READERS`, or "auto", which tells the format by the content; the message of
    the result says what was found. ``question`` chooses one where an export has the answers to several.

    ``instance``, ``annotator``, ``label`` and ``gold`` name columns of formats that are tables. ``duplicates`` says
    what to do with repeated labels of an instance by the same annotator; ``several``, with annotations that hold more
    than one choice: refuse them, take the first, or skip them. ``models=False`` leaves out the labels that models gave;
    ``details=False``, what is not needed to aggregate: times, durations, texts and pictures.

    >>> import json, tempfile
    >>> record = {"text": "hi", "id": 1, "mood": "good", "annotator": 3, "annotation_id": 9, "lead_time": 4.2}
    >>> path = Path(tempfile.mkdtemp()) / "export.json"
    >>> _ = path.write_text(json.dumps([record]))
    >>> export = read(path)
    >>> export.format, export.annotations, export.durations, export.texts.to_pylist()
    ('label-studio', Annotations(1 instance, 1 annotator, 1 class, 1 annotation), array([4.2]), ['hi'])
    """
    path = Path(path)
    request = Request(question, instance, annotator, label, gold, duplicates, several, models, details)
    check_choice("several", several, Several)
    check_choice("duplicates", duplicates, Duplicates)
    if label is not None and question is not None:
        raise ConfigError(
            f"{spelled('label')} and {spelled('question')} both name what is answered; pass one of them",
            parameter="question",
        )
    if format != AUTO:
        _check_columns(format, request)
    try:
        source = Source(path)
        name, evidence = _detected(source, request) if format == AUTO else (format, "as asked for")
        export = READERS[name]().read(source, request)
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


def formats() -> dict[str, str]:
    """The formats that `read` knows, each in a few words."""
    return {name: READERS[name].summary for name in READERS}


def _named(request: Request) -> list[str]:
    return [role for role in ("instance", "annotator", "label", "gold") if getattr(request, role) is not None]


def _check_columns(name: str, request: Request) -> None:
    for role in _named(request):
        if role not in READERS[name].takes:
            raise ConfigError(
                f"{spelled(role)} names a column of a table, but format {name!r} knows where its fields are",
                parameter=role,
            )


def _detected(source: Source, request: Request) -> tuple[str, str]:
    """The format of a file, and what tells it."""
    found: dict[str, str] = {}
    readers = {name: READERS[name] for name in READERS if {*_named(request)} <= {*READERS[name].takes}}
    for rank in sorted({reader.rank for reader in readers.values()}):
        for name, reader in readers.items():
            evidence = reader().detect(source) if reader.rank == rank else None
            if evidence is not None:
                found[name] = evidence
        if len(found) > 1:
            both = ", ".join(f"{name} ({evidence})" for name, evidence in found.items())
            raise ReadError(
                f"the file could be of several formats: {both}; choose one with {spelled('format', 'NAME')}",
                parameter="format",
            )
        if found:
            return next(iter(found.items()))
    if source.kind in ("zip", "folder"):
        raise ReadError(f"the {source.kind} holds no export that is known; known formats: {', '.join(READERS)}")
    return TABLE, "nothing tells another format"
