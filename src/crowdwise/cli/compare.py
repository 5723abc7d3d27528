"""The verb `compare`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, say, show_facts, show_table, verb
from crowdwise.cli.options import Device, Image, Ray, Root, Seed, Text, Workers, as_words, asked, parse_settings, reads


@verb
@reads
def compare(
    labels: Annotated[
        str | None, typer.Argument(metavar="LABELS", help="Labels: a table with a row per label, or an export.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="FILE|DIR", help="Your instances, in a file or folder as for `train`.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="NAME", help="A public data set instead of your own.")] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="COLUMN|FILE", help="Ids of the inputs' rows, as for `train`.")
    ] = None,
    text: Text = None,
    image: Image = None,
    root: Root = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="What to compare; may be repeated. By default a short list, with logistic regression as the plain "
            "alternative.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the instances, each predicted without it.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=0, help="Leave out folds that would end later than this; 0: no limit.")
    ] = 150,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default 2, or 1 with a GPU.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Of the data set or a simulated crowd, as for `train`."),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Folder for the fits: an interrupted comparison goes on there."
        ),
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    *,
    reading: dict[str, Any],
) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from crowdwise.tasks.compare import compare as task
    from crowdwise.tasks.train import plan

    planned = plan(
        "concord",
        data=data,
        inputs=inputs,
        annotations=labels,
        ids=ids,
        text=text,
        image=image,
        root=root,
        reading=asked(reading),
        settings=parse_settings(settings or []) | {"random_state": seed, "device": device},
    )
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        fits = bar.add_task("comparing", total=None)
        found = task(
            planned,
            methods=methods or None,
            folds=folds,
            seconds=seconds or None,
            jobs=jobs,
            folder=out,
            ray=ray,
            workers=workers,
            observer=Terminal(),
            progress=lambda method, done, total: bar.update(fits, completed=done, total=total, description=method),
        )
    result = found.comparison
    columns_shown, rows = result.table()
    show_table("Methods", columns_shown, rows, right=columns_shown[1:5])
    say(result.judged_by)
    for remark in result.remarks():
        say(remark)
    say()
    next_step = _command(found.training, reading) or result.next_step
    show_facts("Result", {"": result.reason, " ": result.expectation, "next": next_step})
    return result.as_dict() | {"next": next_step}


def _command(training: dict[str, str], reading: dict[str, Any]) -> str:
    """What to type next; nothing where no method of crowdwise is recommended."""
    if not training:
        return ""
    words = [training[name] for name in ("annotations",) if name in training]
    usual = {"annotations": None, "method": "concord"}
    for name, value in training.items():
        words += [f"--{name}", value] if name != "annotations" and usual.get(name) != value else []
    return shlex.join(["crowdwise", "train", *words, *as_words(reading)])
