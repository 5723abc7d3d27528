"""Options that verbs share: which file is read and how, the method, the seed, Ray, and settings as ``key=value``."""

from __future__ import annotations

import csv
import functools
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, with_options
from crowdwise.errors import ConfigError

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, a table with a "
        "row per label, or a matrix; - is standard input.",
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, what language "
        "models answered, a table with a row per label, or a matrix. Several files are matched by instance.",
    ),
]


FilesOrFolder = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE|DIR",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, what language "
        "models answered, a table with a row per label, or a matrix. Several files are matched by instance. A folder of "
        "Parquet files is one table.",
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
    str | None, typer.Option(metavar="NAME", help="Column of true classes: of the --gold table, or of FILE.")
]
Ordered = Annotated[
    str,
    typer.Option(
        metavar="NAMES|auto|no",
        help="Classes from the lowest to the highest: none,mild,severe. auto (default) recognises scales; no: unordered.",
        show_default=False,
    ),
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


def order(text: str) -> str | list[str]:
    """``a,b,c`` -> classes in this order; one word is "auto" or "no"."""
    names = _listed(text) or []
    return names if len(names) > 1 else text


def _renamed(items: Sequence[str] | None) -> dict[str, str] | None:
    """``["old=new"]`` -> new names."""
    for item in items or []:
        if "=" not in item:
            raise ConfigError(f"--map takes old=new, got {item!r}")
    return {old.strip(): new.strip() for old, _, new in (item.rpartition("=") for item in items)} if items else None


def _option(*names: str, kind: Any = str | None, default: Any = None, **details: Any) -> tuple[Any, Any]:
    return Annotated[kind, typer.Option(*names, rich_help_panel="How FILE is read", **details)], default


OPTIONS = {
    "instance": _option(metavar="COLUMN", help="Column of the instance; usual names are found."),
    "annotator": _option(metavar="COLUMN", help="Column of the annotator."),
    "label": _option(metavar="COLUMN", help="Column of the label."),
    "gold": _option(metavar="FILE|COLUMN", help="True classes of some instances: a table, or a column."),
    "columns": _option(metavar="NAMES", help="Names of all columns where there is no header: item,annotator,label."),
    "format": _option(
        "--format",
        "-f",
        kind=str,
        default="auto",
        metavar="NAME|auto",
        help="Format of the file; auto tells it by the content.",
        autocompletion=completed("format"),
    ),
    "question": _option(metavar="NAME", help="The question to read, where there are several."),
    "several": _option(
        kind=str,
        default="error",
        metavar="error|first|skip",
        help="What to do with annotations that hold more than one choice.",
    ),
    "duplicates": _option(
        metavar="keep|first|last|share|error",
        help="Repeated labels by the same annotator; kept by default, but answers of a model share one label.",
        show_default=False,
    ),
    "weight": _option(metavar="COLUMN", help="Column of weights; one named weight is found."),
    "models": _option("--models/--no-models", kind=bool, default=True, help="Whether models count as annotators."),
    "kinds": _option(
        metavar="FILE", help="Table of annotators and kinds (person, model); models are told by their names otherwise."
    ),
    "clean": _option(
        "--clean", kind=bool, default=False, help="Merge labels that differ in case, blanks, punctuation only."
    ),
    "classes": _option(metavar="NAMES", help="All classes: cat,dog. Labels like 'Cat ' are matched, others errors."),
    "missing": _option(metavar="NAMES", help='Labels that mean there is none: "N/A,-".'),
    "map": _option(kind=list[str] | None, metavar="OLD=NEW", help="Rename a label. May be repeated."),
    "encoding": _option(metavar="NAME", help="Encoding of a text file; found by default."),
    "separator": _option(metavar="CHARACTER", help="Separator of a text file; found by default."),
    "sheet": _option(metavar="NAME", help="Sheet of a spreadsheet; the first by default."),
}
"""Arguments of `crowdwise.read` -> option and default."""
PARSED: dict[str, Callable[[Any], Any]] = {
    "columns": _listed,
    "classes": _listed,
    "missing": lambda text: _listed(text) or [],
    "map": _renamed,
}


def _parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the options, as `crowdwise.read` takes them."""
    return {name: PARSED[name](given[name]) if name in PARSED else given[name] for name in OPTIONS}


def asked(reading: Mapping[str, Any]) -> dict[str, Any]:
    """What a user says about how a file is read: the rest is as usual."""
    usual = _parsed({name: default for name, (_, default) in OPTIONS.items()})
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
    """Decorator of a verb that reads annotations: its argument ``reading`` becomes the options that say how.

    With an argument ``given`` instead, it gets all that its task takes: its own options, ``reading`` and an ``observer``.
    """
    gets_all = "given" in inspect.signature(function).parameters

    @functools.wraps(function)
    def verb(**given: Any) -> Any:
        reading = _parsed(given)
        own = {name: value for name, value in given.items() if name not in OPTIONS}
        if not gets_all:
            return function(reading=reading, **own)
        values = {name: value.value if isinstance(value, Enum) else value for name, value in own.items()}
        return function(given=values | {"reading": reading, "observer": Terminal()}, **own)

    return with_options(verb, function, OPTIONS, "reading", "given")


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
