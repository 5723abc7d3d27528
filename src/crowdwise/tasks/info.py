"""What runs, models, tables and arrays hold, and what the names of methods, aggregators, formats, ... stand for."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crowdwise import datasets, presets
from crowdwise.data.inputs import ARRAYS, read_arrays
from crowdwise.encoders import ENCODERS
from crowdwise.errors import (
    ConfigError,
    CrowdwiseError,
    DataError,
    DatasetError,
    ModelFileError,
    ReadError,
    UsageError,
    spelled,
    suggest,
)
from crowdwise.readers import READERS, Export, load_columns, read
from crowdwise.readers.write import WRITTEN
from crowdwise.registry import AGGREGATORS, METHODS
from crowdwise.tasks.reading import Reading, about
from crowdwise.tasks.runs import RESULTS, RUN, finished, is_run, read_history, read_run, result_facts, resumable


@dataclass(frozen=True)
class Description:
    """What something is, in words."""

    title: str
    facts: dict[str, str | None] = field(default_factory=dict)
    run: Path | None = None
    """The folder of a training run; then also ``state``, ``history`` and, where it is finished, ``results``."""
    state: Literal["finished", "resumable", "python"] | None = None
    """A run that is not finished goes on by itself, or was started from Python."""
    history: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, str | None] = field(default_factory=dict)
    method: str | None = None
    """The name of a method or aggregator; then ``parameters`` are name, default and meaning of each."""
    parameters: list[tuple[str, Any, str]] = field(default_factory=list)
    warning: str | None = None
    family: str | None = None
    """What a name stands for, as in `FAMILIES`."""
    data: dict[str, Any] | None = None
    """The facts about a file of annotations, for programs."""


FAMILIES: dict[str, Callable[[], Iterable[str]]] = {
    "method": lambda: METHODS,
    "aggregator": lambda: AGGREGATORS,
    "encoder": lambda: ENCODERS,
    "format": lambda: READERS,
    "data set": datasets.names,
    "preset": presets.names,
}
"""Families of names -> all of their names."""


def known_names(family: str | None = None) -> list[str]:
    """The names of a family, or of all."""
    return sorted({name for each in ([family] if family else FAMILIES) for name in FAMILIES[each]()})


def describe(what: str | Path, reading: Reading | None = None) -> list[Description]:
    """What a path holds or a name stands for; a path that exists goes before a name.

    ``reading`` says how a file of annotations is read.
    """
    path, name = Path(what), str(what)
    if path.is_file():
        return [_file(path, reading or {})]
    if reading:
        raise UsageError(
            f"{spelled(next(iter(reading)))} says how a file is read, and {name} is none",
            parameter=next(iter(reading)),
        )
    if path.is_dir():
        return [_directory(path)]
    members: dict[str, Any] = {"method": METHODS, "aggregator": AGGREGATORS, "encoder": ENCODERS}
    found = [_member(known[name], name, family) for family, known in members.items() if name in known]
    if name in READERS:
        found.append(_format(name))
    if name in presets.names():
        found.append(_preset(presets.load_preset(name)))
    if name in datasets.names():
        found.append(_dataset(name, alone=not found))
    if not found:
        hint, families = suggest(name, known_names()), list(FAMILIES)
        raise ConfigError(
            f"there is no file or directory {name}, nor a {', '.join(families[:-1])} or {families[-1]} of that name"
            f"{hint if 'did you mean' in hint else ''}"
        )
    return found


def _directory(path: Path) -> Description:
    from crowdwise.methods.core.files import MODEL_JSON

    try:
        if (path / MODEL_JSON).exists():
            return _model(path)
        if is_run(path):
            return _run(path)
    except CrowdwiseError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    raise DataError(f"{path} is neither a run directory (it has no {RUN}) nor a model (no {MODEL_JSON})")


def _run(path: Path) -> Description:
    from crowdwise.storage.documents import read_json

    run, started, ended = read_run(path), (path / RUN).exists(), finished(path)
    sizes = "{instances:,} instances, {annotators:,} annotators, {classes} classes"
    return Description(
        f"run {path}",
        {
            "method": run["method"],
            "state": "finished" if ended else "not finished" if started else "not started",
            "data": sizes.format(**run["data"]) if started else None,
            "parameters": _changed(run),
        },
        run=path,
        state="finished" if ended else "resumable" if resumable(path) else "python",
        history=read_history(path),
        results=result_facts(read_json(path / RESULTS)) if ended and (path / RESULTS).exists() else {},
    )


def _model(path: Path) -> Description:
    from crowdwise.methods.core.files import load_model

    _, about = load_model(path)
    return Description(
        f"model {path}",
        {
            "method": about["method"],
            "written by": f"crowdwise {about['crowdwise']}",
            "inputs": _shape(about["prepare"]["shape"]),
            "classes": _some(about["classes"]),
            "annotators": _some(about["annotators"]),
            "parameters": _changed(about),
            "files": "checksums match",
        },
    )


def _file(path: Path, reading: Reading) -> Description:
    if path.suffix.lower() in ARRAYS:
        sizes = {name: f"{_shape(each.shape) or 'one value'} {each.dtype}" for name, each in read_arrays(path).items()}
        return Description(f"{path.suffix[1:]} file {path}", {name or "array": size for name, size in sizes.items()})
    if path.suffix.lower() == ".toml":
        return _preset(presets.load_preset(path))
    try:
        export = read(path, **reading)
    except ReadError as error:
        try:
            columns = load_columns(path, lambda names: names)
        except DataError:
            raise error from None
        facts = {"rows": f"{len(next(iter(columns.values()))):,}", "columns": ", ".join(columns)}
        return Description(f"table {path}", facts, warning=f"not a table of annotations: {error}")  # type: ignore[arg-type]
    return _annotations(path, export)


def _annotations(path: Path, export: Export) -> Description:
    crowd = export.annotations
    votes = crowd.votes()
    unanimous = float(np.mean(votes.max(1) == votes.sum(1)))
    repeats = f"{crowd.n_duplicates:,} of the same instance by the same annotator"
    return Description(
        f"annotations {path}",
        {
            "format": export.format,
            "question": export.question,
            "rows": f"{export.n_rows:,}",
            "columns": ", ".join(f"{role} = {column!r}" for role, column in export.columns.items()) or None,
            "instances": f"{crowd.n_instances:,}, {_spread(crowd.labels_per_instance)} labels each",
            "annotators": f"{crowd.n_annotators:,}, {_spread(crowd.labels_per_annotator)} labels each",
            "classes": _some(crowd.classes.tolist()),
            "unanimous": f"{100 * unanimous:.1f} % of the instances",
            "repeats": repeats if crowd.n_duplicates else None,
            "gold": None if export.gold is None else f"{len(export.gold):,} instances",
            "other columns": None if export.extra is None else ", ".join(export.extra.column_names),
            "note": export.message,
        },
        data=about(export),
    )


def _preset(preset: presets.Preset) -> Description:
    tables = {name: _values(getattr(preset, name)) for name in ("data", "simulate", "parameters")}
    methods = {f"for {name}": _values(values) for name, values in preset.methods.items()}
    return Description(f"preset {preset.name}", {"description": preset.description or None} | tables | methods)


def _dataset(name: str, *, alone: bool) -> Description:
    try:
        return Description(repr(datasets.load(name)))
    except DatasetError as error:
        if alone:
            raise
        return Description("", warning=str(error))


def _member(member: Any, name: str, family: str) -> Description:
    """A method, an aggregator or an encoder, with its parameters."""
    parameters: list[tuple[str, Any, str]] = []
    if isinstance(member, type) and dataclasses.is_dataclass(member):
        meaning = explained(member)
        own = [each for each in dataclasses.fields(member) if each.init]
        parameters = [(each.name, each.default, meaning.get(each.name, "")) for each in own]
    summary = " ".join((member.__doc__ or name).split("\n\n")[0].split()).replace("``", "")
    return Description(summary, method=name, parameters=parameters, family=family)


def _format(name: str) -> Description:
    """A format that is read, and perhaps written."""
    reader = READERS[name]
    summary = " ".join((reader.__doc__ or "").split("\n\n")[0].split())
    facts = {
        "what": reader.summary,
        "files": ", ".join(reader.kinds),
        "columns you may name": ", ".join(reader.takes) or None,
        "written": "yes" if name in WRITTEN else "no",
    }
    return Description(f"format {name}: {summary}", facts, method=name, family="format")


def explained(method: type) -> dict[str, str]:
    """What stands below each parameter where it is defined, in the method or in a class that it builds on."""
    found: dict[str, str] = {}
    for each in reversed(method.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        for parameter, text in pairwise(ast.walk(ast.parse(inspect.getsource(each)))):
            match parameter, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                    found[name] = " ".join(words.split()).replace("``", "")
    return found


def _changed(about: Mapping[str, Any]) -> str | None:
    """The parameters of a run or model that are not the defaults of its method."""
    defaults = {}
    if about["method"] in METHODS:
        defaults = {each.name: each.default for each in dataclasses.fields(METHODS[about["method"]])}
    given = about["parameters"].items()
    return _values(
        {key: value for key, value in given if json.dumps(value) != json.dumps(defaults.get(key, ...), default=str)}
    )


def _values(settings: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()) or None


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def _some(values: list[Any]) -> str:
    """How many there are, and the first of them."""
    return f"{len(values):,}: {', '.join(map(str, values[:10]))}{', ...' if len(values) > 10 else ''}"


def _spread(counts: Any) -> str:
    """Fewest to most, and the mean."""
    if not len(counts):
        return "0"
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (mean {float(counts.mean()):.1f})"
