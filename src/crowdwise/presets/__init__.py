"""Presets: short TOML files that say which data, which crowd and which parameters, so that a run is one name.

A preset has the tables ``[data]`` (``name`` and options of `crowdwise.datasets.load`), ``[simulate]`` (arguments of
`crowdwise.simulate.aidn`, for data without annotations), ``[parameters]`` (of every method that has them) and
``[methods.NAME]`` (of one method).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from crowdwise.errors import ConfigError, suggest
from crowdwise.registry import METHODS
from crowdwise.storage.text import toml_table

_TABLES = ("description", "data", "simulate", "parameters", "methods")


@dataclass(frozen=True)
class Preset:
    """One experiment's settings."""

    name: str
    description: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def method_parameters(self, method: str) -> dict[str, Any]:
        """The parameters that this preset gives to ``method``."""
        known = _fields(method)
        common = {key: value for key, value in self.parameters.items() if key in known}
        return common | dict(self.methods.get(method, {}))


def names() -> list[str]:
    """The presets that come with crowdwise.

    >>> "labelme" in names()
    True
    """
    return sorted(file.name[:-5] for file in resources.files(__name__).iterdir() if file.name.endswith(".toml"))


def load_preset(name: str | Path) -> Preset:
    """A preset by name, or from a TOML file of yours. Unknown keys are errors."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"there is no preset file {path}")
        text, label = path.read_bytes(), path.stem
    else:
        if str(name) not in names():
            raise ConfigError(f"unknown preset {str(name)!r}{suggest(str(name), names())}")
        text, label = (resources.files(__name__) / f"{name}.toml").read_bytes(), str(name)
    try:
        content = toml_table(text)
    except ValueError as error:
        raise ConfigError(f"preset {name}: {error}") from error
    _refuse_unknown(f"preset {name}", content, _TABLES)
    for table, value in content.items():
        if not isinstance(value, str if table == "description" else dict):
            raise ConfigError(f"preset {name}: {table} cannot be {str(value)[:60]!r}")
    for method, value in content.get("methods", {}).items():
        if not isinstance(value, dict):
            raise ConfigError(f"preset {name}: [methods.{method}] must be a table, not {str(value)[:60]!r}")
    preset = Preset(label, **content)
    _check(preset)
    return preset


def _check(preset: Preset) -> None:
    from crowdwise.simulate import aidn

    _refuse_unknown(f"preset {preset.name}, [simulate]", preset.simulate, inspect.signature(aidn).parameters)
    _refuse_unknown(f"preset {preset.name}, [methods]", preset.methods, METHODS)
    everywhere = {key for method in METHODS for key in _fields(method)}
    _refuse_unknown(f"preset {preset.name}, [parameters]", preset.parameters, everywhere)
    for method, parameters in preset.methods.items():
        _refuse_unknown(f"preset {preset.name}, [methods.{method}]", parameters, _fields(method))


def _fields(method: str) -> set[str]:
    return {f.name for f in dataclasses.fields(METHODS[method])}


def _refuse_unknown(where: str, given: Mapping[str, Any], known: Any) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggest(key, list(known))}")
