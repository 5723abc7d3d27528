"""`crowdwise bench`: run an experiment under a live table, and show its results."""

from __future__ import annotations

import functools
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdwise.bench import runner
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import Experiment, load_experiment, names, settable
from crowdwise.bench.pool import Pool
from crowdwise.bench.processes import Processes
from crowdwise.bench.runner import Status, Watch
from crowdwise.cli import _settings
from crowdwise.cli._console import complain, say, show_table
from crowdwise.errors import ConfigError
from crowdwise.registry import METHODS


def _pool(ray: str | None, gpus: float | None) -> Callable[..., Pool]:
    """Processes of this machine, or Ray."""
    if ray is None:
        return Processes
    from crowdwise.cluster import RayPool

    return functools.partial(RayPool, address=ray, gpus=gpus)


def run(
    name: str,
    *,
    datasets: Sequence[str],
    methods: Sequence[str],
    noise_rates: Sequence[float],
    seeds: int | None,
    first_seed: int,
    settings: Sequence[str],
    jobs: int | None,
    ray: str | None,
    gpus_per_run: float | None,
    out: Path | None,
) -> None:
    experiment = load_experiment(name)
    overrides = _settings.parse(settings)
    _settings.refuse_unknown("--set", overrides, {name for method in METHODS for name in settable(method)})
    numbers = range(first_seed, first_seed + (seeds if seeds is not None else experiment.seeds))
    cells = experiment.cells(
        datasets=datasets, methods=methods, noise_rates=noise_rates, seeds=numbers, parameters=overrides
    )
    for cell in cells:
        _settings.check_parameters(cell.method, cell.parameters)
    folder = _folder(experiment, out)
    count = f"{len(cells)} run{'s' if len(cells) > 1 else ''}"
    say(f"{experiment.name}: {experiment.description or 'an experiment'}; {count} in {folder}")
    try:
        with _display(cells) as watch:
            records = runner.run(cells, folder, jobs=jobs, watch=watch, pool=_pool(ray, gpus_per_run))
    except KeyboardInterrupt:
        again = shlex.join(["crowdwise", *sys.argv[1:]])
        raise KeyboardInterrupt(f"finished runs are kept; go on with  {again}") from None
    failed = [record for record in records if "error" in record]
    if len(failed) < len(records):
        _show(experiment, _records(experiment, out, None), "terminal", "auto", None)
    for record in failed:
        complain("failed", f"{record['column']}, {record['row']}, seed {record['seed']}: {record['error']}")
    if failed:
        raise ConfigError(f"{len(failed)} of {len(records)} runs failed; run the same command to try them again")


def table(name: str, form: str, metric: str, out: Path | None, files: Sequence[Path] | None, to: Path | None) -> None:
    experiment = load_experiment(f"table{name}" if name.isdigit() else name)
    _show(experiment, _records(experiment, out, files), form, metric, to)


def figures(name: str, out: Path | None, files: Sequence[Path] | None, to: Path | None, form: str) -> None:
    from crowdwise.bench import figures as drawing

    experiment = load_experiment(name)
    folder = _folder(experiment, out)
    records = [record for record in _records(experiment, out, files) if "error" not in record]
    target = to if to is not None else folder / "figures"
    drawn = []
    for x in drawing.varied(records):
        drawn.append(drawing.save(drawing.accuracy_curves(records, x), target / f"accuracy-{x}.{form}"))
    paths = [
        folder / "cells" / record["cell"] / "map.npz" for record in records if record["seed"] == records[0]["seed"]
    ]
    maps = [drawing.read_map(path) for path in paths if path.exists()]
    for number, start in enumerate(range(0, len(maps), drawing.MOST_PANELS), start=1):
        figure = drawing.annotator_maps(maps[start : start + drawing.MOST_PANELS])
        drawn.append(drawing.save(figure, target / f"annotator-maps-{number}.{form}"))
    if not drawn:
        raise ConfigError(
            f"experiment {experiment.name!r} has nothing to draw: no setting varies, and no run has a map"
        )
    for path in drawn:
        say(str(path))


def list_experiments() -> None:
    rows = []
    for name in names():
        experiment = load_experiment(name)
        rows.append([name, experiment.description, str(len(experiment.cells()))])
    show_table("experiments", ("name", "what it is", "runs"), rows, right=("runs",))


def _show(experiment: Experiment, records: Sequence[dict[str, Any]], form: str, metric: str, to: Path | None) -> None:
    """The table of what was run: of the metric, or by default of accuracy, and without truth of held-out votes."""
    from crowdwise.bench import rendering, tables

    if metric == "auto" and not any("test_accuracy" in record for record in records):
        made = tables.rank(records, experiment=experiment.name)
    else:
        planned = [(cell.column, cell.row, cell.seed) for cell in experiment.cells()]
        wanted = "test_accuracy" if metric == "auto" else metric
        made = tables.summarise(records, wanted, experiment=experiment.name, planned=planned)
    if to is not None:
        say(str(rendering.write(made, to)))
    elif form == "terminal":
        rendering.show(made)
    else:
        say({"markdown": rendering.to_markdown, "latex": rendering.to_latex, "csv": rendering.to_csv}[form](made))


def _records(experiment: Experiment, out: Path | None, files: Sequence[Path] | None) -> list[dict[str, Any]]:
    if files:
        records = [record for file in files for record in runner.read_records(file)]
        return [record for record in records if record.get("experiment") == experiment.name] or records
    return runner.read_records(_folder(experiment, out))


def _folder(experiment: Experiment, out: Path | None) -> Path:
    return out if out is not None else Path("bench") / experiment.name


@contextmanager
def _display(cells: Sequence[Cell]) -> Iterator[Watch]:
    """On a terminal a live table of what runs, elsewhere a line for each run that ends."""
    by_id = {cell.id: cell for cell in cells}

    def describe(cell_id: str) -> str:
        cell = by_id[cell_id]
        return f"{cell.column}, {cell.row}, seed {cell.seed}"

    def line(status: Status, record: dict[str, Any] | None) -> None:
        if record is not None:
            done = status.finished + len(status.failed)
            print(
                f"[{done}/{status.total}] {describe(record['cell'])}: {_outcome(record)}", file=sys.stderr, flush=True
            )

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
        shown = Table(title=title, title_justify="left", box=None)
        for heading in ("running", "stage"):
            shown.add_column(heading)
        for cell_id, stage in status.running.items():
            shown.add_row(Text(describe(cell_id)), Text(stage))
        return shown

    with Live(console=Console(stderr=True), refresh_per_second=4) as live:

        def watch(status: Status, record: dict[str, Any] | None) -> None:
            if record is not None:
                live.console.print(f"{describe(record['cell'])}: {_outcome(record)}", markup=False, highlight=False)
            live.update(picture(status))

        yield watch


def _outcome(record: dict[str, Any]) -> str:
    if "error" in record:
        return f"failed: {record['error']}"
    facts = [f"{record['test_accuracy']:.2f} %"] if "test_accuracy" in record else []
    if "heldout_log_likelihood" in record:
        facts.append(f"log-likelihood of held-out votes {record['heldout_log_likelihood']:.4f}")
    return ", ".join([*facts, f"{record['seconds']:.1f} s"])
