"""How a result compares with the paper: conditions that differ, and how many figures come near."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from crowdwise.bench.paper import Conditions
from crowdwise.bench.results import TableCell
from crowdwise.bench.selection import Metric, Place, Record


def departures(records: Iterable[Record], wanted: Conditions | None, metric: Metric) -> tuple[str, ...]:
    """Where runs that differ only by seed depart from the paper's conditions, and where costs were measured."""
    records = list(records)
    found: list[str] = []
    if metric.cost:
        where = {f"on {r.get('device', 'an unknown device')}, sharing: {r.get('sharing', 'unknown')}" for r in records}
        found.append("; ".join(sorted(where)))
    if wanted is None:
        return tuple(found)
    for name, value, text in (("epochs", wanted.epochs, "{} epochs"), ("lr", wanted.lr, "lr {}")):
        values = [record["parameters"][name] for record in records if name in (record.get("parameters") or {})]
        given = {value for value in values if isinstance(value, int | float)}
        if given - {value}:
            found.append(f"{text.format(' and '.join(map(str, sorted(given))))} instead of {value}")
    if wanted.seeds not in (None, len(records)):
        found.append(f"{len(records)} {'seed' if len(records) == 1 else 'seeds'} instead of {wanted.seeds}")
    return tuple(found)


def common_departures(cells: Mapping[Place, TableCell], columns: Sequence[str]) -> set[str]:
    """Departures that every measured cell of ``columns`` has."""
    measured = [set(cell.departures) for (column, _), cell in cells.items() if cell.values and column in columns]
    return set.intersection(*measured) if len(measured) > 1 else set()


def without(cells: Mapping[Place, TableCell], departures: set[str]) -> dict[Place, TableCell]:
    """The cells without these departures, which a note below the table states once."""
    return {
        place: replace(cell, departures=tuple(one for one in cell.departures if one not in departures))
        for place, cell in cells.items()
    }


def nearness(cells: Mapping[Place, TableCell], columns: Sequence[str]) -> list[str]:
    """How many cells lie near the paper's figure, as a note."""
    judged = [cell.near for (column, _), cell in cells.items() if column in columns and cell.near is not None]
    if not judged:
        return []
    return [
        f"{sum(judged)} of {len(judged)} cells lie within 2 max(sd, 0.5) of the paper's figure "
        "(figures known to be wrong are left out)."
    ]
