"""The verb `info`."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer

from crowdwise.cli.console import complain, say, show_facts, show_stages, show_table, verb
from crowdwise.cli.options import asked, completed, reads

USES = {
    "method": "crowdwise train --method {} --set PARAMETER=VALUE",
    "aggregator": "crowdwise aggregate FILE --method {} -o labels.csv",
    "format": "crowdwise convert FILE OUT --format {}",
}


@verb
@reads
def info(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH|NAME",
            help="A run directory, a model, an annotation table, an array file or a preset file; or the name of a "
            "method, an aggregator, an encoder, a format, a data set or a preset. Without it, all names are listed.",
            autocompletion=completed("method", "aggregator", "encoder", "format", "data set", "preset"),
        ),
    ] = None,
    *,
    reading: dict[str, Any],
) -> Any:
    from crowdwise.tasks.info import FAMILIES, describe, known_names

    if path is None:
        names = {family: known_names(family) for family in FAMILIES}
        show_facts("Names", {family: ", ".join(each) or None for family, each in names.items()})
        return names
    described = describe(path, asked(reading))
    for found in described:
        if found.title:
            show_facts(found.title, found.facts)
        if found.history:
            show_stages("Stages", found.history)
        if found.results:
            show_facts("results", found.results)
        if found.parameters:
            _parameters(found.method, found.parameters)
        if found.family in USES:
            say(f"use it with  {USES[found.family].format(found.method)}")
        if found.warning is not None:
            complain("warning", found.warning)
        if found.run is not None:
            run = shlex.quote(str(found.run))
            say(
                {
                    "finished": f"predict with  crowdwise predict {run} INPUTS",
                    "resumable": f"go on with  crowdwise train --resume {run}",
                    "python": f"started from Python: go on with fit(X, annotations, resume={str(found.run)!r})",
                }[str(found.state)]
            )
    return described


def _parameters(method: str | None, parameters: list[tuple[str, Any, str]]) -> None:
    rows = []
    for name, default, meaning in parameters:
        rows.append([name, "" if default is None else json.dumps(_shown(default), default=str), meaning])
    show_table(f"Parameters of {method}", ("parameter", "default", "what it is"), rows)


def _shown(default: object) -> object:
    """A default as it is shown: fractions such as 1/3 with three digits."""
    if isinstance(default, tuple):
        return [_shown(each) for each in default]
    return round(default, 3) if isinstance(default, float) else default
