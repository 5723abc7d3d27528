"""States after rounds, so that a killed run goes on: arrays and JSON in one npz file, nothing pickled.

The file has a checksum of each array and says what it belongs to. The state before the last one is kept beside it. A state
says itself what is kept of it (`State.content`), and the method makes a state of it again (`IterativeAggregator.revived`).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import bayes_kernels, kernels, queries
from crowdwise.aggregation.core.base import Aggregator, State
from crowdwise.aggregation.core.crowd import Crowd, Query
from crowdwise.errors import CrowdwiseWarning, ModelFileError
from crowdwise.storage.arrays import read_npz
from crowdwise.storage.files import replacing
from crowdwise.streaming.passes import Question

VERSION = 5
_ROWS = queries.majority, queries.weighted_majority
_STEPS = kernels.em_step, kernels.vote_step, bayes_kernels.glad_step
QUERIES: dict[str, Query] = {query.__name__: query for query in (*_ROWS, *_STEPS)}  # that states may hold
_IRRELEVANT = {"n_jobs", "verbose"}  # parameters that do not change the result

Kept = tuple[Any, list[float], bool]  # a state, the objectives of the rounds, and whether the rounds are over


class Checkpoint:
    """The file of one method with certain parameters on one prepared table."""

    def __init__(self, folder: Path, model: Aggregator, source: str) -> None:
        parameters = {key: value for key, value in model.get_params().items() if key not in _IRRELEVANT}
        about = [VERSION, source, type(model).__qualname__, parameters]
        text = json.dumps(about, default=lambda value: np.asarray(value).tolist(), sort_keys=True)
        self.model: Any = model
        self.source = source
        self.key = hashlib.sha256(text.encode()).hexdigest()
        self.path = folder / f"state-{self.key[:16]}.npz"
        self.previous = self.path.with_name(f"{self.path.name}.previous")

    def of(self, model: Aggregator) -> Checkpoint:
        """The file of another method on the same table."""
        return Checkpoint(self.path.parent, model, self.source)

    def save(self, state: State, trace: list[float], converged: bool) -> None:
        """Write the state of the last round; that of the round before stays as the previous one."""
        about = {"key": self.key, "state": state.content(), "trace": trace, "converged": converged}
        text, arrays = packed(about)
        with replacing(self.path, keep=self.previous) as temporary, temporary.open("wb") as file:
            np.savez(file, about=np.array(text), **arrays)  # type: ignore[arg-type]

    def load(self, crowd: Crowd) -> Kept | None:
        """What was saved last, or before that if the last file is damaged; None where there is no file."""
        if not self.path.exists() and not self.previous.exists():
            return None
        try:  # there is only the previous one if the process was killed between two renamings
            return self._read(self.path if self.path.exists() else self.previous, crowd)
        except ModelFileError as error:
            try:
                found = self._read(self.previous, crowd)
            except ModelFileError:
                raise ModelFileError(f"{error}; remove it to start from the first round") from error
            warnings.warn(f"{error}; going on from the round before", CrowdwiseWarning, stacklevel=2)
            self.path.unlink()
            return found

    def _read(self, path: Path, crowd: Crowd) -> Kept:
        arrays = read_npz(path, kind=ModelFileError)
        try:
            about = unpacked(str(arrays["about"]), arrays)
            if about["key"] != self.key:
                raise ValueError("it belongs to another table or method")
            return self.model.revived(crowd, about["state"]), [*map(float, about["trace"])], bool(about["converged"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise ModelFileError(f"{path} is damaged: {error}") from error


def packed(content: Any) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """Values as JSON, and the arrays among them, each once, which it refers to by name."""
    arrays: dict[str, npt.NDArray[Any]] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            name = next((name for name, array in arrays.items() if array is value), f"a{len(arrays)}")
            arrays[name] = value
            return {"array": name}
        if isinstance(value, Question):
            return {"question": {**vars(value), "query": value.query.__name__}}
        return value.item()  # a number of numpy

    return json.dumps(content, default=plain), arrays


def unpacked(text: str, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Back from JSON; tuples come back as lists."""

    def revived(found: dict[str, Any]) -> Any:
        match found:
            case {"array": name}:
                return arrays[name]
            case {"question": fields}:
                return Question(**{**fields, "query": QUERIES[fields["query"]]})
        return found

    return json.loads(text, object_hook=revived)
