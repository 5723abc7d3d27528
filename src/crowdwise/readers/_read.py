"""`read`: a file of any known format -> `Export`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.annotations import Duplicates
from crowdwise.constraints import check_value
from crowdwise.data.frames import is_frame
from crowdwise.data.label_rules import LabelRules
from crowdwise.errors import AnnotationError, ConfigError, DataError, ReadError, spelled
from crowdwise.readers._export import READERS, Export, ReadOptions, Several
from crowdwise.readers._files import DAMAGE, FORMATS, check_file
from crowdwise.readers._source import ARCHIVES, SHEET, STDIN, TEXT, InputFile, standard_input
from crowdwise.readers._text import Layout, bare_suffix
from crowdwise.readers.gold import with_gold
from crowdwise.readers.kinds import check_kinds, kinds_of_file

AUTO = "auto"
ROLES = ("instance", "annotator", "label", "gold", "weight")  # columns that a user may name
LAYOUTS = {"separator": TEXT, "sheet": (SHEET,), "columns": (*TEXT, SHEET), "encoding": (*TEXT, "json", "jsonl")}
"""Arguments that say how a file is written, and the kinds of file that have such a thing."""
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
    gold_column: str | None = None,
    weight: str | None = None,
    duplicates: Duplicates | None = None,
    several: Several = "error",
    models: bool = True,
    kinds: str | os.PathLike[str] | Mapping[str, str] | None = None,
    details: bool = True,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
    clean: bool = False,
    classes: Sequence[Any] | None = None,
    missing: Sequence[str] | str = (),
    map: Mapping[str, str] | None = None,
) -> Export:
    """Read a file of annotations: the export of an annotation tool, a table or a matrix; or a list of files.

    Several files are about the same instances, such as labels of people and answers of models: see `read_together`.

    ``format`` is one of `crowdwise.readers.READERS`, or "auto" to recognise it by content; the message of the result
    says what was found. ``question`` chooses one if the export has the answers to several.

    ``path`` may also be "-", standard input.

    ``instance``, ``annotator``, ``label``, ``gold`` and ``weight`` name columns of tables; ``gold`` may also be a file: a
    table of true classes, whose column of these ``gold_column`` names if its header is unusual. If you do not name the columns
    and no header is recognised, they are guessed by content; the message says so. ``columns`` names all columns of a file
    without a header. ``duplicates`` decides what happens to
    repeated labels of an instance by the same annotator: by default they are kept, but those of a model that was asked
    several times share one label ("share"). ``several`` is for annotations with more than one choice: an error, the first, or
    skip them. ``models=False`` leaves out labels given by models. ``kinds`` says who is one: a table with the columns annotator
    and kind (person or model), or a mapping; by default a column of the file says so, or the names of annotators, such as
    gpt-4o. ``details=False`` leaves out everything
    that aggregation does not need: times, durations, texts, pictures and other columns.

    ``encoding``, ``separator`` and ``sheet`` (of a spreadsheet) are found out if you do not say them.

    Labels that differ only in case, blanks, punctuation or Unicode form are reported; ``clean`` merges them.
    ``classes`` lists all classes: labels are matched with them likewise, and others are errors; in what
    models said they are looked for. ``missing`` lists
    labels that mean there is none, ``map`` new names of labels. Gold labels are treated alike. Annotations without a
    label are left out, and the message says how many.

    >>> import json, tempfile
    >>> record = {"text": "hi", "id": 1, "mood": "good", "annotator": 3, "annotation_id": 9, "lead_time": 4.2}
    >>> path = Path(tempfile.mkdtemp()) / "export.json"
    >>> _ = path.write_text(json.dumps([record]))
    >>> export = read(path)
    >>> export.format, export.annotations, export.durations, export.texts.to_pylist()
    ('label-studio', Annotations(1 instance, 1 annotator, 1 class, 1 annotation), array([4.2]), ['hi'])
    """
    given = {
        "question": question,
        "instance": instance,
        "annotator": annotator,
        "label": label,
        "gold": gold,
        "gold_column": gold_column,
        "weight": weight,
        "duplicates": duplicates,
        "several": several,
        "models": models,
        "kinds": kinds,
        "details": details,
        "columns": columns,
        "encoding": encoding,
        "separator": separator,
        "sheet": sheet,
        "clean": clean,
        "classes": classes,
        "missing": missing,
        "map": map,
    }
    if not isinstance(path, str | os.PathLike):
        from crowdwise.readers._together import read_together

        if is_frame(path):
            raise ConfigError("read takes the path of a file; a table in memory goes through Annotations.from_frame")
        return read_together(path, format, **given)
    request = Request.of(given)
    options = request.options
    if format != AUTO:
        _check_columns(format, options)
    if str(path) == STDIN:
        with standard_input() as piped:
            export = _read(piped, "standard input", format, request)
    else:
        export = _read(Path(path), str(path), format, request)
    if not isinstance(kinds, Mapping):
        check_kinds(options.kinds, export.annotations.annotators)
    if request.gold_file is None:
        return export
    with _naming(request.gold_file, str(request.gold_file)):
        return with_gold(export, request.gold_file, options, request.gold_column)


@dataclass(frozen=True)
class Request:
    """The arguments of `read`, checked."""

    layout: Layout
    options: ReadOptions
    shares: bool
    """Whether repeated answers of a model are one label, as they are unless the user says otherwise."""
    gold_file: Path | None
    gold_column: str | None
    """The column of gold in a table of its own."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Request:
        """From the arguments by name; those that are not there are as usual."""
        layout = Layout.of(*(given.get(name) for name in ("encoding", "separator", "columns", "sheet")))
        listed = _known(given.get("classes"))
        rules = LabelRules.of(given.get("clean", False), listed, given.get("missing") or (), given.get("map"))
        file, column = gold_file(given.get("gold"))
        named = given.get("gold_column")
        if named is not None and column is not None:
            both = f"{spelled('gold', column)} and {spelled('gold_column', named)}"
            raise ConfigError(f"{both} both name a column; pass only one of them", parameter="gold")
        duplicates = given.get("duplicates")
        options = ReadOptions(
            question=given.get("question"),
            instance=given.get("instance"),
            annotator=given.get("annotator"),
            label=given.get("label"),
            gold=named if file is None and column is None else column,
            duplicates="keep" if duplicates is None else duplicates,
            several=given.get("several", "error"),
            models=given.get("models", True),
            kinds=kinds_of_file(given.get("kinds")),
            details=given.get("details", True),
            rules=rules,
            weight=given.get("weight"),
            classes=listed,
        )
        check_value("several", options.several, Several)
        check_value("duplicates", options.duplicates, Duplicates)
        if options.label is not None and options.question is not None:
            raise ConfigError(
                f"{spelled('label')} and {spelled('question')} both choose what is read; pass only one of them",
                parameter="question",
            )
        return cls(layout, options, duplicates is None, file, None if file is None else named)


def _read(path: Path, shown: str, format: str, request: Request) -> Export:
    """Read a file; messages call it as the user does."""
    options = request.options
    with _naming(path, shown):
        source = InputFile(path, request.layout)
        _check_layout(source)
        name, evidence = _detected(source, options) if format == AUTO else (format, "as asked for")
        if READERS[name].answers:  # which holds no labels but those that are looked for
            options = replace(options, rules=replace(options.rules, classes=None))
            options = replace(options, duplicates="share") if request.shares else options
        export = READERS[name]().read(source, options)
    found = f"{Path(shown).name}: {name}"
    if format == AUTO:
        found += f", as {evidence} ({spelled('format', 'NAME')} reads it otherwise)"
    notes = f"{source.note}: " if source.note else ""
    message = f"{found}: {notes}{export.message}"
    return replace(export, format=name, message=message, layout=request.layout)


def gold_file(gold: str | None) -> tuple[Path | None, str | None]:
    """Gold from a table of its own, or from a column of the file."""
    if gold is None or "." not in str(gold) or bare_suffix(Path(gold)) not in FORMATS:
        return None, gold
    check_file(Path(gold))
    return Path(gold), None


def _check_layout(source: InputFile) -> None:
    """Refuse to be told what a kind of file does not have."""
    for name, kinds in LAYOUTS.items():
        if getattr(source.layout, name) is not None and source.kind not in kinds:
            raise ReadError(f"{spelled(name)} is for {', '.join(kinds)}, but this is {source.kind}", parameter=name)


def detected(path: Path, options: Mapping[str, Any]) -> str:
    """The format of a file, by its content; ``options`` are arguments of `read`."""
    request = Request.of(options)
    with _naming(path, str(path)):
        return _detected(InputFile(path, request.layout), request.options)[0]


def kind_of(path: Path) -> str:
    """The kind of a file, as in `InputFile.kind`."""
    with _naming(path, str(path)):
        return InputFile(path).kind


def recognised(path: Path, **named: str | None) -> tuple[str, str]:
    """The format of a file as `read` recognises it with ``named`` columns, and why."""
    with _naming(path, str(path)):
        return _detected(InputFile(path), ReadOptions(**named))  # type: ignore[arg-type]


@contextmanager
def _naming(path: Path, shown: str) -> Iterator[None]:
    """Errors name the file, as the user calls it."""
    try:
        yield
    except (AnnotationError, DataError) as error:
        message = str(error).removeprefix(f"{path}: ").replace(str(path), shown)
        message = message if message.startswith(shown) else f"{shown}: {message}"
        raise ReadError(message, parameter=error.parameter) from error
    except DAMAGE as error:
        raise ReadError(f"{shown}: cannot be read: {error}") from error


def formats() -> dict[str, str]:
    """The formats `read` knows, each in a few words."""
    return {name: READERS[name].summary for name in READERS}


def _named(options: ReadOptions) -> list[str]:
    return [role for role in ROLES if getattr(options, role) is not None]


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
