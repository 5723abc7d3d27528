"""Run an experiment, and make tables and figures of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crowdwise.bench import runner
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import Experiment, load_experiment, names, settable
from crowdwise.bench.runner import Watch
from crowdwise.errors import ConfigError, UsageError, spelled
from crowdwise.registry import METHODS
from crowdwise.tasks.parameters import check_parameters, refuse_unknown

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Benchmark:
    """The runs of an experiment that were chosen, and where they are kept."""

    experiment: Experiment
    cells: list[Cell]
    folder: Path

    def run(
        self,
        *,
        jobs: int | None = None,
        ray: str | None = None,
        workers: int | None = None,
        gpus_per_run: float | None = None,
        watch: Watch | None = None,
    ) -> Records:
        """The records of all runs; those that were finished earlier are not run again.

        ``jobs`` run at a time on this machine, or ``workers`` on Ray.
        """
        if ray is None:
            return runner.run(self.cells, self.folder, jobs=jobs, watch=watch)
        from crowdwise.cluster import RayPool

        pool = partial(RayPool, address=ray, gpus=gpus_per_run)
        return runner.run(self.cells, self.folder, jobs=workers, watch=watch, pool=pool)


def best(benchmark: Benchmark, made: Any) -> Cell | None:
    """A run of the method that a ranking of the user's own files puts first; None where there is no such ranking."""
    first = made.cells[made.columns[0].name, made.rows[0]].rank == 1
    cells = [cell for cell in benchmark.cells if cell.row == made.rows[0] and cell.data.get("inputs") is not None]
    return cells[0] if first and len({cell.column for cell in cells}) == 1 else None


def plan(
    name: str | Path,
    *,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    noise_rates: Sequence[float] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> Benchmark:
    """An experiment by name or from a TOML file, or the chosen part of it; ``settings`` override parameters."""
    experiment = load_experiment(name)
    settings = dict(settings or {})
    refuse_unknown("parameters of the methods", settings, {key for method in METHODS for key in settable(method)})
    numbers = range(first_seed, first_seed + (seeds if seeds is not None else experiment.seeds))
    cells = experiment.cells(
        datasets=datasets, methods=methods, noise_rates=noise_rates, seeds=numbers, parameters=settings
    )
    for cell in cells:
        check_parameters(cell.method, cell.parameters)
    return Benchmark(experiment, cells, _folder(experiment, out))


def check_cluster(ray: str | None, jobs: int | None, workers: int | None, gpus_per_run: float | None) -> None:
    """Refuse parameters of Ray without Ray, and the other way round."""
    if ray is None and (workers is not None or gpus_per_run is not None):
        raise UsageError(
            f"{spelled('workers')} and {spelled('gpus_per_run')} are for Ray: say which with {spelled('ray')}",
            parameter="ray",
        )
    if ray is not None and jobs is not None:
        raise UsageError(
            f"{spelled('jobs')} are of this machine; with {spelled('ray')} say {spelled('workers')}", parameter="jobs"
        )


def table(
    name: str | Path, *, metric: str = "auto", out: str | Path | None = None, records: Sequence[Path] | None = None
) -> Any:
    """The table of an experiment (`crowdwise.bench.tables`): of a metric, by default of accuracy, or without truth a ranking.

    ``name`` may be the number of one of the paper's tables; ``records`` are files that take the place of the folder ``out``.
    """
    from crowdwise.bench import tables

    experiment = load_experiment(f"table{name}" if str(name).isdigit() else name)
    found = _records(experiment, out, records)
    if metric == "auto" and not any("test_accuracy" in record for record in found):
        return tables.rank(found, experiment=experiment.name)
    planned = [(cell.column, cell.row, cell.seed) for cell in experiment.cells()]
    wanted = "test_accuracy" if metric == "auto" else metric
    return tables.summarise(found, wanted, experiment=experiment.name, planned=planned)


def draw(
    name: str | Path,
    *,
    out: str | Path | None = None,
    records: Sequence[Path] | None = None,
    to: str | Path | None = None,
    form: str = "png",
) -> list[Path]:
    """Pictures of an experiment's results: accuracy against what was varied, and annotator maps."""
    from crowdwise.bench import figures

    experiment = load_experiment(name)
    folder = _folder(experiment, out)
    found = [record for record in _records(experiment, out, records) if "error" not in record]
    target = Path(to) if to is not None else folder / "figures"
    drawn = [
        figures.save(figures.accuracy_curves(found, x), target / f"accuracy-{x}.{form}") for x in figures.varied(found)
    ]
    paths = [folder / "cells" / record["cell"] / "map.npz" for record in found if record["seed"] == found[0]["seed"]]
    maps = [figures.read_map(path) for path in paths if path.exists()]
    for number, start in enumerate(range(0, len(maps), figures.MOST_PANELS), start=1):
        figure = figures.annotator_maps(maps[start : start + figures.MOST_PANELS])
        drawn.append(figures.save(figure, target / f"annotator-maps-{number}.{form}"))
    if not drawn:
        raise ConfigError(
            f"experiment {experiment.name!r} has nothing to draw: no setting varies, and no run has a map"
        )
    return drawn


def experiments() -> list[Experiment]:
    """The experiments that come with crowdwise."""
    return [load_experiment(name) for name in names()]


def _records(experiment: Experiment, out: str | Path | None, files: Sequence[Path] | None) -> Records:
    if files:
        records = [record for file in files for record in runner.read_records(file)]
        return [record for record in records if record.get("experiment") == experiment.name] or records
    return runner.read_records(_folder(experiment, out))


def _folder(experiment: Experiment, out: str | Path | None) -> Path:
    return Path(out) if out is not None else Path("bench") / experiment.name
