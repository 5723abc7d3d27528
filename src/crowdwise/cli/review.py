"""The verb `review`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, say, verb
from crowdwise.cli.options import File, Method, Seed, reads


@verb
@reads
def review(
    file: File,
    reviewers: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="NAME", help="Your name as a reviewer; several, each with a link, if repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder of the answers; FILE's name with .review by default."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the pictures; by default that of FILE.")
    ] = None,
    trust: Annotated[
        str,
        typer.Option(metavar="gold|expert", help="Whether your labels are the truth, or those of a good annotator."),
    ] = "gold",
    target: Annotated[
        float, typer.Option(min=0, max=1, help="Share of right labels among the rest at which it is enough.")
    ] = 0.97,
    method: Method = "auto",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 takes any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the annotations with those of the review to OUT, and open no page."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the consensus after the review to OUT, and open no page.")
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="table|crowd-kit|label-studio|auto", help="What --export and --labels write.")
    ] = "auto",
    seed: Seed = 0,
    *,
    reading: dict[str, Any],
) -> None:
    from crowdwise.constraints import check_value
    from crowdwise.data.codes import count
    from crowdwise.reviewing.consensus import Trust
    from crowdwise.tasks.review import Request, export_review, serve_review

    check_value("--trust", trust, Trust)
    written = export is not None or labels is not None
    of_page = {"--as": reviewers, "--port": port or None, "--open": browser or None}
    for option, value in of_page.items():
        if written and value is not None:
            raise typer.BadParameter(f"{option} is for the page, which --export and --labels do not open")
    if to != "auto" and not written:
        raise typer.BadParameter("--to says what --export and --labels write")
    names = tuple(reviewers or ["reviewer"])
    request = Request(file, out, names, method, trust, target, root, reading, seed)  # type: ignore[arg-type]
    for path, what in ((export, "annotations"), (labels, "labels")):
        if path is not None:
            progress = export_review(request, path, what=what, to=to, observer=Terminal())
            say(f"{path}: {what}, {count(progress.reviewed, 'items')} reviewed")
    if not written:

        def ready(links: dict[str, str], progress: Any) -> None:
            _ready(links, progress, request.place, browser)

        serve_review(request, port, ready=ready, observer=Terminal())


def _ready(links: dict[str, str], progress: Any, folder: Path, browser: bool) -> None:
    say(f"{folder}: {progress.reviewed:,} items reviewed, {progress.left:,} left")
    for name, link in links.items():
        say(f"{link}  ({name}; Ctrl-C ends it)" if len(links) > 1 else f"{link}  (Ctrl-C ends it)")
    if browser:
        import webbrowser

        webbrowser.open(next(iter(links.values())))
