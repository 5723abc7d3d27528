"""The verbs `bench run`, `bench table`, `bench figures` and `bench list`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli._console import verb
from crowdwise.cli._reading import Ray, Workers

app = typer.Typer(
    no_args_is_help=True, help="Run benchmarks: the paper's experiments, or the methods on your own data."
)


class Format(StrEnum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


Experiment = Annotated[
    str, typer.Argument(help="An experiment (see `crowdwise bench list`), or a TOML file of yours.", show_default=False)
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the runs; by default bench/NAME.")
]
Records = Annotated[
    list[Path] | None,
    typer.Option("--records", metavar="FILE", help="Files of records instead of the folder of runs. May be repeated."),
]


@app.command()
@verb
def run(
    experiment: Experiment,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set. May be repeated.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method or row. May be repeated.")] = None,
    noise: Annotated[list[float] | None, typer.Option(help="Only this noise rate. May be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default as the experiment says.")] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a parameter of all methods that have it."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at a time; by default one for each GPU, or for each processor where there is none."
        ),
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs of the Ray that a run takes, such as 0.25; by default 1 where there are some."),
    ] = None,
    out: Out = None,
) -> None:
    """Run an experiment. Interrupt it at any time: finished runs are kept, and the same command goes on."""
    if ray is None and (workers is not None or gpus_per_run is not None):
        raise typer.BadParameter("--workers and --gpus-per-run are for a Ray: say which with --ray")
    if ray is not None and jobs is not None:
        raise typer.BadParameter("--jobs are of this machine; with --ray say --workers")
    from crowdwise.cli._bench import run as work

    work(
        experiment,
        datasets=dataset or [],
        methods=method or [],
        noise_rates=noise or [],
        seeds=seeds,
        first_seed=first_seed,
        settings=settings or [],
        jobs=jobs if ray is None else workers,
        ray=ray,
        gpus_per_run=gpus_per_run,
        out=out,
    )


@app.command()
@verb
def table(
    experiment: Annotated[
        str, typer.Argument(help="An experiment, or the number of one of the paper's tables.", show_default=False)
    ],
    form: Annotated[Format, typer.Option("--format", "-f", help="How the table is written.")] = Format.terminal,
    metric: Annotated[
        str, typer.Option(help="What is shown: test_accuracy, transition_error, heldout_log_likelihood, seconds, ...")
    ] = "auto",
    out: Out = None,
    records: Records = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Show an experiment's results: mean and standard deviation over seeds, beside the paper's figures."""
    from crowdwise.cli._bench import table as work

    work(experiment, form.value, metric, out, records, to)


@app.command()
@verb
def figures(
    experiment: Experiment,
    out: Out = None,
    records: Records = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder of the pictures; by default figures/ among the runs."),
    ] = None,
    form: Annotated[str, typer.Option("--format", "-f", help="png, svg or pdf.")] = "png",
) -> None:
    """Draw an experiment's results: accuracy against what was varied, and annotator maps."""
    from crowdwise.cli._bench import figures as work

    work(experiment, out, records, to, form)


@app.command("list")
@verb
def list_experiments() -> None:
    """List the experiments that come with crowdwise."""
    from crowdwise.cli._bench import list_experiments as work

    work()
