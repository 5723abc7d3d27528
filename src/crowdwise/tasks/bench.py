"""Run an experiment, and make tables and figures of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crowdwise.bench import coverage, filling, runner
from crowdwise.bench.cells import Cell
from crowdwise.bench.coverage import TableEntry
from crowdwise.bench.experiments import Experiment, load_experiment, names, settable
from crowdwise.bench.filling import Filled
from crowdwise.bench.processes import n_gpus
from crowdwise.bench.records import RECORDS
from crowdwise.bench.runner import Watch
from crowdwise.constraints import PositiveFloat, check_value
from crowdwise.errors import ConfigError, UsageError, spelled, suggest
from crowdwise.registry import METHODS
from crowdwise.storage.documents import read_json_lines
from crowdwise.tasks.parameters import check_parameters, refuse_unknown

Records = list[dict[str, Any]]
FILLED = Path("bench/paper")
"""The folder of the runs that `fill` does."""


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


def missing(
    *, out: str | Path = FILLED, records: Sequence[Path] | None = None, experiments: Sequence[str] = ()
) -> list[TableEntry]:
    """Every entry of the paper's tables and figures, with the runs that it has in the folder ``out`` and in ``records``."""
    for name in experiments:
        if name not in coverage.EXPERIMENTS:
            raise ConfigError(
                f"no experiment of the paper is called {name!r} (there are "
                f"{', '.join(coverage.EXPERIMENTS)}){suggest(name, coverage.EXPERIMENTS)}",
                parameter="experiment",
            )
    folder = Path(out)
    found = runner.read_records(folder) if (folder / RECORDS).is_file() else []
    found += [record for path in records or () for record in any_records(path)]
    return coverage.entries(found, tuple(experiments) or coverage.EXPERIMENTS)


def fill(
    minutes: float,
    *,
    out: str | Path = FILLED,
    records: Sequence[Path] | None = None,
    experiments: Sequence[str] = (),
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Filled:
    """Run what `missing` finds and this machine can do, for so many minutes."""
    check_value("minutes", minutes, PositiveFloat)
    entries = missing(out=out, records=records, experiments=experiments)
    cells = coverage.to_fill(entries, gpu=n_gpus() > 0)
    places = [cell for entry in entries for cell in entry.cells]
    return filling.fill(cells, Path(out), 60 * minutes, jobs=jobs, watch=watch, places=places)


@dataclass(frozen=True)
class Summary:
    """What is missing, in words and as data."""

    lines: list[str]
    rows: list[dict[str, Any]]


def summary_of(entries: Sequence[TableEntry]) -> Summary:
    """How many entries are complete, and the others by what they lack; those without data here in a list of their own."""
    lines, rows = _totals(entries), []
    absent = [entry for entry in entries if entry.lack != "complete" and coverage.absent(entry)]
    for heading, lack in (
        ("No record", "no record"),
        ("Too few seeds", "too few seeds"),
        ("Fewer epochs", "fewer epochs"),
    ):
        here = [entry for entry in entries if entry.lack == lack and entry not in absent]
        lines += _listed(f"{heading}: {_entries(here)}", here)
        rows += [_row(entry, lack) for entry in here]
    lines += _listed(f"The data are not on this machine: {_entries(absent)}", absent)
    rows += [_row(entry, "no data") for entry in absent]
    return Summary(lines, rows)


def _totals(entries: Sequence[TableEntry]) -> list[str]:
    """A line for each group of tables: entries, those with a record, those that are complete."""
    groups: dict[str, Sequence[str]] = {
        "Tables 1 to 3": coverage.TABLES[:3],
        "Tables 4 to 8": coverage.TABLES[3:],
        "Figures of groups and sparsity": coverage.FIGURES,
        "Table 7 and these figures on small data": coverage.STAND_INS,
        "Settings as printed": coverage.AS_PRINTED,
    }
    lines = []
    for title, of in groups.items():
        ours = [entry for entry in entries if entry.experiment in of]
        if not ours:
            continue
        some = sum(entry.lack != "no record" for entry in ours)
        complete = sum(entry.lack == "complete" for entry in ours)
        lines.append(f"{title}: {_entries(ours)}, {some} with a record, {complete} complete")
    return lines


def _listed(heading: str, entries: Sequence[TableEntry]) -> list[str]:
    """A heading and a line for each column; columns that lack the same share a line."""
    if not entries:
        return []
    rows: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        counts = f" ({len(entry.full)} of {len(entry.cells)} seeds)" if entry.full else ""
        rows.setdefault((entry.experiment, entry.column), []).append(f"{entry.row}{counts}")
    columns: dict[tuple[str, str], list[str]] = {}
    for (experiment, column), lacking in rows.items():
        columns.setdefault((experiment, ", ".join(lacking)), []).append(column)
    lines = [f"  {name}: {', '.join(found)}: {text}" for (name, text), found in columns.items()]
    return ["", heading, *lines]


def _entries(entries: Sequence[TableEntry]) -> str:
    return f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"


def _row(entry: TableEntry, lack: str) -> dict[str, Any]:
    return {
        "experiment": entry.experiment,
        "column": entry.column,
        "row": entry.row,
        "lack": lack,
        "seeds": len(entry.cells),
        "done": len(entry.full),
        "fewer_epochs": len(entry.short),
        "needs_gpu": coverage.needs_gpu(entry.cells[0]),
    }


def any_records(path: Path) -> Records:
    """The runs among the lines of a file, or of all files of a folder but those of trials, which led to a setting."""
    if not path.exists():
        raise ConfigError(f"{path}: there are no records", parameter="records")
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    kept = [file for file in files if "trials" not in file.stem or file == path]
    lines = [line for file in kept for _, line in read_json_lines(file)]
    return [line for line in lines if isinstance(line, dict) and isinstance(line.get("parameters"), dict)]


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
