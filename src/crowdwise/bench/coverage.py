"""What of the paper's tables and figures has been run, and what is missing: cells of a table, and the runs they lack."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from crowdwise import datasets
from crowdwise.bench import paper
from crowdwise.bench.cells import Cell
from crowdwise.bench.experiments import Experiment, load_experiment
from crowdwise.bench.selection import Record
from crowdwise.registry import METHODS

Lack: TypeAlias = Literal["no record", "too few seeds", "fewer epochs", "complete"]
LACKS: tuple[Lack, ...] = ("no record", "too few seeds", "fewer epochs")
"""In the order in which they are filled."""
TABLES = tuple(f"table{number}" for number in paper.TITLES)
FIGURES = ("groups", "sparsity")
STAND_INS = ("small-neighbours", "small-groups", "small-sparsity")
"""Table 7 and the figures on data that a CPU can train on."""
AS_PRINTED = ("printed",)
EXPERIMENTS = (*TABLES, *FIGURES, *STAND_INS, *AS_PRINTED)
_BESIDE = ("epochs", "verbose", "device")  # parameters that are compared on their own, or not at all


@dataclass(frozen=True)
class TableEntry:
    """One figure of a table, and the runs that it needs and has."""

    experiment: str
    column: str
    row: str
    cells: tuple[Cell, ...]
    """One for each seed."""
    full: frozenset[int]
    """Seeds with a record of all epochs."""
    short: frozenset[int]
    """Seeds whose only records are of fewer epochs."""

    @property
    def lack(self) -> Lack:
        """What the entry lacks most."""
        if len(self.full) == len(self.cells):
            return "complete"
        if not self.full and not self.short:
            return "no record"
        return "too few seeds" if self.full else "fewer epochs"

    @property
    def missing(self) -> list[Cell]:
        """The runs without a record of all epochs."""
        return [cell for cell in self.cells if cell.seed not in self.full]

    @property
    def printed(self) -> bool:
        """Whether the paper prints a figure for it."""
        number = paper.table_of(self.experiment)
        return number is not None and self.row in paper.printed(number).get(self.column, {})


def entries(records: Iterable[Record], experiments: Sequence[str] = EXPERIMENTS) -> list[TableEntry]:
    """Every entry of these experiments: of a table of the paper those that it prints, else all."""
    by_run: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if "error" not in record and isinstance(record.get("seed"), int):
            by_run.setdefault((str(record.get("method")), record["seed"]), []).append(record)
    return [entry for name in experiments for entry in _entries(name, by_run)]


@functools.cache
def _places(name: str) -> dict[tuple[str, str], list[Cell]]:
    """The cells of an experiment by column and row: as many seeds as are wanted, and of a table what it prints."""
    experiment, number = load_experiment(name), paper.table_of(name)
    places: dict[tuple[str, str], list[Cell]] = {}
    for cell in experiment.cells(seeds=range(_most_seeds(experiment))):
        printed = number is None or cell.row in paper.printed(number).get(cell.column, {})
        if printed and cell.seed < wanted_seeds(experiment, cell.column, cell.row):
            places.setdefault((cell.column, cell.row), []).append(cell)
    return places


def _entries(name: str, by_run: Mapping[tuple[str, int], list[Record]]) -> list[TableEntry]:
    found = []
    for (column, row), cells in _places(name).items():
        alike = {cell.seed: _alike(cell, by_run.get((cell.method, cell.seed), ())) for cell in cells}
        wanted = cells[0].parameters.get("epochs", 0)
        full = {seed for seed, same in alike.items() if any(_epochs(each, wanted) >= wanted for each in same)}
        short = {seed for seed, same in alike.items() if same} - full
        found.append(TableEntry(name, column, row, tuple(cells), frozenset(full), frozenset(short)))
    return found


def wanted_seeds(experiment: Experiment, column: str, row: str) -> int:
    """How many runs the paper's figure is the mean of; what the experiment says where the paper does not."""
    number, conditions = paper.table_of(experiment.name), paper.conditions(column)
    if number is None or conditions is None or conditions.seeds is None:
        return experiment.seeds
    _, spread = paper.printed(number).get(column, {}).get(row, (0.0, None))
    return experiment.seeds if spread is None else conditions.seeds


def _most_seeds(experiment: Experiment) -> int:
    columns = {cell.column for cell in experiment.cells(seeds=[0])}
    stated = [conditions.seeds or 1 for column in columns if (conditions := paper.conditions(column))]
    return max([experiment.seeds, *stated])


def _alike(cell: Cell, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if is_run_of(cell, record)]


def is_run_of(cell: Cell, record: Record) -> bool:
    """Whether a record has the data, the crowd and the settings of the cell, whatever its number of epochs.

    Settings that a record of an earlier version does not name are not compared.
    """
    if record.get("cell") == cell.id:
        return True
    data = record.get("data") or {"name": record.get("dataset")}
    if not isinstance(data, Mapping) or dict(data) != dict(cell.data):
        return False
    if (record.get("method"), record.get("seed")) != (cell.method, cell.seed):
        return False
    if _crowd(record.get("simulate") or {}) != _crowd(cell.simulate):
        return False
    named = {**(record.get("all_parameters") or {}), **(record.get("parameters") or {})}
    named.setdefault("recipe", "paper")  # the only one that there was
    wanted = {**_defaults(cell.method), **cell.parameters}
    given = set(record.get("parameters") or {}) | set(cell.parameters)
    compared = (given & set(named) & set(wanted)) - set(_BESIDE)
    return all(named[name] == wanted[name] for name in compared if None not in (named[name], wanted[name]))


def _crowd(simulate: Mapping[str, Any]) -> dict[str, Any]:
    from crowdwise.simulate import aidn

    if not simulate:
        return {}
    parameters = inspect.signature(aidn).parameters.values()
    return {each.name: each.default for each in parameters if each.name not in ("X", "y")} | dict(simulate)


@functools.cache
def _defaults(method: str) -> dict[str, Any]:
    return {each.name: each.default for each in dataclasses.fields(METHODS[method])}


def _epochs(record: Record, usual: int) -> int:
    value = (record.get("parameters") or {}).get("epochs", usual)
    return value if isinstance(value, int) else usual


def absent(entry: TableEntry) -> bool:
    """Whether the data of the entry are not on this machine."""
    return not datasets.is_here(**entry.cells[0].data)


def needs_gpu(cell: Cell) -> bool:
    """Whether a run of the cell takes most of a day or longer on a CPU: one of a residual network."""
    return str(cell.parameters.get("backbone", "")).startswith("resnet")


def to_fill(found: Sequence[TableEntry], *, gpu: bool) -> list[Cell]:
    """The missing runs that this machine can do, each once: entries without a record first, seed by seed."""
    cells: dict[str, Cell] = {}
    for lack in LACKS:
        lacking = [entry for entry in found if entry.lack == lack and not absent(entry)]
        missing = [cell for entry in lacking for cell in entry.missing if gpu or not needs_gpu(cell)]
        for cell in sorted(missing, key=lambda cell: cell.seed):  # stable: entries stay in their order
            cells.setdefault(cell.id, cell)
    return list(cells.values())
