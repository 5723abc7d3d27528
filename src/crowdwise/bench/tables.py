"""Tables from records: mean and standard deviation over seeds, the best rows, and the paper's figures.

>>> def run(row, seed, accuracy):
...     return {"experiment": "mine", "column": "birds", "row": row, "seed": seed, "test_accuracy": accuracy}
>>> table = summarise([run("CE", s, 80 + s % 2) for s in range(4)] + [run("TAIDTM", s, 90 + s) for s in range(4)])
>>> cell = table.cells["birds", "TAIDTM"]
>>> cell.mean, round(cell.sd, 3), cell.mark
(91.5, 1.291, 'best')
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from crowdwise.bench import paper
from crowdwise.bench.comparison import LEAST_SEEDS, LEVEL, paired
from crowdwise.bench.paper import reproduction
from crowdwise.bench.results import Mark, ResultTable, TableCell, TableColumn
from crowdwise.bench.selection import HELD_OUT, METRICS, Metric, Place, Record, Runs, metric_of, select, value_of
from crowdwise.data.shares import holm
from crowdwise.errors import DataError


def summarise(
    records: Iterable[Record],
    metric: str = "test_accuracy",
    *,
    experiment: str | None = None,
    planned: Iterable[tuple[str, str, int]] | None = None,
) -> ResultTable:
    """Results of an experiment: a row for each method, a column for each setting, and averages over settings.

    The best mean of a column is marked, and so are the rows that a paired t-test over common seeds (two-sided, 5 %)
    cannot distinguish from it. Rows are compared one by one: correcting for their number would take more seeds than
    experiments have, and mark rows that are far behind; `TableCell.p_holm` holds the corrected p. A column whose best row
    has fewer than three seeds has no marks; nor have rows with fewer than three seeds in common with the best.

    Experiments "table1" to "table8" get the paper's figures (of test accuracy), and footnotes where conditions differ.
    Parameters that a record does not name are not compared.

    Args:
        records: as written by a benchmark; of one experiment, or of several with ``experiment``.
        metric: a key of `METRICS`, e.g. ``"transition_error"`` for how well T(x) was estimated.
        experiment: which one.
        planned: column, row and seed of the runs that should be there; by default every row with every seed of its
            column, and the rows and columns of the paper's table.
    """
    measure = metric_of(metric)
    runs = select(records, experiment)
    good = runs.records
    if good and all(value_of(record, metric) is None for record in good):
        raise DataError(f"no record of {runs.experiment!r} has {metric}{_alternative(good)}")
    number = paper.table_of(runs.experiment)
    figures = paper.printed(number) if number else {}
    plan = None if planned is None else list(planned)
    settings = _ordered(runs.columns, [*(place[0] for place in plan or ()), *figures])
    known = [*(place[1] for place in plan or ()), *(row for column in figures.values() for row in column)]
    unmeasured = unmeasured_rows(runs, [metric])
    rows = _ordered([row for row in runs.rows if row not in unmeasured], known)
    shown = figures if metric == "test_accuracy" else {}
    cells: dict[Place, TableCell] = {}
    for column in settings:
        for row in rows:
            cell = _cell(runs, column, row, measure)
            if cell.mean is not None:
                wanted = paper.conditions(column) if number else None
                runs_of_cell = runs.finished[column, row].values()
                cell = replace(cell, departures=reproduction.departures(runs_of_cell, wanted, measure))
            cells[column, row] = _beside(cell, number, shown, column, row)
    columns = list(settings)
    averages = _averages(settings, figures)
    for average, over in averages.items():
        columns.insert(columns.index(over[-1]) + 1, average)
        of = len(paper.averaged(average, figures)) if figures else len(over)
        for row in rows:
            cell = _average([cells[column, row] for column in over], of)
            cells[average, row] = _beside(cell, number, shown if len(over) == of else {}, average, row)
    notes = _mark_columns(cells, columns, rows, measure)
    layout = [_column(name, measure, columns, name in averages) for name in columns]
    everywhere = reproduction.common_departures(cells, settings)
    if everywhere:
        notes.append(f"Everywhere: {', '.join(sorted(everywhere))}.")
    cells = reproduction.without(cells, everywhere)
    return ResultTable(
        title=f"{_title(runs.experiment)}: {measure.label}",
        experiment=runs.experiment,
        columns=tuple(layout),
        rows=tuple(rows),
        cells=cells,
        notes=(
            *notes,
            *missing_metric(cells, layout, rows, unmeasured),
            *reproduction.nearness(cells, settings),
            *warned(runs),
        ),
        not_run=tuple(not_run(runs, figures, plan)),
        failed=failures(runs),
    )


def rank(records: Iterable[Record], metrics: Sequence[str] = HELD_OUT, *, experiment: str | None = None) -> ResultTable:
    """Rank methods on data without true labels by how well they predict held-out labels, best first.

    There is a column for each setting and each metric measured there. Rows are sorted by the first column; marks are as
    in :func:`summarise`.
    """
    runs = select(records, experiment)
    cells: dict[Place, TableCell] = {}
    columns: list[TableColumn] = []
    unmeasured = unmeasured_rows(runs, metrics)
    rows = [row for row in runs.rows if row not in unmeasured]
    notes: list[str] = []
    for setting in runs.columns:
        for measure in map(metric_of, metrics):
            found = {row: _cell(runs, setting, row, measure) for row in rows}
            if all(cell.mean is None for cell in found.values()):
                continue
            name = f"{setting}|{measure.label}"
            columns.append(TableColumn(name, measure, group=setting, label=measure.label))
            cells |= {(name, row): cell for row, cell in found.items()}
            notes += _mark_columns(cells, [name], rows, measure)
            for row, place in _ranks(cells, name, rows, measure).items():
                cells[name, row] = replace(cells[name, row], rank=place)
    if not columns:
        raise DataError(f"no record of {runs.experiment!r} has any of {', '.join(metrics)}")
    first = columns[0].name
    return ResultTable(
        title=f"{_title(runs.experiment)}: ranking",
        experiment=runs.experiment,
        columns=tuple(columns),
        rows=tuple(sorted(rows, key=lambda row: cells[first, row].rank or len(rows) + 1)),
        cells=cells,
        notes=(*notes, *missing_metric(cells, columns, rows, unmeasured), *warned(runs)),
        not_run=tuple(not_run(runs, {}, None)),
        failed=failures(runs),
    )


def _cell(runs: Runs, column: str, row: str, metric: Metric) -> TableCell:
    finished = runs.finished.get((column, row), {})
    found = {seed: value_of(finished[seed], metric.name) for seed in sorted(finished)}
    values = {seed: value for seed, value in found.items() if value is not None}
    if values:
        sd = statistics.stdev(values.values()) if len(values) > 1 else None
        return TableCell(values, statistics.fmean(values.values()), sd)
    if finished:
        return TableCell(status="not measured")
    return TableCell(status="failed" if (column, row) in runs.failed else "not run")


def _average(cells: Sequence[TableCell], of: int) -> TableCell:
    """Mean of the columns' means, if every column has one; the paper's average is over ``of`` columns."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    if len(means) < len(cells):
        return TableCell(status=next(cell.status for cell in cells if cell.status))
    common = sorted(set.intersection(*(set(cell.values) for cell in cells)))
    values = {seed: statistics.fmean(cell.values[seed] for cell in cells) for seed in common}
    fewer = (f"average of {len(cells)} of the paper's {of} columns",) if len(cells) < of else ()
    return TableCell(values, statistics.fmean(means), departures=fewer)


def _averages(columns: Sequence[str], figures: Mapping[str, object]) -> dict[str, list[str]]:
    """Averages and their columns: the paper's, or of columns that differ only in their last part."""
    if figures:
        found = {name: paper.averaged(name, figures) for name in figures if paper.is_average(name)}
    else:
        groups = {name.rpartition("|")[0]: None for name in columns}
        found = {
            f"{group}|Avg" if group else "Avg": [name for name in columns if name.rpartition("|")[0] == group]
            for group in groups
        }
    present = {name: [column for column in over if column in columns] for name, over in found.items()}
    return {name: over for name, over in present.items() if len(over) > 1 and name not in columns}


def _beside(
    cell: TableCell, table: int | None, figures: Mapping[str, Mapping[str, paper.Printed]], column: str, row: str
) -> TableCell:
    """The cell with the printed figure beside it."""
    if table is None or row not in figures.get(column, {}):
        return cell
    return replace(cell, printed=figures[column][row], notes=tuple(paper.notes(table, column, row)))


def _mark_columns(
    cells: dict[Place, TableCell], columns: Sequence[str], rows: Sequence[str], metric: Metric
) -> list[str]:
    """Mark the best of each column and those like it, in place; return notes on what could not be compared."""
    few: list[str] = []
    left_out: list[str] = []
    for column in columns:
        found = {row: cells[column, row] for row in rows if cells[column, row].mean is not None}
        if len(found) < 2:
            continue
        sign = 1.0 if metric.larger_is_better else -1.0
        best = max(found, key=lambda row: sign * (found[row].mean or 0.0))
        if len(found[best].values) < LEAST_SEEDS:
            few.append(column)
            continue
        cells[column, best] = replace(found[best], mark="best")
        compared = {row: paired(found[best].values, cell.values) for row, cell in found.items() if row != best}
        left_out += [f"{row} ({column})" for row, result in compared.items() if result is None]
        results = {row: result for row, result in compared.items() if result is not None}
        corrected = dict(zip(results, holm(np.array([result.p for result in results.values()])).tolist(), strict=True))
        for row, (difference, p) in results.items():
            worse = p <= LEVEL and sign * difference > 0  # on common seeds, a row can be ahead of the best
            mark: Mark = "" if worse else "like best"
            cells[column, row] = replace(found[row], p=p, p_holm=corrected[row], mark=mark)
    notes = []
    if few:
        notes.append(f"Too few seeds to tell the best apart ({LEAST_SEEDS} are needed): {', '.join(few)}.")
    if left_out:
        notes.append(f"Too few seeds in common with the best, not compared: {', '.join(left_out)}.")
    return notes


def _ranks(cells: Mapping[Place, TableCell], column: str, rows: Sequence[str], metric: Metric) -> dict[str, int]:
    """1 for the best; equal means share a rank."""
    means = {row: mean for row in rows if (mean := cells[column, row].mean) is not None}
    sign = 1.0 if metric.larger_is_better else -1.0
    return {row: 1 + sum(sign * other > sign * mean for other in means.values()) for row, mean in means.items()}


def _ordered(found: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names found, those of ``known`` first and in its order."""
    names, order = dict.fromkeys(found), dict.fromkeys(known)
    return [name for name in order if name in names] + [name for name in names if name not in order]


def _column(name: str, metric: Metric, columns: Sequence[str], average: bool) -> TableColumn:
    group, _, label = name.rpartition("|")
    alone = sum(other.rpartition("|")[0] == group for other in columns) < 2
    return TableColumn(name, metric, "", name, average) if alone else TableColumn(name, metric, group, label, average)


def _title(experiment: str) -> str:
    number = paper.table_of(experiment)
    return f"Table {number}. {paper.TITLES[number]}" if number else experiment


def _alternative(records: Sequence[Record]) -> str:
    measured = [name for name in METRICS if any(value_of(record, name) is not None for record in records)]
    if any(name in measured for name in HELD_OUT):
        return "; without true labels, rank by held-out labels: rank(records)"
    return f"; they have {', '.join(measured)}" if measured else ""


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
