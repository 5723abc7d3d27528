"""The verb `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli.aggregate import Annotator, Format, Instance, Label, Method, Models, Question, Seed, Several


@verb
def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A table of labels, a table that `crowdwise aggregate` wrote, a run of `crowdwise train`, the folder "
            "of a benchmark, or a data set's name.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page to write; report.html by default.")
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The labels behind INPUT, where that is a table of results or a model."),
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A benchmark whose methods are compared in the report.")
    ] = None,
    method: Method = "auto",
    instance: Instance = None,
    annotator: Annotator = None,
    label: Label = None,
    format: Format = "auto",
    question: Question = None,
    several: Several = "error",
    models: Models = True,
    budget: Annotated[int, typer.Option(min=0, help="Labels to suggest in the section on what to label next.")] = 200,
    seed: Seed = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it on localhost, anew whenever INPUT changes, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0 takes any that is free.")] = 8765,
) -> None:
    """Make a page to look at: annotators, items, what to label next; one file that opens anywhere."""
    from crowdwise.cli._report import Request, serve_report, write_report

    columns = {"instance": instance, "annotator": annotator, "label": label}
    reading = {"format": format, "question": question, "several": several, "models": models}
    request = Request(what, annotations, bench, method, columns | reading, budget, seed)
    if serve:
        serve_report(request, port, out)
    else:
        write_report(request, out if out is not None else Path("report.html"))
