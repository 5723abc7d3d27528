"""Presets: short TOML files that say which data, which crowd and which parameters, so that a run is one name.

A preset has the tables ``[data]`` (``name`` and options of `crowdwise.datasets.load`), ``[simulate]`` (arguments of
`crowdwise.simulate.aidn`, for data without annotations), ``[parameters]`` (of every method that has them) and
``[methods.NAME]`` (of one method). They hold the paper's protocol; methods from outside the paper take the network alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from crowdwise.constraints import check_settings, parameters_of, refuse_unknown
from crowdwise.registry import METHODS
from crowdwise.storage.documents import named_toml, read_as, toml_names


@dataclass(frozen=True)
class Preset:
    """One experiment's settings."""

    name: str
    description: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    simulate: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def method_parameters(self, method: str, *, recipe: str | None = None) -> dict[str, Any]:
        """The parameters that this preset gives to ``method``.

        Presets follow the paper. Of these, a method that is not the paper's takes the backbone alone and is trained in its own
        way, unless ``recipe`` is "paper".
        """
        found: Any = METHODS[method]
        known = ("backbone",) if found.outside_paper and recipe != "paper" else parameters_of(found)
        common = {key: value for key, value in self.parameters.items() if key in known}
        return common | dict(self.methods.get(method, {}))


def names() -> list[str]:
    """The presets that come with crowdwise.

    >>> "labelme" in names()
    True
    """
    return toml_names(resources.files(__name__))


def load_preset(name: str | Path) -> Preset:
    """A preset by name, or from a TOML file of yours. Unknown keys are errors."""
    from crowdwise.simulate import aidn

    label, content = named_toml("preset", name, resources.files(__name__))
    where = f"preset {name}"
    preset = read_as(Preset, content, where, name=label)
    check_settings(f"{where}, [simulate]", preset.simulate, aidn)
    refuse_unknown(f"{where}, [methods]", preset.methods, METHODS)
    everywhere = {key for method in METHODS for key in parameters_of(METHODS[method])}
    refuse_unknown(f"{where}, [parameters]", preset.parameters, everywhere)
    for method, parameters in preset.methods.items():
        check_settings(f"{where}, [methods.{method}]", parameters, METHODS[method])
    return preset
