"""Records of cells: each in the folder of its cell, and all of a benchmark in one file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdwise.bench.cells import Cell
from crowdwise.constraints import check_value, shown
from crowdwise.errors import ConfigError, ModelFileError
from crowdwise.storage.documents import read_json, read_json_lines, write_json, write_json_lines

RECORDS = "records.jsonl"
_FIELDS: dict[str, Any] = {  # what tables and figures rely on
    **dict.fromkeys(("row", "column"), str),
    **dict.fromkeys(("experiment", "cell", "method", "dataset", "error"), str | None),
    **dict.fromkeys(("data", "simulate", "parameters"), Mapping[str, Any] | None),
    "seed": int | None,
    "curve": list[Any] | None,
    "warnings": list[str] | None,
    "seconds": float | None,
}


def folder_of(out: Path, cell: Cell) -> Path:
    """The folder of a cell's record and run."""
    return out / "cells" / cell.id


def shared_of(out: Path, cell: Cell) -> Path:
    """The folder of the stages that a cell's family shares."""
    return out / "shared" / cell.family


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a cell, or of its failure; None if there is neither, or it cannot be read."""
    for name in ("record.json", "failed.json"):
        with suppress(ModelFileError):
            record = read_json(folder / name)
            if isinstance(record, dict) and record.get("cell") == folder.name:
                return record
    return None


def fail(cell: Cell, out: Path, message: str, trace: str) -> dict[str, Any]:
    """Record that a cell failed."""
    record = cell.as_json() | {"cell": cell.id, "error": message, "traceback": trace}
    write_json(folder_of(out, cell) / "failed.json", record)
    return record


class RecordLog:
    """The records of a folder and its ``records.jsonl``: the cells of this run, and other cells of earlier runs."""

    def __init__(self, cells: Sequence[Cell], out: Path) -> None:
        self.places, self.out = cells, out
        self.cells = {cell.id: cell for cell in cells}
        found = {cell.id: read_record(folder_of(out, cell)) for cell in self.cells.values()}
        self.found = {cell: record for cell, record in found.items() if record is not None}
        self.others = self._elsewhere()
        self.write()

    def add(self, record: dict[str, Any]) -> None:
        self.found[record["cell"]] = record
        self.write()

    def records(self) -> list[dict[str, Any]]:
        """Records of this run's cells, in their order; a cell at several places of a table has a record for each."""
        return [
            self.found[cell.id] | {"experiment": cell.experiment, "column": cell.column, "row": cell.row}
            for cell in self.places
            if cell.id in self.found
        ]

    def write(self) -> None:
        write_json_lines(self.out / RECORDS, [*self.others, *self.records()])

    def _elsewhere(self) -> list[dict[str, Any]]:
        """Records of earlier runs, of other cells and at other places."""
        try:
            earlier = read_records(self.out)
        except (ConfigError, ModelFileError):  # missing or damaged: the cells' own records count
            return []
        taken = {(cell.experiment, cell.column, cell.row, cell.seed) for cell in self.places}
        places = (tuple(record.get(key) for key in ("experiment", "column", "row", "seed")) for record in earlier)
        others = [record for record, place in zip(earlier, places, strict=True) if place not in taken]
        others = [record for record in others if record.get("cell") not in self.cells]
        return [record for record in others if (self.out / "cells" / str(record.get("cell"))).is_dir()]


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records from a file of JSON lines, or from the folder of a benchmark."""
    path = path / RECORDS if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"{path}: there are no records; `crowdwise bench run` writes them")
    records = []
    for place, record in read_json_lines(path):
        if not isinstance(record, dict) or "row" not in record or "column" not in record:
            raise ModelFileError(f"{place} is no record of a benchmark: it has no row and column")
        for name, kind in _FIELDS.items():
            check_value(f"{place}: {name}", record.get(name), kind, ModelFileError)
        cell = record.get("cell")
        if cell is not None and (cell != Path(cell).name or "\0" in cell):  # it names a folder
            raise ModelFileError(f"{place}: cell must be a plain name, got {shown(cell)}")
        records.append(record)
    return records
