"""What is said beside a table: departures from the paper, what is missing, what failed, how near the figures are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from crowdwise.bench import paper
from crowdwise.bench.results import Cell, Column
from crowdwise.bench.selection import Metric, Place, Record, Runs, value_of


def departures(records: Iterable[Record], wanted: paper.Conditions | None, metric: Metric) -> tuple[str, ...]:
    """What is not as in the paper, of runs that differ in their seed; and where costs were measured."""
    records = list(records)
    found: list[str] = []
    if metric.cost:
        where = {
            f"on {one.get('device', 'an unknown device')}, sharing: {one.get('sharing', 'unknown')}" for one in records
        }
        found.append("; ".join(sorted(where)))
    if wanted is None:
        return tuple(found)
    for name, value, text in (("epochs", wanted.epochs, "{} epochs"), ("lr", wanted.lr, "lr {}")):
        values = [one["parameters"][name] for one in records if name in (one.get("parameters") or {})]
        given = {value for value in values if isinstance(value, int | float)}
        if given - {value}:
            found.append(f"{text.format(' and '.join(map(str, sorted(given))))} instead of {value}")
    if wanted.seeds not in (None, len(records)):
        found.append(f"{len(records)} {'seed' if len(records) == 1 else 'seeds'} instead of {wanted.seeds}")
    return tuple(found)


def share_departures(cells: Mapping[Place, Cell], columns: Sequence[str], remarks: list[str]) -> dict[Place, Cell]:
    """Departures that every cell of ``columns`` has become one remark."""
    filled = [set(cell.departures) for (column, _), cell in cells.items() if cell.values and column in columns]
    everywhere = set.intersection(*filled) if len(filled) > 1 else set()
    if everywhere:
        remarks.append(f"Everywhere: {', '.join(sorted(everywhere))}.")
    return {
        place: replace(cell, departures=tuple(one for one in cell.departures if one not in everywhere))
        for place, cell in cells.items()
    }


def unmeasured_rows(runs: Runs, metrics: Sequence[str]) -> list[str]:
    """Rows of which runs have finished, none with any of the metrics."""
    measured = {
        row: any(value_of(record, metric) is not None for record in runs.of_row(row) for metric in metrics)
        for _, row in runs.finished
    }
    return [row for row, some in measured.items() if not some]


def missing_metric(
    cells: Mapping[Place, Cell], columns: Sequence[Column], rows: Sequence[str], everywhere: Sequence[str]
) -> list[str]:
    found = [
        f"{row} ({column.name})"
        for row in rows
        for column in columns
        if not column.average and cells[column.name, row].status == "not measured"
    ]
    return [f"Not measured: {', '.join([*everywhere, *found])}."] if everywhere or found else []


def nearness(cells: Mapping[Place, Cell], columns: Sequence[str]) -> list[str]:
    judged = [cell.near for (column, _), cell in cells.items() if column in columns and cell.near is not None]
    if not judged:
        return []
    return [
        f"{sum(judged)} of {len(judged)} cells lie within 2 max(sd, 0.5) of the paper's figure "
        "(figures known to be wrong are left out)."
    ]


def not_run(
    runs: Runs, figures: Mapping[str, Mapping[str, object]], planned: Sequence[tuple[str, str, int]] | None
) -> list[str]:
    """Planned runs without a record, a line for columns that lack the same."""
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
                missing.append(f"{row} ({_numbers(absent)})" if there else row)
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


def _numbers(seeds: Sequence[int]) -> str:
    """Seeds as ranges: "seeds 0-4, 7"."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"seed {text}" if len(seeds) == 1 else f"seeds {text}"
