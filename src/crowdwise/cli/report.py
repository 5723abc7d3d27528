"""The verb `report`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, complain, say, verb
from crowdwise.cli.options import Method, Ordered, Root, Seed, as_words, asked, order, reads


@verb
@reads
def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A file of annotations (an export of Label Studio, Toloka, MTurk, Prodigy, Argilla, CVAT or doccano, "
            "a table, a matrix), a table that `crowdwise aggregate` wrote, a run of `crowdwise train`, the folder of a "
            "benchmark or of `crowdwise compare`, or a data set's name.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page to write; report.html by default.")
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The labels behind INPUT, where that is a table of results or a run from Python."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The instances behind INPUT (npy, npz or a table), where that is a file of labels or a run from Python: "
            "the report then shows the most similar items beside a doubtful one.",
        ),
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A benchmark whose methods are compared in the report.")
    ] = None,
    root: Root = None,
    method: Method = "auto",
    budget: Annotated[int, typer.Option(min=0, help="Labels to suggest in the section on what to label next.")] = 200,
    cost: Annotated[
        float | None,
        typer.Option(min=0, help="Price of a label, for what further ones would cost.", show_default=False),
    ] = None,
    ordered: Ordered = "auto",
    seed: Seed = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it on localhost, anew whenever INPUT changes, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0 takes any that is free.")] = 8765,
    *,
    reading: dict[str, Any],
) -> Any:
    from crowdwise.tasks.report import Request, serve_report, write_report

    folder = None if root is None else Path(root)
    reading = asked(reading)
    request = Request(
        what, annotations, inputs, bench, method, reading, budget, seed, cost=cost, root=folder, ordered=order(ordered)
    )
    if serve:
        return serve_report(
            request, port, out, ready=lambda address: say(f"{address}  (Ctrl-C ends it)"), observer=Terminal()
        )
    result = write_report(request, out if out is not None else Path("report.html"), observer=Terminal())
    for warning in result.warnings:
        complain("note", warning)
    page = result.out
    say(f"{page}: {page.stat().st_size / 1e6:.1f} MB, all in one file. Open it in a browser: {page.resolve().as_uri()}")
    if result.labels:
        words = [what, *as_words(reading), *(["--method", method] if method != "auto" else [])]
        say(f"The labels as a table: crowdwise aggregate {shlex.join(words)} -o consensus.csv")
    return result
