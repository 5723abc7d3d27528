"""The notes below a table: what was not measured, not run, or failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crowdwise.bench import paper
from crowdwise.bench.results import TableCell, TableColumn
from crowdwise.bench.selection import Place, Runs, value_of


def unmeasured_rows(runs: Runs, metrics: Sequence[str]) -> list[str]:
    """Rows with finished runs, none of which has any of the metrics."""
    measured = {
        row: any(value_of(record, metric) is not None for record in runs.of_row(row) for metric in metrics)
        for _, row in runs.finished
    }
    return [row for row, some in measured.items() if not some]


def missing_metric(
    cells: Mapping[Place, TableCell], columns: Sequence[TableColumn], rows: Sequence[str], everywhere: Sequence[str]
) -> list[str]:
    found = [
        f"{row} ({column.name})"
        for row in rows
        for column in columns
        if not column.average and cells[column.name, row].status == "not measured"
    ]
    return [f"Not measured: {', '.join([*everywhere, *found])}."] if everywhere or found else []


def not_run(
    runs: Runs, figures: Mapping[str, Mapping[str, object]], planned: Sequence[tuple[str, str, int]] | None
) -> list[str]:
    """Planned runs without a record; columns that lack the same runs share a line."""
    wanted: dict[str, dict[str, list[int]]] = {}
    if planned is not None:
        for column, row, seed in planned:
            wanted.setdefault(column, {}).setdefault(row, []).append(seed)
    else:
        for column in dict.fromkeys([*runs.columns, *(name for name in figures if not paper.is_average(name))]):
            wanted[column] = {row: runs.seeds(column) for row in (*runs.rows, *figures.get(column, ()))}
    lines: dict[str, list[str]] = {}
    for column, rows in wanted.items():
        missing = []
        for row, seeds in rows.items():
            there = {*runs.finished.get((column, row), {}), *runs.failed.get((column, row), {})}
            absent = [seed for seed in seeds if seed not in there]
            if absent:
                missing.append(f"{row} ({_ranges(absent)})" if there else row)
        if column not in runs.columns:
            lines.setdefault("everything", []).append(column)
        elif missing:
            lines.setdefault(", ".join(missing), []).append(column)
    return [f"{', '.join(columns)}: {text}" for text, columns in lines.items()]


def failures(runs: Runs) -> tuple[str, ...]:
    return tuple(
        f"{column}, {row}, seed {seed}: {error}"
        for (column, row), seeds in runs.failed.items()
        for seed, error in sorted(seeds.items())
    )


def warned(runs: Runs) -> list[str]:
    """Runs whose classifier learnt nothing of use, or whose training gave other cause for a warning."""
    return [
        f"Warning, {column}, {row}, seed {seed}: {text}"
        for (column, row), seeds in runs.finished.items()
        for seed, record in sorted(seeds.items())
        for text in record.get("warnings") or ()
    ]


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds as ranges: "seeds 0-4, 7"."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"seed {text}" if len(seeds) == 1 else f"seeds {text}"
