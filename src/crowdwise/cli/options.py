"""Options that verbs share: which file is read and how, the method, the seed, Ray, and settings as ``key=value``."""

from __future__ import annotations

import functools
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.errors import ConfigError

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Annotations: an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, a table with a "
        "row per label, or a matrix; aggregate also takes a folder of parquet files.",
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
Method = Annotated[
    str,
    typer.Option(
        "--method", "-m", metavar="NAME|auto", help="An aggregator such as dawid-skene; auto chooses and says why."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of whatever is random.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="local|HOST:PORT",
        help="Run on Ray: one that is started here, or a running cluster.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Ray workers to use; by default one for each CPU.", show_default=False)
]
OPTIONS: dict[str, tuple[Any, Any]] = {
    "instance": (
        Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the instance; usual names are found.")],
        None,
    ),
    "annotator": (Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the annotator.")], None),
    "label": (Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label.")], None),
    "format": (
        Annotated[
            str,
            typer.Option(
                "--format", "-f", metavar="NAME|auto", help="Format of the file; auto tells it by the content."
            ),
        ],
        "auto",
    ),
    "question": (
        Annotated[str | None, typer.Option(metavar="NAME", help="The question to read, where there are several.")],
        None,
    ),
    "several": (
        Annotated[
            str,
            typer.Option(
                metavar="error|first|skip", help="What to do with annotations that hold more than one choice."
            ),
        ],
        "error",
    ),
    "duplicates": (
        Annotated[
            str | None,
            typer.Option(
                metavar="keep|first|last|share|error",
                help="What to do with repeated labels by the same annotator; kept by default, but answers of a model share "
                "one label.",
                show_default=False,
            ),
        ],
        None,
    ),
    "classes": (
        Annotated[
            str | None,
            typer.Option(
                metavar="A,B,...", help="Classes to look for in what models said; by default those of the other files."
            ),
        ],
        None,
    ),
    "weight": (
        Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of weights; one named weight is found.")],
        None,
    ),
    "models": (
        Annotated[bool, typer.Option("--models/--no-models", help="Whether models count as annotators.")],
        True,
    ),
}
"""Arguments of `crowdwise.read` -> option and default."""


def reads(function: Callable[..., None]) -> Callable[..., None]:
    """Decorator of a verb that reads annotations: its argument ``reading`` becomes the options that say how."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "reading"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=option)
        for name, (option, default) in OPTIONS.items()
    ]

    @functools.wraps(function)
    def verb(**given: Any) -> None:
        reading = {name: given.pop(name) for name in OPTIONS}
        if reading["classes"] is not None:
            reading["classes"] = [one.strip() for one in reading["classes"].split(",") if one.strip()]
        function(reading=reading, **given)

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
