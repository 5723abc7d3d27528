"""States after rounds, so that a killed run goes on: arrays and JSON in one npz file, nothing pickled.

The file has a checksum of each array and says what it belongs to. The state before the last one is kept beside it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.bayes_kernels import Rows
from crowdwise.errors import CrowdwiseWarning, ModelFileError
from crowdwise.storage.arrays import read_npz
from crowdwise.streaming import crowd as recipes
from crowdwise.streaming.store import write_arrays

VERSION = 2
_IRRELEVANT = {"n_jobs", "verbose"}  # parameters that do not change the result


class Checkpoint:
    """The file of one method with certain parameters on one prepared table."""

    def __init__(self, folder: Path, model: Aggregator, source: str) -> None:
        parameters = {key: value for key, value in model.get_params().items() if key not in _IRRELEVANT}
        about = [VERSION, source, type(model).__qualname__, parameters]
        text = json.dumps(about, default=lambda value: np.asarray(value).tolist(), sort_keys=True)
        self.model, self.key = model, hashlib.sha256(text.encode()).hexdigest()
        self.path = folder / f"state-{self.key[:16]}.npz"
        self.previous = self.path.with_name(f"{self.path.name}.previous")

    def save(self, model: Aggregator, state: Any, trace: list[float], converged: bool) -> None:
        """Write the state of the last round; that of the round before stays as the previous one."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        private = {name: value for name, value in vars(model).items() if isinstance(value, bool) and name[0] == "_"}
        about = {"key": self.key, "state": pack(state, arrays), "trace": trace, "converged": converged}
        content = {"about": np.array(json.dumps(about | {"private": private})), **arrays}
        write_arrays(self.path, content, keep=self.previous)

    def load(self, crowd: Any) -> tuple[Any, list[float], bool] | None:
        """State, objectives and whether the rounds were over; None where there is no file."""
        if not self.path.exists():
            if not self.previous.exists():
                return None
            os.replace(self.previous, self.path)  # the process was killed between two renamings
        try:
            return self._read(self.path, crowd)
        except ModelFileError as error:
            try:
                found = self._read(self.previous, crowd)
            except ModelFileError:
                raise ModelFileError(f"{error}; remove it to start from the first round") from error
            warnings.warn(f"{error}; going on from the round before", CrowdwiseWarning, stacklevel=2)
            os.replace(self.previous, self.path)
            return found

    def _read(self, path: Path, crowd: Any) -> tuple[Any, list[float], bool]:
        arrays = read_npz(path, kind=ModelFileError)
        try:
            about = json.loads(str(arrays["about"]))
            if about["key"] != self.key:
                raise ValueError("it belongs to another table or method")
            state, trace = _Unpacker(arrays, self.model, crowd).unpack(about["state"]), [*map(float, about["trace"])]
            private = {name: bool(value) for name, value in about["private"].items() if name[0] == "_"}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise ModelFileError(f"{path} is damaged: {error}") from error
        vars(self.model).update(private)
        return state, trace, bool(about["converged"])


def pack(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """A state as JSON; arrays are put into ``arrays``, each once, and referred to by name."""
    if isinstance(value, np.ndarray):
        name = next((name for name, array in arrays.items() if array is value), f"a{len(arrays)}")
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Rows):  # follows from the crowd
        return {"rows": True}
    if hasattr(value, "_asdict"):
        return {"class": type(value).__name__, "fields": pack(value._asdict(), arrays)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": pack(fields, arrays)}
    if isinstance(value, dict):
        return {name: pack(item, arrays) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [pack(item, arrays) for item in value]}
    return value.item() if isinstance(value, np.generic) else value


class _Unpacker:
    """Back from JSON; classes are recipes, or data classes and named tuples of the method's own modules."""

    def __init__(self, arrays: Any, model: Any, crowd: Any) -> None:
        self.arrays, self.model, self.crowd = arrays, model, crowd
        self.loaded: dict[str, npt.NDArray[Any]] = {}

    def unpack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        match value:
            case {"array": name}:
                if name not in self.loaded:
                    self.loaded[name] = self.arrays[name]
                return self.loaded[name]
            case {"rows": True}:
                return self.model._rows(self.crowd)
            case {"tuple": items}:
                return tuple(map(self.unpack, items))
            case {"list": items}:
                return list(map(self.unpack, items))
            case {"class": name, "fields": fields}:
                return self._class(name)(**{key: self.unpack(item) for key, item in fields.items()})
        raise ValueError(f"unknown entry {str(value)[:60]}")

    def _class(self, name: str) -> Any:
        modules = [recipes, *(sys.modules[base.__module__] for base in type(self.model).__mro__)]
        for module in modules:
            found = getattr(module, name, None)
            if isinstance(found, type) and (dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
                return found
        raise ValueError(f"unknown class {name!r}")
