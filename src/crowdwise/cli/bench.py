"""The verbs `bench run`, `bench table`, `bench figures` and `bench list`."""

from __future__ import annotations

import csv
import io
import json
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.cli.console import complain, for_people, say, show_table, verb
from crowdwise.cli.options import Ray, Workers, parse_settings
from crowdwise.errors import ConfigError

if TYPE_CHECKING:
    from crowdwise.bench.cells import Cell
    from crowdwise.bench.runner import Status, Watch

app = typer.Typer(no_args_is_help=True)

Format = StrEnum("Format", "terminal markdown latex csv")  # how a table is written
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
        typer.Option(min=0, help="GPUs that a run on Ray takes, such as 0.25; by default 1 where there are some."),
    ] = None,
    out: Out = None,
) -> Any:
    """Run an experiment. Interrupt it at any time: finished runs are kept, and the same command goes on."""
    from crowdwise.tasks import bench as tasks

    tasks.check_cluster(ray, jobs, workers, gpus_per_run)
    planned = tasks.plan(
        experiment,
        datasets=dataset or [],
        methods=method or [],
        noise_rates=noise or [],
        seeds=seeds,
        first_seed=first_seed,
        settings=parse_settings(settings or []),
        out=out,
    )
    name, cells = planned.experiment.name, planned.cells
    count = f"{len(cells)} run{'s' if len(cells) > 1 else ''}"
    say(f"{name}: {planned.experiment.description or 'an experiment'}; {count} in {planned.folder}")
    try:
        with _display(cells) as watch:
            records = planned.run(jobs=jobs, ray=ray, workers=workers, gpus_per_run=gpus_per_run, watch=watch)
    except KeyboardInterrupt:
        again = shlex.join(["crowdwise", *sys.argv[1:]])
        raise KeyboardInterrupt(f"finished runs are kept; go on with  {again}") from None
    failed = [record for record in records if "error" in record]
    if len(failed) < len(records):
        made = tasks.table(experiment, out=out)
        _show(made, Format.terminal)
        chosen = tasks.best(planned, made)
        if chosen is not None:
            say(f"train the first of them:  {_training(chosen)}")
    for record in failed:
        complain("failed", f"{record['column']}, {record['row']}, seed {record['seed']}: {record['error']}")
    if failed:
        raise ConfigError(f"{len(failed)} of {len(records)} runs failed; run the same command to try them again")
    return records


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
) -> Any:
    """Show an experiment's results: mean and standard deviation over seeds, beside the paper's figures."""
    from crowdwise.bench import rendering
    from crowdwise.tasks.bench import table as task

    made = task(experiment, metric=metric, out=out, records=records)
    if to is not None:
        say(str(rendering.write(made, to)))
    else:
        _show(made, form)
    return list(csv.DictReader(io.StringIO(rendering.to_csv(made))))


Filled = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the runs that `fill` does.")]
Known = Annotated[
    list[Path] | None,
    typer.Option("--records", metavar="PATH", help="Further records: a file, or a folder of files. May be repeated."),
]
Only = Annotated[
    list[str] | None, typer.Option("--experiment", metavar="NAME", help="Only this experiment. May be repeated.")
]


@app.command()
@verb
def missing(out: Filled = Path("bench/paper"), records: Known = None, experiment: Only = None) -> Any:
    """List the entries of the paper's tables that have no record, too few seeds or fewer epochs than the paper."""
    from crowdwise.tasks import bench as tasks

    entries = tasks.missing(out=out, records=records, experiments=experiment or [])
    summary = tasks.summary_of(entries)
    for line in summary.lines:
        say(line)
    return summary.rows


@app.command()
@verb
def fill(
    minutes: Annotated[float, typer.Option(help="For how long. What is unfinished then goes on the next time.")],
    out: Filled = Path("bench/paper"),
    records: Known = None,
    experiment: Only = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; by default as many as pay, which the first ones show.")
    ] = None,
) -> Any:
    """Run what `bench missing` lists and this machine can do, for a limited time.

    Several processes may work in one folder; a run that was interrupted goes on from its last epoch.
    """
    from crowdwise.tasks import bench as tasks

    entries = tasks.missing(out=out, records=records, experiments=experiment or [])
    cells = [cell for entry in entries for cell in entry.cells]
    try:
        with _display(cells) as watch:
            done = tasks.fill(minutes, out=out, records=records, experiments=experiment or [], jobs=jobs, watch=watch)
    except KeyboardInterrupt:
        again = shlex.join(["crowdwise", *sys.argv[1:]])
        raise KeyboardInterrupt(f"finished runs are kept; go on with  {again}") from None
    failed = [record for record in done.records if "error" in record]
    say(
        f"{len(done.records) - len(failed)} runs finished, {len(failed)} failed, {done.left} left; "
        f"{done.jobs} at a time in the end; records in {out / 'records.jsonl'}"
    )
    return {"finished": len(done.records) - len(failed), "failed": len(failed), "left": done.left, "jobs": done.jobs}


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
) -> Any:
    """Draw an experiment's results: accuracy against what was varied, and annotator maps."""
    from crowdwise.tasks.bench import draw

    paths = draw(experiment, out=out, records=records, to=to, form=form)
    for path in paths:
        say(str(path))
    return paths


@app.command("list")
@verb
def list_experiments() -> Any:
    """List the experiments that come with crowdwise."""
    from crowdwise.tasks.bench import experiments

    rows = [[each.name, each.description, str(len(each.cells()))] for each in experiments()]
    show_table("experiments", ("name", "what it is", "runs"), rows, right=("runs",))
    return [{"name": name, "description": description, "runs": int(runs)} for name, description, runs in rows]


def _training(cell: Cell) -> str:
    """The command that trains what a run was about, on all annotations."""
    files = [(name, cell.data.get(name)) for name in ("inputs", "annotations", "ids")]
    words = ["crowdwise", "train", "--method", cell.method]
    words += [word for name, value in files if value is not None for word in (f"--{name}", str(value))]
    words += [word for key, value in cell.parameters.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return shlex.join([*words, "-o", f"runs/{cell.dataset}-{cell.method}"])


def _show(made: Any, form: Format) -> None:
    from crowdwise.bench import rendering

    if not for_people():
        return
    if form is Format.terminal:
        rendering.show(made)
    else:
        say({"markdown": rendering.to_markdown, "latex": rendering.to_latex, "csv": rendering.to_csv}[form](made))


@contextmanager
def _display(cells: Sequence[Cell]) -> Iterator[Watch]:
    """On a terminal a live table of what runs, elsewhere a line for each run that ends."""
    names = {cell.id: f"{cell.column}, {cell.row}, seed {cell.seed}" for cell in cells}

    def line(status: Status, record: dict[str, Any] | None) -> None:
        if record is not None:
            done = status.finished + len(status.failed)
            place = f"[{done}/{status.total}] {names[record['cell']]}"
            print(f"{place}: {_outcome(record)}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield line
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def picture(status: Status) -> Table:
        left = status.total - status.finished - len(status.failed)
        title = f"{status.finished} of {status.total} runs finished"
        if status.failed:
            title += f", {len(status.failed)} failed"
        if status.seconds and left:
            minutes = statistics.median(status.seconds) * left / max(len(status.running), 1) / 60
            title += f", about {minutes:.0f} minutes left"
        shown = Table("running", "stage", title=title, title_justify="left", box=None)
        for cell_id, stage in status.running.items():
            shown.add_row(Text(names[cell_id]), Text(stage))
        return shown

    with Live(console=Console(stderr=True), refresh_per_second=4) as live:

        def watch(status: Status, record: dict[str, Any] | None) -> None:
            if record is not None:
                live.console.print(f"{names[record['cell']]}: {_outcome(record)}", markup=False, highlight=False)
            live.update(picture(status))

        yield watch


def _outcome(record: dict[str, Any]) -> str:
    if "error" in record:
        return f"failed: {record['error']}"
    facts = [f"{record['test_accuracy']:.2f} %"] if "test_accuracy" in record else []
    if "heldout_log_likelihood" in record:
        facts.append(f"log-likelihood of held-out votes {record['heldout_log_likelihood']:.4f}")
    warned = [f"warning: {text}" for text in record.get("warnings", ())]
    return ", ".join([*facts, f"{record['seconds']:.1f} s", *warned])
