"""States after rounds, so that a killed run goes on: arrays and JSON in one npz file, nothing pickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise._files import replacing
from crowdwise.aggregation.base import Aggregator
from crowdwise.aggregation.bayes_kernels import Rows
from crowdwise.errors import ModelFileError
from crowdwise.streaming import crowd as recipes

VERSION = 1
_IRRELEVANT = {"n_jobs", "verbose"}  # parameters that do not change the result


class Checkpoint:
    """The file of one method with certain parameters on one prepared table."""

    def __init__(self, folder: Path, model: Aggregator, source: str) -> None:
        parameters = {key: value for key, value in model.get_params().items() if key not in _IRRELEVANT}
        about = [VERSION, source, type(model).__qualname__, parameters]
        text = json.dumps(about, default=lambda value: np.asarray(value).tolist(), sort_keys=True)
        self.model = model
        self.path = folder / f"state-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"

    def save(self, model: Aggregator, state: Any, trace: list[float], converged: bool) -> None:
        """Replace the file by one with this state."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        private = {name: value for name, value in vars(model).items() if isinstance(value, bool) and name[0] == "_"}
        about = {"state": pack(state, arrays), "trace": trace, "converged": converged, "private": private}
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]

    def load(self, crowd: Any) -> tuple[Any, list[float], bool] | None:
        """State, objectives and whether the rounds were over; None where there is no file."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                state = _Unpacker(file, self.model, crowd).unpack(about["state"])
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise ModelFileError(
                f"{self.path} is damaged ({error}); remove it to start from the first round"
            ) from error
        vars(self.model).update(about["private"])
        return state, about["trace"], about["converged"]


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
