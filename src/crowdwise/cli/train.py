"""The verb `train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.console import Terminal, say, show_facts, show_stages, verb
from crowdwise.cli.options import Image, Ray, Root, Text, Workers, asked, completed, parse_settings, reads
from crowdwise.errors import StorageError
from crowdwise.tasks.runs import LABELS, METRICS, RESULTS, result_facts

FILES = {"model": "model", "labels": LABELS, "metrics": METRICS, "results": RESULTS}


@verb
@reads
def train(
    labels: Annotated[
        str | None, typer.Argument(metavar="LABELS", help="Short for --annotations.", show_default=False)
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="See `crowdwise methods`; concord by default.",
            autocompletion=completed("method"),
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A public data set; with --annotations, labelled by that file instead.",
            autocompletion=completed("data set"),
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Your instances: .npy or .npz (rows are instances; FILE.npz:NAME picks an array), a table (.csv, "
            ".parquet, ...) of numbers, categories and texts, or a folder of pictures, called by their file names.",
        ),
    ] = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Labels: a table with a row per label, or an export of an annotation tool. Instances are row numbers "
            "0..n-1 of the inputs, or ids (--ids). Without --inputs, texts or pictures of this file are learnt from.",
        ),
    ] = None,
    text: Text = None,
    image: Image = None,
    root: Root = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FILE|1..",
            help="Ids of the inputs' rows: a column of the inputs' table (one named id or instance is found), an array "
            "in the .npz, a file with one id per row, `1..` (rows are numbered from 1), or `position` (the labels list "
            "the rows in their order).",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="Settings to start from; see `crowdwise presets`.",
            autocompletion=completed("preset"),
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the method (k=5), of the data set (data.features=maps) or of a simulated crowd "
            "(simulate.noise_rate=0.4); TOML or JSON values. May be repeated.",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How texts, pictures and tables become numbers; short for --set encoder=."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Short for --set epochs=.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Short for --set random_state=; also of a simulated crowd.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="RUN_DIR", help="Run directory; by default runs/DATA-METHOD-seedN."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN_DIR", help="Go on with an interrupted run; needs nothing else.")
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is not here.")] = False,
    ray: Ray = None,
    workers: Workers = None,
    *,
    reading: dict[str, Any],
) -> Any:
    reading = asked(reading)
    if labels is not None and annotations is not None:
        raise typer.BadParameter("LABELS and --annotations are the same; pass one of them")
    annotations = labels if annotations is None else annotations
    columns: dict[str, Any] = {"text": text, "image": image, "root": root}
    new = (method, data, inputs, annotations, ids, preset, settings, epochs, encoder, seed, out, download or None)
    if resume is not None and (reading or any(value is not None for value in (*new, *columns.values()))):
        raise typer.BadParameter(
            "a run goes on as it was started: beside --resume only --device, --ray and --workers may be given"
        )
    from crowdwise.tasks.train import Run, plan

    if resume is not None:
        run = Run.open(str(resume), device=device)
    else:
        short = {"encoder": encoder, "epochs": epochs, "random_state": seed, "device": device}
        planned = plan(
            method or "concord",
            preset=preset,
            data=data,
            inputs=inputs,
            annotations=annotations,
            ids=ids,
            **columns,
            reading=reading,
            settings=parse_settings(settings or []) | {key: value for key, value in short.items() if value is not None},
            download=download,
        )
        run = Run.new(planned, out)
    go_on = f"go on with  crowdwise train --resume {shlex.quote(str(run.path))}"
    try:
        work = run.start if resume is None else run.resume
        result = work(ray=ray, workers=workers, observer=Terminal())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(go_on if run.started else "") from None
    except StorageError as error:
        raise StorageError(f"{error}; then {go_on}" if run.started else str(error)) from error
    show_stages(f"{result.model.name} in {result.path}", result.model.history_)
    show_facts("results", result_facts(result.results))
    show_facts("files", {name: result.path / file for name, file in FILES.items() if (result.path / file).exists()})
    for picture in result.pictures:
        say(f"  picture  {picture}")
    path = shlex.quote(str(result.path))
    show_facts("next", {"classify": f"crowdwise predict {path} FILE", "look": f"crowdwise report {path}"})
    return result
