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
import inspect
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from crowdwise import presets
from crowdwise.bench.cells import FILES, Cell
from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import METHODS
from crowdwise.storage.text import toml_table

_TOP: dict[str, tuple[type | tuple[type, ...], str]] = {
    "description": (str, "text"),
    "paper": (int, "the number of a table"),
    "seeds": (int, "a number of seeds"),
    "heldout": ((int, float), "a share of the annotations"),
    "methods": (list, "a list of methods"),
    "rows": (dict, 'tables [rows."NAME"]'),
    "columns": (list, "tables [[columns]], in double brackets"),
}
_COLUMN: dict[str, tuple[type | tuple[type, ...], str]] = {
    "label": (str, "text"),
    "preset": (str, "the name of a preset, or a TOML file"),
    "inputs": (str, "a file"),
    "annotations": (str, "a file"),
    "ids": (str, "a file, a column or an array"),
    "methods": (list, "a list of methods"),
    "data": (dict, "a table"),
    "simulate": (dict, "a table"),
    "parameters": (dict, "a table"),
    "vary": (dict, "a table of lists"),
}
_PARTS = ("simulate", "parameters", "data")
MOST_SEEDS = 10_000
_FORM = re.compile(r"\d{0,2}(\.\d{1,2})?[a-zA-Z%]?")


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

        ``parameters`` override those of the experiment, in every method that has them.
        """
        chosen = seeds if seeds is not None else range(self.seeds)
        found = [cell for seed in chosen for cell in self._of_seed(seed, parameters or {})]
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
        known = settable(method)
        preset = presets.load_preset(_path(column["preset"], self.folder)) if "preset" in column else presets.Preset("")
        varied: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        for key, value in values.items():
            table, _, name = key.partition(".")
            varied[table][name] = value
        common = {**column.get("parameters", {}), **varied["parameters"], **overrides}
        files = _files({key: column[key] for key in FILES if key in column}, self.folder, f"experiment {self.name}")
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
            heldout=self.heldout if self.heldout is not None else 0.1 * ("inputs" in files),
        )


def names() -> list[str]:
    """The experiments that come with crowdwise.

    >>> "quick" in names()
    True
    """
    return sorted(_packaged())


def _packaged() -> dict[str, Traversable]:
    """The files of the experiments that come with crowdwise, the paper's among them."""
    bench = resources.files(__package__)
    files = (file for folder in ("experiments", "paper/experiments") for file in (bench / folder).iterdir())
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def load_experiment(name: str | Path) -> Experiment:
    """An experiment by name, or from your own TOML file. Unknown keys are errors."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"there is no experiment file {path}")
        text, label, folder = path.read_bytes(), path.stem, path.parent
    else:
        packaged = _packaged()
        if str(name) not in packaged:
            raise ConfigError(f"unknown experiment {str(name)!r}{suggest(str(name), packaged)}")
        text, label, folder = packaged[str(name)].read_bytes(), str(name), Path()
    try:
        content = toml_table(text)
    except ValueError as error:
        raise ConfigError(f"experiment {name}: {error}") from error
    return _checked(label, content, folder)


def _checked(name: str, content: dict[str, Any], folder: Path) -> Experiment:
    where = f"experiment {name}"
    _check(where, content, _TOP)
    if not 1 <= content.get("seeds", 1) <= MOST_SEEDS:
        raise ConfigError(f"{where}: seeds must be 1 to {MOST_SEEDS:,}, not {str(content['seeds'])[:60]}")
    if not 0 <= content.get("heldout", 0) < 1:
        raise ConfigError(f"{where}: heldout is a share of the annotations in [0, 1), not {content['heldout']}")
    tables = content.pop("rows", {})
    for row, spec in tables.items():
        if not isinstance(spec, dict):
            raise ConfigError(f"{where}, [rows.{row!r}] must be a table, not {str(spec)[:60]!r}")
    rows = {str(row): dict(spec) for row, spec in tables.items()}
    for method in _names(f"{where}, methods", content.pop("methods", [])):
        rows.setdefault(title_of(method), {"method": method})
    for row, spec in rows.items():
        if "method" not in spec:
            raise ConfigError(f"{where}, [rows.{row!r}]: say which method it is: method = ...")
        (method,) = _names(f"{where}, [rows.{row!r}], method", [spec["method"]])
        _refuse(f"{where}, [rows.{row!r}]", spec, {"method", *settable(method)})
    columns = content.pop("columns", [])
    if not rows or not columns:
        raise ConfigError(f"{where}: it needs methods (or [rows]) and at least one table [[columns]]")
    methods = list(dict.fromkeys(spec["method"] for spec in rows.values()))
    for number, column in enumerate(columns, start=1):
        _check_column(f"{where}, [[columns]] {number}", column, methods)
    return Experiment(name, rows=rows, columns=columns, folder=folder, **content)


def _check_column(where: str, column: Mapping[str, Any], methods: Sequence[str]) -> None:
    from crowdwise.simulate import aidn

    _check(where, column, _COLUMN)
    _refuse(f"{where}, methods", _names(f"{where}, methods", column.get("methods", [])), methods)
    known: dict[str, Iterable[str]] = {
        "simulate": inspect.signature(aidn).parameters,
        "parameters": {name for method in METHODS for name in settable(method)},
    }
    for part, keys in known.items():
        _refuse(f"{where}, {part}", column.get(part, {}), keys)
    for key, values in column.get("vary", {}).items():
        part, dot, name = key.partition(".")
        if part not in _PARTS or not dot:
            raise ConfigError(f"{where}: vary {key!r} must be simulate.NAME, parameters.NAME or data.NAME")
        _refuse(f"{where}, vary {part}", [name], known.get(part, [name]))
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}: vary {key!r} must be a list of values, not {values!r}")
    if "inputs" in column and "annotations" not in column:
        raise ConfigError(f"{where}: inputs need annotations")
    if not any(key in column for key in ("preset", "data", "inputs")):
        raise ConfigError(f"{where}: no data: give a preset, data = {{ name = ... }}, or inputs and annotations")


def _check(where: str, content: Mapping[str, Any], known: Mapping[str, tuple[type | tuple[type, ...], str]]) -> None:
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where} must be a table, not {content!r}")
    _refuse(where, content, known)
    for key, value in content.items():
        kind, words = known[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{where}: {key} must be {words}, not {value!r}")


def _names(where: str, given: Sequence[Any]) -> Sequence[str]:
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(f"{where}: {str(name)[:60]!r} is not a name")
    return given


def _refuse(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggest(key, list(known))}")


def title_of(method: str) -> str:
    """A method's row in a table: its title, where its own class declares one.

    >>> title_of("union-net"), title_of("deep-aggregate")
    ('UnionNet', 'deep-aggregate')
    """
    return vars(METHODS[method]).get("title") or method


def settable(method: str) -> set[str]:
    """The parameters that an experiment may set; the benchmark itself sets seeds and output."""
    return {f.name for f in dataclasses.fields(METHODS[method])} - {"random_state", "verbose"}


def _path(name: str, folder: Path) -> str | Path:
    """A preset's name unchanged, or its file relative to the experiment's folder."""
    return folder / name if name.endswith(".toml") else name


def _files(files: Mapping[str, str], folder: Path, where: str) -> dict[str, str]:
    """The user's files as absolute paths, with a digest of their contents.

    ``inputs`` may name an array of an npz file (``data.npz:X``), and ``ids`` a column or an array instead of a file.
    """
    found: dict[str, str] = {}
    contents: list[str] = []
    for key, value in files.items():
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


def _combinations(vary: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))


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
