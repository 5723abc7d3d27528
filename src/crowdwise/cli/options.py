"""Options that verbs share: which file is read and how, the method, the seed, Ray, and settings as ``key=value``."""

from __future__ import annotations

import csv
import functools
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.errors import ConfigError

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, a table with a "
        "row per label, or a matrix; - is standard input; aggregate also takes a folder of parquet files.",
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, what language "
        "models answered, a table with a row per label, or a matrix. Several files are matched by instance; aggregate also "
        "takes a folder of parquet files.",
    ),
]


def completed(*families: str) -> Callable[[str], list[str]]:
    """What a shell proposes: the names of families that `crowdwise info` knows."""

    def names(incomplete: str) -> list[str]:
        from crowdwise.tasks.info import known_names

        return [name for family in families for name in known_names(family) if name.startswith(incomplete)]

    return names


Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME|auto",
        help="An aggregator such as dawid-skene; auto chooses and says why.",
        autocompletion=completed("aggregator"),
    ),
]
GoldColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of FILE with true classes, like --gold NAME.")
]
TableOut = Annotated[Path | None, typer.Option("--out", "-o", metavar="OUT", help="Write the table, by its suffix.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")]
Ray = Annotated[
    str | None,
    typer.Option(metavar="local|HOST:PORT", help="Run on Ray: one that is started here, or a running cluster."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Ray workers to use; by default one for each CPU.", show_default=False)
]
Text = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of texts to learn from, in the inputs' table or in that of the labels."
    ),
]
Image = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of pictures' paths, in the inputs' table or in that of the labels."),
]
Root = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder that pictures' paths lead to, also those of Label Studio's uploads."),
]


def _listed(text: str | None) -> list[str] | None:
    """``a,b`` -> names; one that holds a comma is put in quotes."""
    return None if text is None else [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]


def _renamed(items: Sequence[str] | None) -> dict[str, str] | None:
    """``["old=new"]`` -> new names."""
    for item in items or []:
        if "=" not in item:
            raise ConfigError(f"--map takes old=new, got {item!r}")
    return {old.strip(): new.strip() for old, _, new in (item.rpartition("=") for item in items)} if items else None


def _option(kind: Any, *names: str, **details: Any) -> Any:
    return Annotated[kind, typer.Option(*names, rich_help_panel="How FILE is read", **details)]


OPTIONS: dict[str, tuple[Any, Any]] = {
    "instance": (_option(str | None, metavar="COLUMN", help="Column of the instance; usual names are found."), None),
    "annotator": (_option(str | None, metavar="COLUMN", help="Column of the annotator."), None),
    "label": (_option(str | None, metavar="COLUMN", help="Column of the label."), None),
    "gold": (
        _option(str | None, metavar="FILE|COLUMN", help="True classes of some instances: a table, or a column."),
        None,
    ),
    "columns": (
        _option(
            str | None, metavar="NAMES", help="Names of all columns where there is no header: item,annotator,label."
        ),
        None,
    ),
    "format": (
        _option(
            str,
            "--format",
            "-f",
            metavar="NAME|auto",
            help="Format of the file; auto tells it by the content.",
            autocompletion=completed("format"),
        ),
        "auto",
    ),
    "question": (_option(str | None, metavar="NAME", help="The question to read, where there are several."), None),
    "several": (
        _option(str, metavar="error|first|skip", help="What to do with annotations that hold more than one choice."),
        "error",
    ),
    "duplicates": (
        _option(
            str | None,
            metavar="keep|first|last|share|error",
            help="Repeated labels by the same annotator; kept by default, but answers of a model share one label.",
            show_default=False,
        ),
        None,
    ),
    "weight": (_option(str | None, metavar="COLUMN", help="Column of weights; one named weight is found."), None),
    "models": (_option(bool, "--models/--no-models", help="Whether models count as annotators."), True),
    "clean": (_option(bool, "--clean", help="Merge labels that differ in case, blanks, punctuation only."), False),
    "classes": (
        _option(
            str | None, metavar="NAMES", help="All classes: cat,dog. Labels like 'Cat ' are matched, others errors."
        ),
        None,
    ),
    "missing": (_option(str | None, metavar="NAMES", help='Labels that mean there is none: "N/A,-".'), None),
    "map": (_option(list[str] | None, metavar="OLD=NEW", help="Rename a label. May be repeated."), None),
    "encoding": (_option(str | None, metavar="NAME", help="Encoding of a text file; found by default."), None),
    "separator": (_option(str | None, metavar="CHARACTER", help="Separator of a text file; found by default."), None),
    "sheet": (_option(str | None, metavar="NAME", help="Sheet of a spreadsheet; the first by default."), None),
}
"""Arguments of `crowdwise.read` -> option and default."""
PARSED: dict[str, Callable[[Any], Any]] = {
    "columns": _listed,
    "classes": _listed,
    "missing": lambda text: _listed(text) or [],
    "map": _renamed,
}


def asked(reading: Mapping[str, Any]) -> dict[str, Any]:
    """What a user says about how a file is read: the rest is as usual."""
    usual = {name: PARSED.get(name, lambda value: value)(default) for name, (_, default) in OPTIONS.items()}
    return {name: value for name, value in reading.items() if value != usual[name]}


def as_words(reading: Mapping[str, Any]) -> list[str]:
    """What a user said, as options of another verb."""
    words: list[str] = []
    for name, value in asked(reading).items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
        elif isinstance(value, Mapping):
            words += [word for old, new in value.items() for word in (f"--{name}", f"{old}={new}")]
        else:
            words += [f"--{name}", value if isinstance(value, str) else ",".join(value)]
    return words


def reads(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a verb that reads annotations: its argument ``reading`` becomes the options that say how."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "reading"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=option)
        for name, (option, default) in OPTIONS.items()
    ]

    @functools.wraps(function)
    def verb(**given: Any) -> Any:
        reading = {name: PARSED.get(name, lambda value: value)(given.pop(name)) for name in OPTIONS}
        return function(reading=reading, **given)

    verb.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *options)}
    return verb


def parse_settings(items: Sequence[str]) -> dict[str, Any]:
    """``["k=5", "backbone=cnn"]`` -> values by key.

    >>> parse_settings(["k=5", "backbone=cnn", "backbone_options={hidden = 8}", "class_prior=null"])
    {'k': 5, 'backbone': 'cnn', 'backbone_options': {'hidden': 8}, 'class_prior': None}
    """
    settings: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"--set takes key=value, got {item!r}")
        settings[key.strip()] = _literal(key.strip(), text.strip())
    return settings


def _literal(key: str, text: str) -> Any:
    """A value written as in TOML or JSON; a single word needs no quotes."""
    try:
        content = tomllib.loads(f"value = {text}")
        if len(content) == 1:
            return content["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    if re.fullmatch(r"[\w.:/~+-]+", text):
        return text
    raise ConfigError(f"--set {key}={text}: the value is neither TOML nor JSON; put text in quotes: {key}='\"...\"'")
