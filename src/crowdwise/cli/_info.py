"""`crowdwise info`: what runs, models, tables, arrays, presets, data sets and methods are."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import datasets, presets
from crowdwise.cli import _training
from crowdwise.cli._console import complain, say, show_facts, show_table
from crowdwise.engine.checkpoint import read_json
from crowdwise.errors import ConfigError, CrowdwiseError, DataError, DatasetError, ModelFileError, ReadError, suggest
from crowdwise.methods.core.files import MODEL_JSON, load_model
from crowdwise.readers import ARRAYS, read_arrays
from crowdwise.readers import read as read_export
from crowdwise.registry import METHODS


def describe(what: str) -> None:
    """Print what a path holds or a name stands for; a path that exists goes before a name."""
    path = Path(what)
    if path.is_dir():
        return _directory(path)
    if path.is_file():
        return _file(path)
    known = {*presets.names(), *datasets.names(), *METHODS}
    if what not in known:
        raise ConfigError(
            f"there is no file or directory {what}, nor a preset, data set or method of that name{_close(what, known)}"
        )
    if what in METHODS:
        _method(what)
    if what in presets.names():
        _preset(presets.load_preset(what))
    if what in datasets.names():
        _dataset(what, alone=what not in presets.names())
    return None


def _directory(path: Path) -> None:
    try:
        if (path / MODEL_JSON).exists():
            return _model(path)
        if (path / "run.json").exists() or (path / _training.INVOCATION).exists():
            return _run(path)
    except CrowdwiseError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    raise DataError(f"{path} is neither a run directory (it has no run.json) nor a model (no {MODEL_JSON})")


def _run(path: Path) -> None:
    started, finished = (path / "run.json").exists(), _training.finished(path)
    run: dict[str, Any] = read_json(path / "run.json") if started else read_json(path / _training.INVOCATION)
    if not isinstance(run, dict) or not {"method", "parameters", "data"} <= set(run):
        raise ModelFileError(
            f"{path}: run.json or {_training.INVOCATION} is damaged: method, parameters or data are missing"
        )
    state = "finished" if finished else "not finished" if started else "not started"
    history = _training.read_history(path / "metrics.jsonl")
    size = (
        "{instances:,} instances, {annotators:,} annotators, {classes} classes".format(**run["data"])
        if started
        else None
    )
    show_facts(
        f"run {path}",
        {"method": run["method"], "state": state, "data": size, "parameters": _changed(run)},
    )
    if history:
        rows = _training.stages_table(history)
        show_table("Stages", _training.STAGE_COLUMNS, rows, right=_training.STAGE_COLUMNS[1:])
    if finished and (path / _training.RESULTS).exists():
        show_facts("results", _training.result_facts(read_json(path / _training.RESULTS)))
    if finished:
        say(f"predict with  crowdwise predict {shlex.quote(str(path))} INPUTS")
    elif (path / _training.INVOCATION).exists():
        say(f"go on with  crowdwise train --resume {shlex.quote(str(path))}")
    else:
        say(f"started from Python: go on with fit(X, annotations, resume={str(path)!r})")


def _model(path: Path) -> None:
    _, about = load_model(path)
    classes, annotators = about["classes"], about["annotators"]
    show_facts(
        f"model {path}",
        {
            "method": about["method"],
            "written by": f"crowdwise {about['crowdwise']}",
            "inputs": " x ".join(map(str, about["prepare"]["shape"])),
            "classes": f"{len(classes):,}: {_some(classes)}",
            "annotators": f"{len(annotators):,}: {_some(annotators)}",
            "parameters": _changed(about),
            "files": "checksums match",
        },
    )


def _file(path: Path) -> None:
    if path.suffix.lower() in ARRAYS:
        facts = {
            name or "array": f"{' x '.join(map(str, array.shape)) or 'one value'} {array.dtype}"
            for name, array in read_arrays(path).items()
        }
        return show_facts(f"{path.suffix[1:]} file {path}", facts)
    if path.suffix.lower() == ".toml":
        return _preset(presets.load_preset(path))
    return _table(path)


def _table(path: Path) -> None:
    try:
        read = read_export(path, details=False)
    except ReadError as error:
        from crowdwise.readers import load_columns

        try:
            columns = load_columns(path, lambda names: names)
        except DataError:
            raise error from None
        show_facts(f"table {path}", {"rows": f"{len(next(iter(columns.values()))):,}", "columns": ", ".join(columns)})
        complain("warning", f"not a table of annotations: {error}")
        return
    crowd = read.annotations
    votes = crowd.votes()
    unanimous = float(np.mean(votes.max(1) == votes.sum(1)))
    show_facts(
        f"annotations {path}",
        {
            "format": read.format,
            "question": read.question,
            "rows": f"{read.n_rows:,}",
            "columns": ", ".join(f"{role} = {column!r}" for role, column in read.columns.items()) or None,
            "instances": f"{crowd.n_instances:,}, {_spread(crowd.labels_per_instance)} labels each",
            "annotators": f"{crowd.n_annotators:,}, {_spread(crowd.labels_per_annotator)} labels each",
            "classes": f"{crowd.n_classes:,}: {_some(crowd.classes.tolist())}",
            "unanimous": f"{100 * unanimous:.1f} % of the instances",
            "repeats": f"{crowd.n_duplicates:,} of the same instance by the same annotator"
            if crowd.n_duplicates
            else None,
            "gold": None if read.gold is None else f"{len(read.gold):,} instances",
        },
    )


def _preset(preset: presets.Preset) -> None:
    facts = {
        "description": preset.description or None,
        "data": _values(preset.data),
        "simulate": _values(preset.simulate),
    }
    methods = {f"for {name}": _values(values) for name, values in preset.methods.items()}
    show_facts(f"preset {preset.name}", facts | {"parameters": _values(preset.parameters)} | methods)


def _dataset(name: str, *, alone: bool) -> None:
    try:
        say(repr(datasets.load(name)))
    except DatasetError as error:
        if alone:
            raise
        complain("warning", str(error))


def _method(name: str) -> None:
    method = METHODS[name]
    say(" ".join((method.__doc__ or "").split("\n\n")[0].split()))
    meaning = _explained(method)
    rows = []
    for field in dataclasses.fields(method):
        value = [round(each, 3) for each in field.default] if isinstance(field.default, tuple) else field.default
        default = "" if value is None else json.dumps(value, default=str)
        rows.append([field.name, default, meaning.get(field.name, "")])
    title = f"Parameters of {name}, for `crowdwise train --method {name} --set`"
    show_table(title, ("parameter", "default", "what it is"), rows)


def _explained(method: type) -> dict[str, str]:
    """What stands below each parameter where it is defined, in the method or in a class that it builds on."""
    found: dict[str, str] = {}
    for each in reversed(method.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        for field, text in pairwise(ast.walk(ast.parse(inspect.getsource(each)))):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                    found[name] = " ".join(words.split()).replace("``", "")
    return found


def _changed(about: dict[str, Any]) -> str | None:
    """The parameters of a run or model that are not the defaults of its method."""
    defaults = {}
    if about["method"] in METHODS:
        defaults = {field.name: field.default for field in dataclasses.fields(METHODS[about["method"]])}
    given = about["parameters"].items()
    return _values(
        {key: value for key, value in given if json.dumps(value) != json.dumps(defaults.get(key, ...), default=str)}
    )


def _values(settings: Any) -> str | None:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()) or None


def _some(values: list[Any], most: int = 10) -> str:
    return ", ".join(map(str, values[:most])) + (", ..." if len(values) > most else "")


def _spread(counts: Any) -> str:
    """Fewest to most, and the mean."""
    if not len(counts):
        return "0"
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,} (mean {float(counts.mean()):.1f})"


def _close(what: str, known: set[str]) -> str:
    hint = suggest(what, known)
    return hint if "did you mean" in hint else ""
