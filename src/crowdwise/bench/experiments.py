"""Experiments: TOML files that define a grid of columns (data and noise), rows (methods and variants) and seeds.

An experiment has ``description``, ``seeds``, rows as ``methods = [...]`` or as tables ``[rows."NAME"]`` with ``method`` and
parameters, and a table ``[[columns]]`` for each kind of crowd::

    [[columns]]
    label = "F-MNIST|AIDN-{noise_rate:.0%}"
    preset = "fashion-mnist"                 # or: inputs = "X.npy", annotations = "labels.csv", ids = "id"
    vary = { "simulate.noise_rate" = [0.1, 0.2] }
    parameters = { epochs = 20 }             # of every method that has them

Paths are relative to the file. ``annotations`` without ``inputs`` replaces the annotations of a data set. ``paper = 1`` names
the table of the paper that it reproduces.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from crowdwise import presets
from crowdwise.bench.cells import FILES, Cell
from crowdwise.constraints import Interval, check_settings, check_value, parameters_of, refuse_unknown
from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import METHODS
from crowdwise.storage.documents import named_toml, read_as, toml_names

_PARTS = ("simulate", "parameters", "data")
MOST_SEEDS = 10_000
_FORM = re.compile(r"\d{0,2}(\.\d{1,2})?[a-zA-Z%]?")


@dataclass(frozen=True)
class ColumnTable:
    """A table ``[[columns]]``: one kind of crowd, or several that differ in what they ``vary``."""

    label: str | None = None
    preset: str | None = None
    """The name of a preset, or a TOML file."""
    inputs: str | None = None
    annotations: str | None = None
    ids: str | None = None
    methods: Sequence[str] | None = None
    """Of the experiment's methods, those that this column has; by default all."""
    data: Mapping[str, Any] = field(default_factory=dict)
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A named grid of cells."""

    name: str
    description: str = ""
    paper: int | None = None
    """The number of the paper's table."""
    seeds: Annotated[int, Interval(1, MOST_SEEDS)] = 3
    methods: Sequence[str] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``method`` and parameters by name; once loaded, ``methods`` are among them."""
    columns: Sequence[ColumnTable] = ()
    heldout: Annotated[float, Interval(0, 1, open="high")] | None = None
    """Fraction of the annotations held out for evaluation; by default a tenth, if the data are your own files."""
    folder: Path = Path()

    def cells(
        self,
        *,
        datasets: Sequence[str] = (),
        methods: Sequence[str] = (),
        noise_rates: Sequence[float] = (),
        seeds: Sequence[int] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> list[Cell]:
        """The cells of the grid, or those with the given data sets, methods (or row names) and noise rates.

        A registered method that the experiment lacks gets a row of its own. ``parameters`` override those of the experiment,
        in every method that has them.
        """
        chosen = seeds if seeds is not None else range(self.seeds)
        wider = self._with_rows(methods)
        found = [cell for seed in chosen for cell in wider._of_seed(seed, parameters or {})]
        self._refuse_unknown(found, datasets, noise_rates)
        found = [cell for cell in found if not datasets or cell.dataset in datasets]
        found = [cell for cell in found if not methods or cell.method in methods or cell.row in methods]
        rates = [float(rate) for rate in noise_rates]
        found = [cell for cell in found if not rates or float(cell.simulate.get("noise_rate", -1)) in rates]
        if not found:
            raise ConfigError(
                f"experiment {self.name!r} has no such runs: its data sets are "
                f"{_listed(cell.dataset for cell in self._of_seed(0, {}))}, its methods "
                f"{_listed(spec['method'] for spec in self.rows.values())}, its noise rates "
                f"{_listed(cell.simulate.get('noise_rate') for cell in self._of_seed(0, {}))}"
            )
        return found

    def _with_rows(self, methods: Sequence[str]) -> Experiment:
        """With a row for each of the methods that it does not have."""
        known = {name for row, spec in self.rows.items() for name in (row, spec["method"])}
        added = {}
        for name in methods:
            if name in known:
                continue
            if name not in METHODS:
                raise ConfigError(f"unknown method {name!r}{suggest(name, {*known, *METHODS})}", parameter="methods")
            added[title_of(name)] = {"method": name}
        return dataclasses.replace(self, rows={**self.rows, **added})

    def _refuse_unknown(self, cells: Sequence[Cell], datasets: Sequence[str], noise_rates: Sequence[float]) -> None:
        """Refuse data sets and noise rates that no cell has."""
        known = {cell.dataset for cell in cells}
        for name in datasets:
            if name not in known:
                raise ConfigError(
                    f"experiment {self.name!r} has no data set {name!r}{suggest(name, known)}", parameter="datasets"
                )
        rates = dict.fromkeys(cell.simulate.get("noise_rate") for cell in cells)
        for rate in noise_rates:
            if not any(known is not None and float(known) == float(rate) for known in rates):
                raise ConfigError(
                    f"experiment {self.name!r} has no noise rate {rate:g}; its noise rates: {_listed(rates)}",
                    parameter="noise_rates",
                )

    def _of_seed(self, seed: int, parameters: Mapping[str, Any]) -> Iterator[Cell]:
        for column in self.columns:
            preset, own = presets.Preset(""), column.preset
            if own is not None:  # its file is looked for beside the experiment's
                preset = presets.load_preset(self.folder / own if own.endswith(".toml") else own)
            for chosen in itertools.product(*column.vary.values()):
                values = dict(zip(column.vary, chosen, strict=True))
                for row, spec in self.rows.items():
                    ours = column.methods is None or spec["method"] in column.methods
                    if ours or spec["method"] not in self.methods:  # a method that was added later
                        yield self._cell(column, preset, values, row, spec, seed, parameters)

    def _cell(
        self,
        column: ColumnTable,
        preset: presets.Preset,
        values: Mapping[str, Any],
        row: str,
        spec: Mapping[str, Any],
        seed: int,
        overrides: Mapping[str, Any],
    ) -> Cell:
        method = spec["method"]
        known = settable(method)
        varied: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        for key, value in values.items():
            table, _, name = key.partition(".")
            varied[table][name] = value
        common = {**column.parameters, **varied["parameters"], **overrides}
        files = _files(column, self.folder, f"experiment {self.name}")
        names = {key.rpartition(".")[2]: value for key, value in values.items()}
        return Cell(
            experiment=self.name,
            column=_filled(column.label or column.preset or self.name, names, self.name),
            row=row,
            method=method,
            seed=seed,
            data={**preset.data, **column.data, **varied["data"], **files},
            simulate={**preset.simulate, **column.simulate, **varied["simulate"]},
            parameters={
                **preset.method_parameters(method, recipe=spec.get("recipe")),
                **{key: value for key, value in common.items() if key in known},
                **{key: value for key, value in spec.items() if key != "method"},
            },
            heldout=self.heldout if self.heldout is not None else 0.1 * ("inputs" in files),
        )


def names() -> list[str]:
    """The experiments that come with crowdwise.

    >>> "quick" in names()
    True
    """
    return toml_names(*_folders())


def _folders() -> tuple[Traversable, Traversable]:
    """Where the experiments are that come with crowdwise: its own, and those of the paper."""
    bench = resources.files(__package__)
    return bench / "experiments", bench / "paper" / "experiments"


def load_experiment(name: str | Path) -> Experiment:
    """An experiment by name, or from your own TOML file. Unknown keys are errors."""
    label, content = named_toml("experiment", name, *_folders())
    where, folder = f"experiment {label}", Path(name).parent
    experiment = read_as(Experiment, content, where, name=label, folder=folder)
    rows = {title_of(method): {"method": method} for method in experiment.methods} | dict(experiment.rows)
    if not rows or not experiment.columns:
        raise ConfigError(f"{where}: it needs methods (or [rows]) and at least one table [[columns]]")
    for row, spec in rows.items():
        check_value(f"{where}, row {row!r}: method", spec.get("method"), str)
        known = ("method", *settable(spec["method"]))
        check_settings(f"{where}, row {row!r}", spec, METHODS[spec["method"]], known)
    methods = list(dict.fromkeys(spec["method"] for spec in rows.values()))
    for number, column in enumerate(experiment.columns, start=1):
        _check(f"{where}: columns {number}", column, methods)
    return dataclasses.replace(experiment, rows=rows, methods=methods)


def _check(where: str, column: ColumnTable, methods: Sequence[str]) -> None:
    from crowdwise.simulate import aidn

    settings = {name for method in METHODS for name in settable(method)}
    known: dict[str, Iterable[str]] = {"simulate": parameters_of(aidn), "parameters": settings}
    refuse_unknown(f"{where}, methods", column.methods or (), methods)
    check_settings(f"{where}, simulate", column.simulate, aidn)
    refuse_unknown(f"{where}, parameters", column.parameters, settings)
    for key, values in column.vary.items():
        part, dot, name = key.partition(".")
        if part not in _PARTS or not dot:
            raise ConfigError(f"{where}: vary {key!r} must be simulate.NAME, parameters.NAME or data.NAME")
        refuse_unknown(f"{where}, vary {part}", [name], known.get(part, [name]))
        if not values:
            raise ConfigError(f"{where}: vary {key!r} must have at least one value")
    if column.inputs is not None and column.annotations is None:
        raise ConfigError(f"{where}: inputs need annotations")
    if column.preset is None and column.inputs is None and not column.data:
        raise ConfigError(f"{where}: no data: give a preset, data = {{ name = ... }}, or inputs and annotations")


def title_of(method: str) -> str:
    """A method's row in a table: its title, where its own class declares one.

    >>> title_of("union-net"), title_of("deep-aggregate")
    ('UnionNet', 'deep-aggregate')
    """
    return vars(METHODS[method]).get("title") or method


def settable(method: str) -> set[str]:
    """The parameters that an experiment may set; the benchmark itself sets seeds and output."""
    return {*parameters_of(METHODS[method])} - {"random_state", "verbose"}


def _files(column: ColumnTable, folder: Path, where: str) -> dict[str, str]:
    """The user's files as absolute paths, with a digest of their contents.

    ``inputs`` may name an array of an npz file (``data.npz:X``), and ``ids`` a column or an array instead of a file.
    """
    found: dict[str, str] = {}
    contents: list[str] = []
    for key in FILES:
        value = getattr(column, key)
        if value is None:
            continue
        path, colon, array = str(folder / value), "", ""
        if not Path(path).is_file() and ".npz:" in value:
            path, colon, array = path.rpartition(":")
        if Path(path).is_file():
            stat = Path(path).stat()
            found[key] = f"{Path(path).resolve()}{colon}{array}"
            contents.append(_file_digest(path, stat.st_size, stat.st_mtime_ns))
        elif key == "ids":
            found[key] = value
        else:
            raise ConfigError(f"{where}: there is no file {path} ({key} are looked for beside the TOML file)")
    return found | ({"content": "-".join(contents)} if contents else {})


@functools.lru_cache(maxsize=64)
def _file_digest(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def _filled(label: str, values: Mapping[str, Any], name: str) -> str:
    """The label with values for {NAME} and {NAME:FORMAT}; no other expressions are allowed."""
    try:
        for _, field, form, conversion in string.Formatter().parse(label):
            if field is not None and (not field.isidentifier() or conversion or not _FORM.fullmatch(form or "")):
                raise ValueError(f"{{{field}}} is no name with a plain format")
        return label.format(**values)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"experiment {name}: the label {label!r} cannot be filled with {dict(values)}: {error}"
        ) from None


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or "none"
