"""Experiments: TOML files that span a grid of columns (data and noise), rows (methods and variants) and seeds.

An experiment has ``description``, ``seeds``, rows as ``methods = [...]`` or as tables ``[rows."NAME"]`` with ``method`` and
parameters, and one table ``[[columns]]`` for each kind of crowd::

    [[columns]]
    label = "F-MNIST|AIDN-{noise_rate:.0%}"
    preset = "fashion-mnist"                 # or: inputs = "X.npy", annotations = "labels.csv", ids = "id"
    vary = { "simulate.noise_rate" = [0.1, 0.2] }
    parameters = { epochs = 20 }             # of every method that has them

Paths are relative to the file. ``paper = 1`` says which of the paper's tables it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from crowdwise import presets
from crowdwise.bench.cells import Cell
from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import METHODS

TITLES = {
    "ce": "CE",
    "gce": "GCE",
    "forward": "Forward",
    "reweight": "Reweight",
    "bltm": "BLTM",
    "dl-mv": "DL-MV",
    "dl-crh": "DL-CRH",
    "dl-mmsr": "DL-MMSR",
    "max-mig": "Max-MIG",
    "dl-ds": "DL-DS",
    "dl-ibcc": "DL-IBCC",
    "dl-ebcc": "DL-EBCC",
    "agg-net": "AggNet",
    "crowd-layer": "CrowdLayer",
    "mbem": "MBEM",
    "union-net": "UnionNet",
    "conal": "CoNAL",
    "geo-crowd-net": "GeoCrowdNet",
    "trace-reg": "TraceReg",
    "taidtm-ft": "TAIDTM-FT",
    "taidtm": "TAIDTM",
}
"""Methods as the paper's tables call them, in its order."""
_TOP = ("description", "paper", "seeds", "methods", "rows", "columns", "heldout")
_COLUMN = ("label", "preset", "vary", "parameters", "simulate", "data", "inputs", "annotations", "ids", "methods")
_FILES = ("inputs", "annotations", "ids")


@dataclass(frozen=True)
class Experiment:
    """A named grid of cells."""

    name: str
    description: str = ""
    paper: int | None = None
    seeds: int = 3
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    columns: Sequence[Mapping[str, Any]] = ()
    heldout: float | None = None
    """Share of the annotations that is held out to judge by; by default a tenth of those of your own files."""
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
        """The cells of the grid, or of the part of it with the given data sets, methods (or row names) and noise rates.

        ``parameters`` override those of the experiment, in every method that has them.
        """
        chosen = seeds if seeds is not None else range(self.seeds)
        found = [cell for seed in chosen for cell in self._of_seed(seed, parameters or {})]
        found = [cell for cell in found if not datasets or cell.data.get("name") in datasets]
        found = [cell for cell in found if not methods or cell.method in methods or cell.row in methods]
        rates = [float(rate) for rate in noise_rates]
        found = [cell for cell in found if not rates or float(cell.simulate.get("noise_rate", -1)) in rates]
        if not found:
            raise ConfigError(
                f"no cell of experiment {self.name!r} is left: it has the data sets "
                f"{_listed(cell.data.get('name') for cell in self._of_seed(0, {}))}, the methods "
                f"{_listed(spec['method'] for spec in self.rows.values())} and the noise rates "
                f"{_listed(cell.simulate.get('noise_rate') for cell in self._of_seed(0, {}))}"
            )
        return found

    def _of_seed(self, seed: int, parameters: Mapping[str, Any]) -> Iterator[Cell]:
        for column in self.columns:
            for values in _combinations(column.get("vary", {})):
                for row, spec in self.rows.items():
                    if "methods" not in column or spec["method"] in column["methods"]:
                        yield self._cell(column, values, row, spec, seed, parameters)

    def _cell(
        self,
        column: Mapping[str, Any],
        values: Mapping[str, Any],
        row: str,
        spec: Mapping[str, Any],
        seed: int,
        overrides: Mapping[str, Any],
    ) -> Cell:
        method = spec["method"]
        known = {f.name for f in dataclasses.fields(METHODS[method])}
        preset = presets.load_preset(column["preset"]) if "preset" in column else presets.Preset("")
        varied: dict[str, dict[str, Any]] = {"simulate": {}, "parameters": {}, "data": {}}
        for key, value in values.items():
            table, _, name = key.partition(".")
            varied[table][name] = value
        common = {**column.get("parameters", {}), **varied["parameters"], **overrides}
        files = {key: column[key] for key in _FILES if key in column}
        files = {k: str((self.folder / v).resolve()) if (self.folder / v).exists() else v for k, v in files.items()}
        names = {key.rpartition(".")[2]: value for key, value in values.items()}
        return Cell(
            experiment=self.name,
            column=_filled(str(column.get("label", column.get("preset", self.name))), names, self.name),
            row=row,
            method=method,
            seed=seed,
            data={**preset.data, **column.get("data", {}), **varied["data"], **files},
            simulate={**preset.simulate, **column.get("simulate", {}), **varied["simulate"]},
            parameters={
                **preset.method_parameters(method),
                **{key: value for key, value in common.items() if key in known},
                **{key: value for key, value in spec.items() if key != "method"},
            },
            heldout=self.heldout if self.heldout is not None else 0.1 * bool(files),
        )


def names() -> list[str]:
    """The experiments that come with crowdwise.

    >>> "quick" in names()
    True
    """
    folder = resources.files(__package__) / "experiments"
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def load_experiment(name: str | Path) -> Experiment:
    """An experiment by name, or from a TOML file of yours. Unknown keys are errors."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"there is no experiment file {path}")
        text, label, folder = path.read_text(encoding="utf-8"), path.stem, path.parent
    else:
        if str(name) not in names():
            raise ConfigError(f"unknown experiment {str(name)!r}{suggest(str(name), names())}")
        file = resources.files(__package__) / "experiments" / f"{name}.toml"
        text, label, folder = file.read_text(encoding="utf-8"), str(name), Path()
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"experiment {name}: {error}") from error
    return _checked(label, content, folder)


def _checked(name: str, content: dict[str, Any], folder: Path) -> Experiment:
    where = f"experiment {name}"
    _refuse(where, content, _TOP)
    rows = {str(row): dict(spec) for row, spec in content.pop("rows", {}).items()}
    for method in content.pop("methods", []):
        rows.setdefault(TITLES.get(method, method), {"method": method})
    for row, spec in rows.items():
        if "method" not in spec:
            raise ConfigError(f"{where}, [rows.{row!r}]: say which method it is: method = ...")
        fields = {f.name for f in dataclasses.fields(METHODS[spec["method"]])}
        _refuse(f"{where}, [rows.{row!r}]", {k: v for k, v in spec.items() if k != "method"}, fields)
    columns = content.pop("columns", [])
    if not rows or not columns:
        raise ConfigError(f"{where}: it needs methods (or [rows]) and at least one table [[columns]]")
    for number, column in enumerate(columns):
        _refuse(f"{where}, [[columns]] {number + 1}", column, _COLUMN)
        for key in column.get("vary", {}):
            if key.partition(".")[0] not in ("simulate", "parameters", "data") or "." not in key:
                raise ConfigError(f"{where}: vary {key!r} must be simulate.NAME, parameters.NAME or data.NAME")
        if "inputs" in column and "annotations" not in column:
            raise ConfigError(f"{where}, [[columns]] {number + 1}: inputs need annotations")
    return Experiment(name, rows=rows, columns=columns, folder=folder, **content)


def _refuse(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggest(key, list(known))}")


def _combinations(vary: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))


def _filled(label: str, values: Mapping[str, Any], name: str) -> str:
    try:
        return label.format(**values)
    except (KeyError, ValueError, IndexError) as error:
        raise ConfigError(
            f"experiment {name}: the label {label!r} cannot be filled with {dict(values)}: {error}"
        ) from None


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or "none"
